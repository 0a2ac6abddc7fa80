"""Drivers that outlive the task process, and their output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from airflow_provider.airflow import detached
from airflow_provider.airflow.detached import Output, output_path, start_detached, sweep_outputs
from tests.support.waiting import wait_until


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


OLD = 31 * 24 * 3600


def age(path: Path, by: float = OLD) -> Path:
    os.utime(path, (time.time() - by,) * 2)
    return path


def test_old_outputs_go_when_the_next_one_is_made(tmp_path: Path) -> None:
    """After 30 days without a line, with the folders that they leave empty; younger ones stay, and other files."""
    old, young, lone = (output_path(str(tmp_path), f"jobs/{name}/@job") for name in ("a", "b", "c"))
    other = lone.with_name("notes.log")
    other.touch()
    for path in (old, lone, other):
        age(path)
    age(young, OLD - 2 * 24 * 3600)
    output_path(str(tmp_path), "jobs/d/@job")
    output_path(str(tmp_path), "jobs/d/@job")
    assert [path.exists() for path in (old, old.parent, young, lone, other)] == [False, False, True, False, True]


@pytest.mark.process
def test_the_output_of_a_driver_that_is_at_work_stays(tmp_path: Path) -> None:
    """Also if it has been silent for a month, and whoever has started it is gone; after its end it goes."""
    path = output_path(str(tmp_path), "jobs/a/@job")
    starter = (
        "import sys; from pathlib import Path; from airflow_provider.airflow.detached import start_detached;"
        "print(start_detached([sys.executable, '-c', 'import signal; signal.pause()'], None, Path(sys.argv[1])).pid)"
    )
    started = subprocess.run([sys.executable, "-c", starter, str(path)], capture_output=True, text=True, check=True)
    driver = int(started.stdout)
    try:
        age(path)
        output_path(str(tmp_path), "jobs/b/@job")
        assert path.exists()
    finally:
        os.kill(driver, signal.SIGKILL)

    def swept() -> bool:
        sweep_outputs(tmp_path / "spark_recovery")
        return not path.exists()

    wait_until(swept, "the output of a driver that has ended is removed")


def test_a_sweep_of_outputs_follows_no_link(tmp_path: Path) -> None:
    """Whoever plants one in the folder for logs has nothing removed elsewhere."""
    outside = tmp_path / "outside"
    outside.mkdir()
    theirs = age_of_a_new_file(outside / "driver-0123456789ab.log")
    root = output_path(str(tmp_path), "jobs/a/@job").parent
    (root / "planted").symlink_to(outside)
    (root / theirs.name).symlink_to(theirs)
    sweep_outputs(tmp_path / "spark_recovery")
    assert theirs.exists()
    (tmp_path / "link").symlink_to(outside)
    sweep_outputs(tmp_path / "link")
    assert theirs.exists()


def age_of_a_new_file(path: Path) -> Path:
    path.touch()
    return age(path)
