"""Disks that are soon full."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path


def small_disk(folder: Path, mebibytes: int, until: ExitStack) -> Path | None:
    """Mount a disk of so many mebibytes at *folder* until the stack is left; ``None`` if that is not allowed here."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        return None
    until.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)
    return folder
