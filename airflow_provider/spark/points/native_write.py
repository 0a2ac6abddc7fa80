"""Store the partitions of a vertex with Spark's own writer: no row passes through Python, and no worker is started.

Each execution writes to a folder of its own in the partition store. As soon as a task has ended, the driver gives its
file the key of a partition; from then on it counts. Files that a dead driver did not get to are found by the next
attempt in its listing (``PartitionStore.adopt``). A partition without rows has no file: in a store of files, all of
them share one.

Spark reaches a store on S3 by ``s3a://``, with the job's own endpoint and credentials. Whether it writes there where
recovery reads is tried once per application.
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider.core.errors import RecoveryError
from airflow_provider.core.faults import AFTER_PARTITION_PUT, fault_point
from airflow_provider.core.partitions import FOLDER, StoredPartition, WriteFolder
from airflow_provider.spark.jvm.partition_write import PartitionWriter, WrittenPartition
from airflow_provider.spark.jvm.queries import schema_of
from airflow_provider.spark.jvm.relation import readable_by_jvm, written_by_jvm
from airflow_provider.spark.jvm.session_settings import settings_of_tasks
from airflow_provider.spark.points.reading import for_spark
from airflow_provider.spark.types import carrier_schema
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.partition_store import PartitionStore, file_checksum

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.jvm.execution import PreparedJob

_REQUESTS = 8
"""Concurrent requests to a store on S3, when many tasks have ended together."""


def writable_by_spark(context: RecoveryContext, df: DataFrame) -> bool:
    """Whether Spark itself can store the rows of *df*, exactly, in this store."""
    master, spark = context.master, df.sparkSession
    if not for_spark(context, carrier_schema(schema_of(df))):
        return False
    if isinstance(master.store, FileObjectStore):
        return readable_by_jvm(spark, f"{context.hadoop_root}/{master.prefix}")
    return _writes_to_s3(context, spark)


def _writes_to_s3(context: RecoveryContext, spark: Any) -> bool:
    """Whether recovery sees an object that the JVM has made. Tried once per application."""
    master, application = context.master, context.application
    options = master.request.storage
    if options.sse or options.sse_kms_key_id:
        return False  # S3A encrypts by settings of its own
    with context.lock:
        if application.writes_to_s3 is None:
            key = f"{master.prefix}/{FOLDER}/by-spark-{master.epoch}-{uuid.uuid4().hex}"
            application.writes_to_s3 = written_by_jvm(spark, f"{context.hadoop_root}/{key}", key)
            if application.writes_to_s3:
                try:
                    application.writes_to_s3 = master.store.get(key) == key.encode()
                    master.store.delete([key])
                except RecoveryError:
                    application.writes_to_s3 = False
        return application.writes_to_s3


class NativeWrite:
    """One execution's write of partitions.

    :param frame: whose rows are stored, in their carrier types
    :param stored: called in another thread with each stored partition, the seconds that its task took, and whether
        Spark has run it before
    :param failed: called in that thread with an error of the store
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
        self._store = master.store
        self._prefix = master.prefix
        self._partitions = PartitionStore(master.store, master.prefix)
        self._spark: Any = frame.sparkSession
        self._folder = folder
        key = f"{master.prefix}/{folder.key}"
        path = master.store.path_of(key) if isinstance(master.store, FileObjectStore) else None
        self._writer = PartitionWriter(frame, f"{context.hadoop_root}/{key}", path)
        self._stored = stored
        self._failed = failed
        self._empty: Path | None = None
        self._named: dict[int, StoredPartition] = {}

    def run(self, job: PreparedJob, indexes: list[int]) -> None:
        """Compute and store partitions; when this returns or raises, everything that could be stored is."""
        try:
            with settings_of_tasks(self._spark):
                self._writer.write(job.last_stage(), indexes, self._take)
        finally:
            with suppress(RecoveryError):  # what is left is swept when the job ends
                self._partitions.end_write(self._folder, self._named.values())

    def _take(self, written: Sequence[WrittenPartition]) -> None:
        """Give what tasks have written the keys of partitions."""
        new = [each for each in written if each.index not in self._named]
        if isinstance(self._store, FileObjectStore):
            for one in new:
                self._note(one, partial(self._link, one))
        elif new:
            with ThreadPoolExecutor(min(_REQUESTS, len(new))) as pool:
                names = [pool.submit(self._name, one) for one in new]
                for one, named in zip(new, names, strict=True):
                    self._note(one, named.result)

    def _note(self, written: WrittenPartition, named: Callable[[], StoredPartition]) -> None:
        try:
            partition = named()
        except Exception as error:  # noqa: BLE001 - whatever it is, this partition is not stored
            self._failed(error)
            return
        self._named[written.index] = partition
        self._stored(partition, written.millis / 1000, written.again)

    def _name(self, written: WrittenPartition) -> StoredPartition:
        """Name a file on S3, which stays where it is."""
        partition = self._partitions.name_written(
            self._folder, written.index, rows=written.rows, task=written.task, millis=written.millis
        )
        fault_point(AFTER_PARTITION_PUT)
        return partition

    def _link(self, written: WrittenPartition) -> StoredPartition:
        """Give a file on a file system another name."""
        path, size, checksum = self._writer.path_of(written.index), written.bytes, written.checksum
        if not size and written.rows:
            raise FileNotFoundError(f"Spark has written {written.rows} rows, but {path} is not there")
        if not size:
            path = self._empty = self._empty or self._writer.write_empty()
            size, checksum = path.stat().st_size, file_checksum(path)
        partition = self._folder.partition(
            written.index, rows=written.rows, checksum=checksum, bytes=size, task=written.task, millis=written.millis
        )
        self._partitions.take(partition, path)
        fault_point(AFTER_PARTITION_PUT)
        if written.bytes:
            with suppress(RecoveryError):
                name = f"{self._prefix}/{self._folder.key}/"
                self._store.delete([f"{name}{path.name}", f"{name}.{path.name}.crc"])
        return partition
