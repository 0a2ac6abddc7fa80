"""Make packages look as if they were not installed, in processes that tests start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_SITECUSTOMIZE = """\
import os, sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in os.environ.get("TEST_BLOCKED_IMPORTS", "").split(","):
            return None
        return self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""


def blocked_imports(folder: Path, *packages: str) -> dict[str, str]:
    """The environment of a Python process that cannot find *packages*; *folder* keeps what brings that about."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(_SITECUSTOMIZE)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, "TEST_BLOCKED_IMPORTS": ",".join(packages)}


def python_without(folder: Path, *packages: str) -> Path:
    """A program that is this Python, but cannot find *packages*."""
    environment = blocked_imports(folder, *packages)
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" TEST_BLOCKED_IMPORTS={environment["TEST_BLOCKED_IMPORTS"]} '
        f'exec {sys.executable} "$@"\n'
    )
    program.chmod(0o755)
    return program
