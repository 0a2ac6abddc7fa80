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
OLD, OTHER_PARTITION = 9000, 9007
"""Rows that are there before an overwrite; of the second it is in a partition that is not written."""


class Job:
    """Attempts at ``jobs/killed_writes.py``."""

    def __init__(self, folder: Path, *kinds: str) -> None:
        self.target, self.die, self.kinds = folder / "out", folder / "die", kinds
        settings = {"spark.sql.warehouse.dir": str(self.target / "warehouse")}
        self.driver = DriverHarness(folder, f"file://{folder}/store", settings=settings)
        self.die.mkdir()
        for kind in kinds:
            (self.die / kind).touch()
            if any(word in kind for word in ("over", "dynamic")):
                self._fill(kind)

    def _fill(self, kind: str) -> None:
        """Put rows where an overwrite goes, as another writer would."""
        parts = any(word in kind for word in ("dynamic", "static", "part"))
        for folder, row in (("half=0", OLD), ("half=7", OTHER_PARTITION)) if parts else (("", OLD),):
            place = self.target / kind / folder
            place.mkdir(parents=True)
            table = pa.table({"id": [row]} if parts else {"id": [row], "half": [0]})
            pq.write_table(table, place / "old-part.parquet")

    def run(self, **options: str) -> Outcome:
        return self.driver.run("killed_writes.py", str(self.target), str(self.die), *self.kinds, options=options)

    def place(self, kind: str) -> Path:
        managed = self.target / "warehouse" / kind
        return managed if managed.exists() else self.target / kind

    def ids(self, kind: str) -> list[int]:
        """The rows that a reader sees, in order."""
        found = (file for pattern in ("part-*", "old-part*") for file in self.place(kind).rglob(pattern))
        files = [file for file in found if not _hidden(file.relative_to(self.target))]
        if kind.startswith("rdd"):
            return sorted(int(line) for file in files for line in file.read_text().splitlines())
        return sorted(ds.dataset(files, format="parquet").to_table(["id"])["id"].to_pylist()) if files else []

    def leftovers(self, kind: str) -> list[Path]:
        return [path for path in self.place(kind).iterdir() if path.name.startswith(("_temporary", ".spark-staging"))]


def _hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts)


def expected(kind: str) -> list[int]:
    """A static overwrite takes all that was there; others take what is in the partitions that they write."""
    kept = kind.startswith(("dynamic", "insert_over_dynamic", "sql_over_dynamic", "sql_over_one_part"))
    return [*ONCE, OTHER_PARTITION] if kept else ONCE


@pytest.mark.integration
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kinds",
    # Without a catalog that outlives a driver, what makes a table stands last: Spark refuses to make it again.
    [
        ("append_1", "parts_2", "default_2"),
        ("insert_into_2", "sql_insert_1", "ctas_1"),
        *(
            pytest.param(kinds, marks=pytest.mark.walk)
            for kinds in (
                ("sql_over_1", "sql_over_dynamic_2", "insert_over_2", "sql_insert_parts_1", "new_parts_table_2"),
                ("random_error_1", "dynamic_1", "rdd_1"),
                ("sql_over_2", "sql_over_dynamic_1", "sql_over_static_1", "sql_over_static_2", "ctas_parts_1"),
                ("sql_over_one_part_1", "sql_over_one_part_2", "insert_over_1", "ctas_parts_2"),
                ("insert_over_dynamic_1", "insert_over_dynamic_2", "insert_into_parts_1", "new_parts_table_1"),
                ("insert_into_parts_2", "sql_insert_parts_2", "overwrite_1", "new_table_1"),
                ("added_table_1", "added_parts_table_1", "appended_parts_table_1"),
                ("added_table_2", "added_parts_table_2", "appended_parts_table_2"),
                ("insert_into_1", "sql_insert_2", "ctas_2"),
                ("ctas_at_2",),
                ("appended_table_1",),
                ("ignore_1", "replaced_table_1"),
                ("append_2", "error_1", "ignore_2", "ctas_at_1"),
                ("random_2", "overwrite_2", "new_table_2"),
                ("random_1", "parts_1", "appended_table_2"),
                ("dynamic_2", "replaced_table_2"),
            )
        ),
    ],
    ids=lambda kinds: "-".join(kinds),
)
def test_killed_with_three_of_four_tasks_committed(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """Each attempt is killed in the next write; in the end all have their rows once, and nothing else is left."""
    job = Job(tmp_path, *kinds)
    for kind in kinds:
        killed = job.run()
        assert killed.code == KILLED, f"{kind}: {killed.log}"
    last = job.run()
    assert last.code == 0, last.log
    for kind in kinds:
        assert job.ids(kind) == expected(kind), kind
        assert job.leftovers(kind) == [], kind


@pytest.mark.integration
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
