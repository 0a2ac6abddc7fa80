"""The script inside its runner."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from airflow_provider.spark.runner import run_script

LATE = """\
import sys, threading
from pathlib import Path

def later():
    Path(sys.argv[1]).write_text("written")

threading.Timer(0.2, lambda: threading.Timer(0.1, later).start()).start()
"""


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError"])
def test_a_script_has_ended_when_its_threads_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """Python waits for them at its end; the attempt does, too, whatever the script ends with: they may still write, and
    then the fence and the event store are needed.
    """
    script, target = tmp_path / "late.py", tmp_path / "target"
    script.write_text(LATE + end)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    error = run_script(script, [str(target)], lambda: None)
    assert target.read_text() == "written"
    assert (error is None) == (not end)
