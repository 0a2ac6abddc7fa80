"""A local disk without room costs the recording of a partition, not the job."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from airflow_provider.spark import checkpoint
from airflow_provider.spark.local_dirs import LOCAL_DIRS, NoRoom, leave_room, scratch_folder
from airflow_provider.spark.points.partition_file import write_partition
from tests.spark.attempts import Attempts
from tests.support.driver import DriverHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("x", pa.int64())])
SCRIPT = """\
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from airflow_provider.spark import checkpoint

spark = SparkSession.builder.getOrCreate()
texts = spark.range(0, 40_000, 1, 2).withColumn("text", F.sha2(F.col("id").cast("string"), 512))
rows = checkpoint(texts.withColumn("stored_through_arrow", F.parse_json(F.lit("1"))), "texts")
print("rows", rows.count(), rows.where("length(text) = 128").count())
"""


def batches() -> Iterator[pa.RecordBatch]:
    for _ in range(3):
        yield pa.RecordBatch.from_pydict({"x": list(range(100_000))}, schema=SCHEMA)


def test_a_disk_that_is_full_is_told_from_rows_that_fail() -> None:
    """What the disk refuses is one kind of error, what the computation raises goes through as it is."""
    with pytest.raises(NoRoom) as full:
        write_partition(batches(), Path("/dev/full"), SCHEMA.serialize().to_pybytes())
    assert full.value.errno == errno.ENOSPC

    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches()
        raise OSError(errno.EIO, "the script's own")

    with pytest.raises(OSError, match="the script's own") as own:
        write_partition(failing(), Path(os.devnull), SCHEMA.serialize().to_pybytes())
    assert not isinstance(own.value, NoRoom)


def test_files_lie_in_sparks_local_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an executor it is one of Spark's own local directories that can be written, and the folder goes again."""
    monkeypatch.setenv(LOCAL_DIRS, f"{tmp_path / 'gone'},{tmp_path}")
    with scratch_folder() as folder:
        assert folder.parent == tmp_path
    assert not folder.exists()


def test_files_lie_on_the_disk_that_has_most_room(
    tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several local directories, whichever Spark names first."""
    for places in ((small_disk, tmp_path), (tmp_path, small_disk)):
        monkeypatch.setenv(LOCAL_DIRS, ",".join(map(str, places)))
        with scratch_folder() as folder:
            assert folder.parent == tmp_path


@pytest.mark.integration
@pytest.mark.process
def test_a_full_local_disk_does_not_fail_the_job(driver: DriverHarness, tmp_path: Path, small_disk: Path) -> None:
    """The rows come out right, and one line says that the checkpoint is not stored, and why."""
    (tmp_path / "job.py").write_text(SCRIPT)
    driver.settings = {**driver.settings, "spark.local.dir": str(small_disk)}
    done = driver.run(tmp_path / "job.py")
    assert done.code == 0, done.log
    assert "rows 40000 40000" in done.log
    assert "checkpoint 'texts' is not stored" in done.log
    assert "the local disk does not take it: No space left on device" in done.log


@pytest.mark.spark
def test_a_full_disk_of_the_store_does_not_fail_the_job(
    spark: SparkSession, small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that takes no partition fails the write, not the job: the DataFrame is computed the ordinary way."""
    with Attempts(small_disk).attempt() as context:
        text = F.concat(*(F.sha2(F.concat(F.col("id"), F.lit(salt)), 512) for salt in "abcd"))
        rows = checkpoint(spark.range(0, 10_000, 1, 2).withColumn("text", text), "texts")
        assert rows.where("length(text) = 512").count() == 10_000
        assert not [vertex for vertex in context.master.graph.vertices.values() if vertex.finished]
    assert "checkpoint 'texts' is not stored" in caplog.text
    assert "No space left on device" in caplog.text


def test_what_is_put_back_leaves_room_for_the_jobs_own_tasks(tmp_path: Path) -> None:
    """A file that would fill the disk is refused before anything of it is fetched."""
    leave_room(tmp_path, 1)
    with pytest.raises(NoRoom, match="which tasks will need"):
        leave_room(tmp_path, 2**60)
