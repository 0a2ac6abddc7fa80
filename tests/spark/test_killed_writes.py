"""Real drivers that are killed while the tasks of a write commit, and run again: each write's rows are there once."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.killed_in_writes import KILLED, ONCE, Job, expected

pytestmark = pytest.mark.process


@pytest.mark.integration
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kinds",
    # Without a catalog that outlives a driver, what makes a table stands last: Spark refuses to make it again.
    [
        ("append_1", "parts_2", "default_2"),
        *(
            pytest.param(kinds, marks=pytest.mark.walk)
            for kinds in (
                ("insert_into_2", "sql_insert_1", "ctas_1"),
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
                ("hive_2", "hive_converted_1"),
            )
        ),
        ("hive_1", "hive_converted_2", "hive_saved_1"),  # Spark makes these tables before their files
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
