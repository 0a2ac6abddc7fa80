"""Real drivers that are killed in a write and go on where the last one was: no task's rows are computed twice that had
been committed, none are missing, and none are there twice.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from airflow_provider.core import faults
from tests.spark.killed_in_writes import KILLED, Job, expected
from tests.support.driver import DriverHarness, Outcome

pytestmark = [pytest.mark.process, pytest.mark.integration]

ROWS = list(range(1200))
EARLIER = [5000, 5001]
SETTINGS = {"spark.sql.shuffle.partitions": "24", "spark.sql.adaptive.coalescePartitions.enabled": "false"}


class Dying:
    """Attempts at ``jobs/dying_tasks.py``, which appends to what is there."""

    def __init__(self, folder: Path, how: str) -> None:
        self.folder, self.how = folder, how
        self.target, self.ran, self.die = folder / "lake" / "out", folder / "ran", folder / "die"
        self.first = ""
        self.driver = DriverHarness(folder, f"file://{folder}/store", settings=SETTINGS)
        self.target.mkdir(parents=True)
        self.ran.mkdir()
        pq.write_table(pa.table({"id": EARLIER, "half": [0, 1]}), self.target / "earlier.parquet")

    def run(self, committed: int = 0) -> Outcome:
        """An attempt.

        :param committed: how many of its tasks have to have committed before it dies; 0 if it is let alone
        """
        for file in self.ran.iterdir():
            file.unlink()
        if committed:
            self.die.write_text(str(committed))
        arguments = (str(self.target), self.how, str(self.die), str(self.ran))
        return self.driver.run("dying_tasks.py", *arguments, options={"overhead-budget": "1e6"})

    @property
    def computed(self) -> set[int]:
        return {int(file.name) for file in self.ran.iterdir()}

    @property
    def committed(self) -> set[int]:
        """The rows in the folders of tasks that have committed, wherever these lie.

        The first task counts of the first attempt only: those that go on may have written an empty file for it.
        """
        folders = [*self.target.glob("_temporary/*/task_*"), *self.target.parent.glob(".spark-recovery-*/*/task_*")]
        self.first = self.first or folders[0].parent.name
        kept = [each for each in folders if each.parent.name == self.first or not each.name.endswith("_m_000000")]
        files = [str(file) for folder in kept for file in folder.glob("part-*")]
        return set(ds.dataset(files, format="parquet").to_table(["id"])["id"].to_pylist()) if files else set()

    @property
    def ids(self) -> list[int]:
        files = [str(file) for file in self.target.glob("*.parquet")]
        return sorted(ds.dataset(files, format="parquet").to_table(["id"])["id"].to_pylist())

    @property
    def left_over(self) -> list[str]:
        return [path.name for path in self.target.parent.rglob("*") if path.name.startswith((".spark", "_temporary"))]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["table", *(pytest.param(how, marks=pytest.mark.walk) for how in ("shuffle", "map"))])
def test_three_attempts_are_killed(tmp_path: Path, how: str) -> None:
    """Each computes only what none before has committed; the fourth one writes the rest, and all is there once.

    So does one whose shuffle was put back, and with ``saveAsTable``, which gets its rows planned in advance then.
    """
    job = Dying(tmp_path, how)
    committed: set[int] = set()
    for attempt, tasks in enumerate((2, 2, 1), 1):
        killed = job.run(tasks)
        assert killed.code == KILLED, killed.log
        assert not committed & job.computed, f"attempt {attempt}"
        assert committed < job.committed
        committed = job.committed
        assert job.ids == EARLIER
    last = job.run()
    assert last.code == 0, last.log
    assert job.computed == set(ROWS) - committed
    assert job.ids == [*ROWS, *EARLIER]
    assert job.left_over == []
    kept = re.search(r"(\d+) of its 24 tasks were committed by earlier attempts", last.log)
    assert kept is not None
    assert int(kept[1]) >= 5
    if how == "table":
        assert "shuffle(key): 24 map outputs put back, 0 to compute" in last.log


@pytest.mark.walk
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "deaths",
    [
        (
            faults.AFTER_TASKS_TAKEN,
            faults.AFTER_TASKS_LEFT_OUT,
            f"{faults.AFTER_TASK_GIVEN}@2",
            faults.AFTER_SINK_COMMIT,
        ),
        *(
            pytest.param(deaths, marks=pytest.mark.walk)
            for deaths in (
                (faults.AFTER_TASKS_TAKEN, f"{faults.AFTER_COORDINATOR_SNAPSHOT}@1", f"{faults.AFTER_TASK_GIVEN}@2"),
                (faults.AFTER_TASKS_LEFT_OUT, faults.AFTER_COMMIT_MARKED, faults.AFTER_SINK_COMMIT),
                (f"{faults.AFTER_COORDINATOR_SNAPSHOT}@2", f"{faults.AFTER_TASK_GIVEN}@1"),
                (faults.AFTER_TASKS_TAKEN, faults.AFTER_TASKS_TAKEN, f"{faults.AFTER_TASK_GIVEN}@3"),
                (faults.AFTER_COMMIT_MARKED, faults.AFTER_COMMIT_MARKED),
                (faults.AFTER_TASKS_LEFT_OUT, faults.AFTER_TASKS_LEFT_OUT, faults.AFTER_SINK_COMMIT),
            )
        ),
    ],
    ids=lambda deaths: "-".join(deaths),
)
@pytest.mark.parametrize("kind", ["parts_1", pytest.param("overwrite_1", marks=pytest.mark.walk)])
def test_killed_while_it_goes_on(tmp_path: Path, kind: str, deaths: tuple[str, ...]) -> None:
    """Attempts that take tasks over are killed one after another, between any two steps; the last one is right."""
    job = Job(tmp_path, kind)
    assert job.run().code == KILLED
    for fault in deaths:
        killed = job.driver.run("killed_writes.py", str(job.target), str(job.die), kind, fault=fault)
        assert faults.killed_at(fault) in killed.log, killed.log
    last = job.run()
    assert last.code == 0, last.log
    assert job.ids(kind) == expected(kind)
    assert job.leftovers(kind) == []
    assert list(job.target.rglob(".spark-recovery-*")) == []
