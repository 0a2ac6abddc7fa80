"""What this package leaves in a machine's folder for temporary files, and when it goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_provider.storage import private_files
from airflow_provider.storage.bundle import build_package
from airflow_provider.storage.private_files import hold, hold_if_private, private_folder, sweep, temporary_folder

WEEK = 7 * 24 * 3600
NAME, OTHER = "a" * 24, "task-" + "b" * 24
USER = """
import sys; from pathlib import Path; from airflow_provider.storage.private_files import hold
hold(Path(sys.argv[1])); print("held", flush=True); sys.stdin.read()
"""
CHURN = """
import sys; from pathlib import Path; from airflow_provider.storage import private_files as p
p.KEPT = -1.0
folder, me = Path(sys.argv[1]), sys.argv[2]
for turn in range(150):
    p.hold(folder)
    (folder / me).write_text(me)
    p.sweep(folder.parent)
    assert (folder / me).read_text() == me
    p.os.close(p._held.pop(folder))
    p.sweep(folder.parent)
"""


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return private_folder()


@pytest.fixture(autouse=True)
def let_go() -> Iterator[None]:
    """What a test's process holds is given back, as at its end."""
    before = dict(private_files._held)
    yield
    give_back(before)


def give_back(but: dict[Path, int] | None = None) -> None:
    for folder in [folder for folder in private_files._held if folder not in (but or {})]:
        os.close(private_files._held.pop(folder))


def age(*folders: Path, by: float = WEEK + 60) -> None:
    for folder in folders:
        os.utime(folder, (time.time() - by,) * 2)


def used(folder: Path) -> Path:
    """Make a folder that a process has used and left."""
    (hold(folder) / "file").write_text("x")
    os.close(private_files._held.pop(folder))
    return folder


@contextmanager
def user_of(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that uses the folder."""
    command = [sys.executable, "-c", USER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_a_package_that_is_not_used_any_more_goes_with_the_next_one(tmp_path: Path) -> None:
    """A week after its last use began; a younger one stays, and so does what is not ours."""
    old, young, others = used(tmp_path / NAME), used(tmp_path / OTHER), tmp_path / "theirs"
    others.mkdir()
    age(old, others)
    age(young, by=WEEK - 60)
    assert build_package(tmp_path).is_file()
    assert (old.exists(), young.exists(), others.exists()) == (False, True, True)


@pytest.mark.process
def test_what_a_process_uses_stays_until_that_ends(private: Path) -> None:
    """However old it is: a driver whose executors fetch its zip, for example; also if it is killed."""
    with user_of(private / NAME) as process:
        age(private / NAME)
        hold(private / OTHER)
        assert (private / NAME).is_dir()
        process.send_signal(signal.SIGKILL)
        process.wait()
        age(private / NAME)
        hold(private / ("c" * 24))
        assert not (private / NAME).exists()


@pytest.mark.process
def test_users_and_sweepers_do_not_trip_over_each_other(tmp_path: Path) -> None:
    """Whoever holds a folder finds in it what it has put there, though all others sweep without regard to age."""
    folder = tmp_path / NAME
    processes = [subprocess.Popen([sys.executable, "-c", CHURN, str(folder), str(n)]) for n in range(3)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0, 0]


def test_what_an_earlier_release_has_made_gets_another_week(private: Path) -> None:
    """Its users hold nothing, so that it counts as used when it is seen first."""
    old = private / NAME
    old.mkdir()
    age(old)
    sweep(private)
    assert old.is_dir()
    age(old)
    sweep(private)
    assert not old.exists()


def test_no_link_is_followed(private: Path, tmp_path: Path) -> None:
    """Neither in the place of a folder nor inside of one."""
    outside = used(tmp_path / "outside" / NAME)
    age(outside)
    (private / NAME).symlink_to(outside)
    (used(private / OTHER) / "link").symlink_to(outside)
    age(private / OTHER)
    sweep(private)
    assert not (private / OTHER).exists()
    assert (outside / "file").read_text() == "x"


def test_a_sweep_is_bounded(private: Path) -> None:
    """What has gathered for months goes by and by."""
    folders = [used(private / f"{n:024x}") for n in range(25)]
    age(*folders)
    sweep(private)
    assert sum(folder.exists() for folder in folders) == 5
    sweep(private)
    assert not any(folder.exists() for folder in folders)


def test_a_temporary_folder_goes_with_its_block_or_is_swept(private: Path) -> None:
    """It is empty, closed to others, and stays as long as it is used; what a killed process leaves goes later."""
    with temporary_folder() as folder:
        assert (list(folder.iterdir()), folder.stat().st_mode & 0o077) == ([], 0)
        age(folder)
        sweep(private)
        assert folder.is_dir()
    assert not folder.exists()
    left = private / ("temporary-" + "d" * 32)
    left.mkdir()
    (left / "credentials").write_text("{}")
    age(left)
    hold(private / NAME)
    assert not left.exists()


def test_the_folder_of_a_script_is_held_if_it_is_ours(private: Path, tmp_path: Path) -> None:
    """A driver holds its script's folder; a user's own script has one that is no concern of ours."""
    ours, theirs = used(private / OTHER), tmp_path / "theirs"
    theirs.mkdir()
    for folder in (ours, theirs):
        hold_if_private(folder / "job.py")
    assert (ours in private_files._held, list(theirs.iterdir())) == (True, [])


def test_the_substitute_of_a_folder_that_others_opened_is_one_and_goes_too(private: Path, tmp_path: Path) -> None:
    """A process makes one, not one for each file; another process's is swept when it is a week old."""
    private.chmod(0o777)
    other = tmp_path / "airflow-provider-spark-recovery-abc"
    used(other / NAME)
    age(other / NAME, other)
    substitute = private_folder()
    assert substitute == private_folder() != private
    hold(substitute / NAME)
    assert not other.exists()
