"""Drivers that outlive the task process, and their output."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from airflow_provider.airflow import detached
from airflow_provider.airflow.detached import Output, output_path, start_detached


def test_the_output_is_for_its_owner_only(tmp_path: Path) -> None:
    """Below Airflow's folder for logs, a new file for each driver; elsewhere if that cannot be written."""
    paths = [output_path(str(tmp_path), "jobs/dag/@job") for _ in range(2)]
    assert len(set(paths)) == 2
    for path in paths:
        assert path.is_relative_to(tmp_path)
        assert path.stat().st_mode & 0o077 == 0
        assert path.parent.stat().st_mode & 0o077 == 0
    (tmp_path / "file").touch()
    elsewhere = output_path(str(tmp_path / "file"), "jobs/dag/@job")
    assert not elsewhere.is_relative_to(tmp_path / "file")
    assert elsewhere.stat().st_mode & 0o077 == 0
    elsewhere.unlink()


def test_whole_lines_are_read_once(tmp_path: Path) -> None:
    """A line that is still being written waits for its end, or for that of the driver."""
    path = tmp_path / "out"
    path.write_bytes(b"one\ntw")
    output = Output(path)
    assert list(output.lines()) == ["one\n"]
    with path.open("ab") as file:
        file.write(b"o\nthree")
    assert list(Output(path, output.offset).lines()) == ["two\n"]
    assert list(Output(path, output.offset).lines(to_the_end=True)) == ["two\n", "three"]
    assert list(Output(tmp_path / "gone").lines(to_the_end=True)) == []


def test_of_much_output_the_end_is_read_and_the_file_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how much is left out, and where that is; a short file is deleted."""
    monkeypatch.setattr(detached, "_MOST", 10)
    path = tmp_path / "out"
    path.write_text("0123456789\nabcdefgh\n")
    output = Output(path)
    first, *rest = output.lines(to_the_end=True)
    assert first == f"[10 bytes are left out here; see {path}]"
    assert rest == ["\n", "abcdefgh\n"]
    output.remove()
    assert path.exists()
    path.write_text("short")
    output.remove()
    assert not path.exists()


@pytest.mark.process
def test_a_detached_process_is_in_a_session_of_its_own(tmp_path: Path) -> None:
    """So that what ends the task's processes does not end it; its output and errors go to the file."""
    path = tmp_path / "out"
    code = "import os, sys; print(os.getsid(0), os.environ['OWN']); print('error', file=sys.stderr)"
    process = start_detached([sys.executable, "-c", code], {"OWN": "value"}, path)
    assert process.wait(60) == 0
    assert sorted(path.read_text().splitlines()) == sorted([f"{process.pid} value", "error"])
    assert os.getsid(0) != process.pid


def test_a_program_that_is_missing_leaves_no_file(tmp_path: Path) -> None:
    """The error is that of the operating system, which names the program."""
    path = tmp_path / "out"
    path.touch()
    with pytest.raises(FileNotFoundError):
        start_detached(["no-such-program"], None, path)
    assert not path.exists()
