"""The executors' part: write a partition to the store, and read one back.

Runs in Spark's Python workers inside ``mapInArrow``. A task whose store does not answer fails, so that Spark runs it
again, as often as it runs any task. Its last try, and a task that the store refuses, report the failure instead, and
the driver computes the vertex the ordinary way: the store alone never fails a job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow_provider.core.errors import CorruptObject, RecoveryError, StoreUnavailable
from airflow_provider.core.faults import AFTER_PARTITION_PUT, fault_point
from airflow_provider.core.options import StorageOptions
from airflow_provider.core.partitions import WRITTEN, StoredPartition
from airflow_provider.spark.local_dirs import NoRoom, scratch_folder
from airflow_provider.spark.points.partition_file import read_partition, write_partition

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider.storage.partition_store import PartitionStore

MANIFEST_SCHEMA = "key string, bytes long, error string"
"""What a write task returns: the object that it stored, or why it could not."""

LAYOUT_PROPERTY = "spark.recovery.partition.layout"
PARALLELISM_PROPERTY = "spark.recovery.partition.parallelism"
"""Known only when the plan has run its shuffles, so they travel as local properties of the job, not in the closure."""
TRIES_PROPERTY = "spark.recovery.partition.tries"
"""How often Spark runs a failing task."""


@dataclass(frozen=True)
class StoreLocation:
    """What an executor needs to open a job's partition store; holds no secret."""

    event_store: str
    prefix: str
    options: dict[str, Any] = field(default_factory=dict, hash=False)

    def open(self) -> PartitionStore:
        """Return the partition store, one per process."""
        return _open(self.event_store, self.prefix, tuple(sorted(self.options.items())))


@cache
def _open(event_store: str, prefix: str, options: tuple[tuple[str, Any], ...]) -> PartitionStore:
    from airflow_provider.storage.partition_store import PartitionStore
    from airflow_provider.storage.uris import open_store

    return PartitionStore(open_store(event_store, StorageOptions.from_mapping(dict(options))), prefix)


@dataclass(frozen=True)
class Place:
    """The partition that a task stores, in the words of :class:`StoredPartition`."""

    vertex: str
    layout: str
    index: int
    parallelism: int
    epoch: int
    task: int


def store_partition(
    open_store: Callable[[], PartitionStore], place: Place, batches: Iterator[pa.RecordBatch], schema: bytes
) -> tuple[StoredPartition, Exception | None]:
    """Store all batches as one partition.

    :param open_store: called once the batches are computed
    :param schema: Arrow schema, serialised, for a partition without rows
    :returns: the partition, and why it is not stored; ``None`` if it is
    """
    started = time.monotonic()

    def made(rows: int, checksum: int, size: int) -> StoredPartition:
        millis = int((time.monotonic() - started) * 1000)
        return StoredPartition(**vars(place), rows=rows, checksum=f"{checksum:08x}", millis=millis, bytes=size)

    try:
        with scratch_folder() as folder:
            path = folder / "partition.parquet"
            partition = made(*write_partition(batches, path, schema))
            try:
                open_store().put(partition, path)
            except (RecoveryError, OSError) as failure:
                return partition, failure
            fault_point(AFTER_PARTITION_PUT)
            return partition, None
    except NoRoom as failure:
        return made(0, 0, 0), failure


def stored_rows(store: PartitionStore, partition: StoredPartition) -> Iterator[pa.RecordBatch]:
    """Yield what :func:`store_partition` or Spark's own writer has stored.

    :raises CorruptObject: it is damaged, which is marked in the store, so that the next attempt computes it again
    """
    if partition.suffix == WRITTEN and not partition.content_bytes:
        return
    with scratch_folder() as folder:
        path = folder / "partition.parquet"
        try:
            store.fetch(partition, path)
            yield from read_partition(path, checked=partition.suffix != WRITTEN)
        except CorruptObject:
            store.mark_corrupt(partition)
            raise


def partition_writer(
    location: StoreLocation,
    vertex: str,
    epoch: int,
    schema: bytes,
    report: Callable[[str, int, str, float, float, bool], None],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that stores the partition it is given and yields one row of :data:`MANIFEST_SCHEMA`.

    :param schema: Arrow schema, serialised, for partitions without rows
    :param report: called in the task as ``report(key, bytes, error, seconds, storing, again)``: its seconds, those of
        them spent on encoding and storing, and whether Spark has run it before; reaches the driver as the task ends
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None  # noqa: S101 - Spark sets it in every task
        place = Place(
            vertex=vertex,
            layout=str(context.getLocalProperty(LAYOUT_PROPERTY)),
            index=context.partitionId(),
            parallelism=int(str(context.getLocalProperty(PARALLELISM_PROPERTY))),
            epoch=epoch,
            task=context.taskAttemptId(),
        )
        started, waited = time.monotonic(), _Waited(batches)
        partition, failure = store_partition(location.open, place, waited, schema)
        tries = int(str(context.getLocalProperty(TRIES_PROPERTY)))
        if isinstance(failure, StoreUnavailable) and context.attemptNumber() + 1 < tries:
            raise failure
        error = str(failure) if failure is not None else ""
        key, seconds = "" if error else partition.key, time.monotonic() - started
        report(key, partition.bytes, error, seconds, seconds - waited.seconds, context.attemptNumber() > 0)
        yield pa.RecordBatch.from_pydict({"key": [key], "bytes": [partition.bytes], "error": [error]})

    return write


class _Waited:
    """An iterator that measures how long its user waits for it."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.seconds = 0.0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        started = time.monotonic()
        try:
            return next(self._batches)
        finally:
            self.seconds += time.monotonic() - started


def partition_reader(
    location: StoreLocation, partitions: tuple[str, ...], sizes: tuple[int, ...]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that turns rows holding an index into the rows of that stored partition.

    A damaged object fails the task with an error that names it; see :func:`stored_rows`.
    """

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = location.open()
        for batch in batches:
            for index in batch.column(0).to_pylist():
                partition = StoredPartition.from_key(partitions[index], sizes[index])
                assert partition is not None  # noqa: S101 - the driver passes only keys that it has parsed
                yield from stored_rows(store, partition)

    return read
