"""Store the partitions of a vertex with Spark's own writer: no row passes through Python, and no worker is started.

Each execution writes to a folder of its own in the partition store. As soon as a task has ended, the driver gives its
file the key of a partition, under which it counts. What a driver that died has not come to, the next attempt's finds
in its listing (``PartitionStore.adopt``). A partition without rows has no file: all of these share one.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider.core.errors import RecoveryError
from airflow_provider.core.faults import AFTER_PARTITION_PUT, fault_point
from airflow_provider.core.partitions import StoredPartition, WriteFolder
from airflow_provider.spark.jvm.partition_write import PartitionWriter, WrittenPartition
from airflow_provider.spark.jvm.queries import schema_of
from airflow_provider.spark.jvm.relation import readable_by_jvm
from airflow_provider.spark.jvm.session_settings import settings_of_tasks
from airflow_provider.spark.points.reading import for_spark
from airflow_provider.spark.types import carrier_schema
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.partition_store import PartitionStore, file_checksum

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.jvm.execution import PreparedJob


def writable_by_spark(context: RecoveryContext, df: DataFrame) -> bool:
    """Whether Spark itself can store the rows of *df*, exactly, in this store."""
    master = context.master
    return (
        isinstance(master.store, FileObjectStore)
        and for_spark(context, carrier_schema(schema_of(df)))
        and readable_by_jvm(df.sparkSession, f"{context.hadoop_root}/{master.prefix}")
    )


class NativeWrite:
    """One execution's write of partitions.

    :param frame: whose rows are stored, on their carriers
    :param stored: called in another thread with each partition that is stored, the seconds that its task took, and
        whether Spark has run it before
    :param failed: called there with what the store has failed with
    """

    def __init__(
        self,
        context: RecoveryContext,
        frame: DataFrame,
        folder: WriteFolder,
        stored: Callable[[StoredPartition, float, bool], None],
        failed: Callable[[Exception], None],
    ) -> None:
        master = context.master
        assert isinstance(master.store, FileObjectStore)  # noqa: S101 - see writable_by_spark
        self._store = master.store
        self._prefix = master.prefix
        self._partitions = PartitionStore(master.store, master.prefix)
        self._spark: Any = frame.sparkSession
        self._folder = folder
        key = f"{master.prefix}/{folder.key}"
        self._writer = PartitionWriter(frame, f"{context.hadoop_root}/{key}", master.store.path_of(key))
        self._stored = stored
        self._failed = failed
        self._empty: Path | None = None

    def run(self, job: PreparedJob, indexes: list[int]) -> None:
        """Compute and store partitions; all that could be stored is, when this returns or raises."""
        try:
            with settings_of_tasks(self._spark):
                self._writer.write(job.last_stage(), indexes, self._take)
        finally:
            with suppress(RecoveryError):  # what is left is swept when the job ends
                self._partitions.end_write(self._folder)

    def _take(self, written: WrittenPartition) -> None:
        """Give what a task has written the key of a partition."""
        try:
            path, size, checksum = self._writer.path_of(written.index), written.bytes, written.checksum
            if not size and written.rows:
                raise FileNotFoundError(f"Spark has written {written.rows} rows, but {path} is not there")
            if not size:
                path = self._empty = self._empty or self._writer.write_empty()
                size, checksum = path.stat().st_size, file_checksum(path)
            partition = self._folder.partition(
                written.index,
                rows=written.rows,
                checksum=checksum,
                size=size,
                task=written.task,
                millis=written.millis,
            )
            self._partitions.take(partition, path)
        except Exception as error:  # noqa: BLE001 - whatever it is, this partition is not stored
            self._failed(error)
            return
        fault_point(AFTER_PARTITION_PUT)
        self._stored(partition, written.millis / 1000, written.again)
        if written.bytes:
            with suppress(RecoveryError):
                name = f"{self._prefix}/{self._folder.key}/"
                self._store.delete([f"{name}{path.name}", f"{name}.{path.name}.crc"])
