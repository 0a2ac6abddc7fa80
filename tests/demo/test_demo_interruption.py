"""Ctrl-C ends the demo, whatever its main thread does at that moment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = """
import os, signal, sys, threading
from airflow_provider.cli.demo import command, story

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

def tell(*_):
    finalized = Finalized()
    del finalized
    print("dropped", flush=True)
    threading.Event().wait(60)

command.check_requirements = lambda path: None
command.ASK_AGAIN = 0.1
story.tell = tell
sys.exit(command.main([]))
"""


@pytest.mark.process
def test_an_interruption_in_a_finalizer_is_not_lost(tmp_path: Path) -> None:
    """Python drops what a finalizer raises; the demo ends all the same, with the code of an interruption."""
    done = subprocess.run(
        [sys.executable, "-c", DEMO],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert "dropped" in done.stdout, done.stderr
    assert done.returncode == 130, done.stderr
    assert list(tmp_path.iterdir()) == []
