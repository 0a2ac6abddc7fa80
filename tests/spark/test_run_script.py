"""The script inside its runner."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.spark.runner import find_application, run_script

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


def test_a_script_that_the_user_may_not_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """In one line, as one that does not exist: before anything is claimed, and also where its folder is closed."""
    monkeypatch.chdir("/")
    (tmp_path / "closed").mkdir(mode=0o700)
    closed = tmp_path / "closed" / "job.py"
    closed.write_text("")
    unreadable = tmp_path / "job.py"
    unreadable.touch(mode=0o000)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder not in (Path("/"), Path("/tmp")):
            folder.chmod(0o755)
    request.getfixturevalue("nobody")
    with pytest.raises(ConfigurationError, match=r"does not exist.*user may read it"):
        find_application(str(closed))
    with pytest.raises(ConfigurationError, match=r"cannot be read.*user may read it"):
        find_application(str(unreadable))
