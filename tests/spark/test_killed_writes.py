"""Real drivers that are killed while the tasks of a write commit, and run again: each write's rows are there once."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.support.driver import DriverHarness, Outcome

pytestmark = pytest.mark.process

KILLED = -9
ONCE = list(range(400))


class Job:
    """Attempts at ``jobs/killed_writes.py``."""

    def __init__(self, folder: Path, *kinds: str) -> None:
        self.target, self.die, self.kinds = folder / "out", folder / "die", kinds
        settings = {"spark.sql.warehouse.dir": str(self.target / "warehouse")}
        self.driver = DriverHarness(folder, f"file://{folder}/store", settings=settings)
        self.die.mkdir()
        for kind in kinds:
            (self.die / kind).touch()

    def run(self, **options: str) -> Outcome:
        return self.driver.run("killed_writes.py", str(self.target), str(self.die), *self.kinds, options=options)

    def place(self, kind: str) -> Path:
        managed = self.target / "warehouse" / kind
        return managed if managed.exists() else self.target / kind

    def ids(self, kind: str) -> list[int]:
        """The rows that a reader sees, in order."""
        files = [file for file in self.place(kind).rglob("part-*") if not _hidden(file.relative_to(self.target))]
        if kind == "rdd":
            return sorted(int(line) for file in files for line in file.read_text().splitlines())
        return sorted(ds.dataset(files, format="parquet").to_table(["id"])["id"].to_pylist()) if files else []

    def leftovers(self, kind: str) -> list[Path]:
        return [path for path in self.place(kind).iterdir() if path.name.startswith(("_temporary", ".spark-staging"))]


def _hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts)


@pytest.mark.integration
@pytest.mark.parametrize(
    "kinds",
    [
        ("append_1", "parts_2", "error_2"),
        ("random_error", "dynamic_1", "rdd"),  # the last of them, for Spark refuses to write it again
        ("insert_into", "sql_insert", "ctas"),
        pytest.param(("append_2", "error_1", "ignore_2"), marks=pytest.mark.walk),
        pytest.param(("random_2", "overwrite_2", "new_table"), marks=pytest.mark.walk),
        pytest.param(("ctas_at",), marks=pytest.mark.walk),
        pytest.param(("appended_table",), marks=pytest.mark.walk),
        pytest.param(("replaced_table",), marks=pytest.mark.walk),
        pytest.param(("random_1",), marks=pytest.mark.walk),
        pytest.param(("parts_1", "dynamic_2"), marks=pytest.mark.walk),
    ],
    ids=lambda kinds: "-".join(kinds),
)
def test_killed_with_three_of_four_tasks_committed(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """Each attempt is killed in the next write; in the end all have their rows once, and nothing else is left."""
    job = Job(tmp_path, *kinds)
    for _ in kinds:
        assert job.run().code == KILLED
    last = job.run()
    assert last.code == 0, last.log
    for kind in kinds:
        assert job.ids(kind) == ONCE, kind
        assert job.leftovers(kind) == [], kind


def test_rows_of_others_stay(tmp_path: Path) -> None:
    """What another job appends between kill and retry stays, also when its commit clears Spark's folder of pending
    tasks, which says nothing of whether this write was complete.
    """
    job = Job(tmp_path, "append_2")
    assert job.run().code == KILLED
    other = job.target / "append_2" / f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    pq.write_table(pa.table({"id": [1000, 1001], "half": [0, 1]}), other)
    shutil.rmtree(job.target / "append_2" / "_temporary")
    second = job.run()
    assert second.code == 0, second.log
    assert job.ids("append_2") == [*ONCE, 1000, 1001]
    assert "WARNING spark-recovery: sink" not in second.log


@pytest.mark.integration
def test_pending_tasks_are_never_shared(tmp_path: Path) -> None:
    """With ``sinks=repeat`` nothing is taken back, and yet a commit does not bring in the tasks of a dead driver."""
    job = Job(tmp_path, "append_1")
    assert job.run(sinks="repeat").code == KILLED
    second = job.run(sinks="repeat")
    assert second.code == 0, second.log
    assert job.ids("append_1") == ONCE
