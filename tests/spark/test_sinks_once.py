"""Outputs of a real driver that is killed behind them, or between a commit and its event, and run again."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from airflow_provider.core import faults
from tests.support.driver import DriverHarness, Outcome

pytestmark = [pytest.mark.process, pytest.mark.integration]

KILLED = -9
CUSTOMERS = 40
ONCE = {"appended": 1, "twice": 2, "overwritten": 1, "by_digit": 1, "once": 1, "kept": 2, "changing": 1}
"""How often the rows are in each output of an uninterrupted run."""


class Job:
    """Attempts at ``jobs/sinks.py``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.target = folder, folder / "out"
        settings = {"spark.sql.warehouse.dir": str(folder / "warehouse")}
        self.driver = DriverHarness(folder, f"file://{folder}/store", settings=settings)
        (folder / "die").touch()
        self.input("orders")
        self.input("more")

    def input(self, name: str, file: int = 0) -> None:
        rows = range(2000)
        table = pa.table({"customer": [row % CUSTOMERS for row in rows], "amount": [row % 97 for row in rows]})
        table = table.slice(0, CUSTOMERS) if name == "more" else table
        (self.folder / name).mkdir(exist_ok=True)
        pq.write_table(table, self.folder / name / f"part-{file}.parquet")

    def run(self, fault: str = "", sinks: str = "once") -> Outcome:
        inputs = (str(self.folder / "orders"), str(self.folder / "more"))
        arguments = (*inputs, str(self.target), str(self.folder / "die"))
        return self.driver.run("sinks.py", *arguments, fault=fault, options={"sinks": sinks})

    def times(self) -> dict[str, int]:
        """How often the rows of a single write are in each output."""
        return {name: self.rows(name) // CUSTOMERS for name in ONCE}

    def rows(self, name: str) -> int:
        files = self.files(name)
        if name == "twice":
            return sum(len(gzip.decompress(file.read_bytes()).splitlines()) for file in files)
        if name == "overwritten":
            return sum(len(file.read_text().splitlines()) for file in files)
        return ds.dataset(files, format="orc" if name == "by_digit" else "parquet").count_rows()  # type: ignore[no-any-return]

    def files(self, name: str) -> list[Path]:
        return sorted(file for file in (self.target / name).rglob("part-*") if not file.name.startswith("."))

    def title(self, name: str) -> str:
        return "sink table kept of default" if name == "kept" else f"sink file:{self.target}/{name}"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_what_is_committed_is_not_written_again(job: Job) -> None:
    """Killed behind its outputs, the job has each of them once, two equal writes in one script included; not a file
    was touched; and what is not deterministic is written by each attempt, in the place of what the last one had added.
    """
    assert job.run().code == KILLED
    assert job.times() == ONCE
    before = {file: file.stat().st_mtime_ns for name in ONCE for file in job.files(name)}
    random = len(job.files("random"))
    second = job.run()
    assert second.code == 0, second.log
    assert job.times() == ONCE
    assert {file: file.stat().st_mtime_ns for name in ONCE for file in job.files(name)} == before
    for name in ONCE:
        assert f"{job.title(name)}: already written by attempt 1, not written again" in second.log
    assert "sink table `kept` of default: already written by attempt 1, not written again" in second.log
    assert f"{job.title('twice')} (write 2): already written by attempt 1, not written again" in second.log
    assert len(job.files("random")) == random
    removed = f"{job.title('random')}: {random} files of attempt 1 removed, because this attempt writes them again"
    assert removed in second.log


@pytest.mark.walk
def test_what_was_changed_or_differs_is_written_again(job: Job) -> None:
    """A file of an output is gone, one was added to what is overwritten, the input has grown: these are written, in the
    place of what is left of them, and the others are not. That the input has grown makes another write of the append
    that reads it, and a warning says so.
    """
    assert job.run().code == KILLED
    gone, stranger = job.files("appended")[0], job.target / "overwritten" / "part-of-others.csv"
    gone.unlink()
    gone.with_name(f".{gone.name}.crc").unlink()
    stranger.write_text("1,1\n")
    job.input("more", 1)
    # "once" is in the mode that fails where something is: removed by hand, it is written; else Spark would refuse.
    for file in [*job.files("once"), *(job.target / "once").iterdir()]:
        file.unlink(missing_ok=True)
    (job.target / "once").rmdir()
    second = job.run()
    assert second.code == 0, second.log
    assert job.rows("appended") == CUSTOMERS
    assert job.times() == {**ONCE, "changing": 3}
    assert f"{job.title('changing')}: attempt 1 added rows with a write that attempt 2 did not make" in second.log
    assert not stranger.exists()
    assert "was written by attempt 1, but 1 other files are there" in second.log
    assert f"{job.title('by_digit')}: already written by attempt 1, not written again" in second.log


@pytest.mark.walk  # so is a write of test_killed_tasks.py
def test_killed_between_a_commit_and_its_event(job: Job) -> None:
    """The append that was committed, of which nobody knows, is taken back and written again: its rows are there once,
    what comes after it is written once, and a third attempt knows all.
    """
    assert job.run(faults.AFTER_SINK_COMMIT).code == KILLED
    assert job.rows("appended") == CUSTOMERS
    second = job.run()
    assert second.code == KILLED, second.log
    assert job.times() == ONCE
    third = job.run()
    assert third.code == 0, third.log
    assert job.times() == ONCE
    assert f"{job.title('appended')}: already written by attempt 2, not written again" in third.log


@pytest.mark.walk
def test_repeat_does_what_spark_does(job: Job) -> None:
    """With ``sinks=repeat`` the second attempt appends once more, and fails where Spark refuses to overwrite."""
    assert job.run(sinks="repeat").code == KILLED
    second = job.run(sinks="repeat")
    assert second.code == 1, second.log
    assert "PATH_ALREADY_EXISTS" in second.log
    assert job.times() == {**ONCE, "appended": 2, "twice": 4, "by_digit": 2}
