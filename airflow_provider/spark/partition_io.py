"""What executors do: write a partition to the store, and read one back.

Runs in Spark's Python workers inside ``mapInArrow``. A partition is one Parquet file with columns ``c0``, ``c1``, …
(names may repeat or be odd in Spark, so they never reach the file). The writer never fails the task because of the
store: it reports the failure, and the driver computes the vertex the ordinary way.
"""

from __future__ import annotations

import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider.recovery.errors import CorruptObject, RecoveryError
from airflow_provider.recovery.faults import AFTER_PARTITION_PUT, fault_point
from airflow_provider.recovery.options import StorageOptions
from airflow_provider.recovery.partitions import StoredPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider.storage.partition_store import PartitionStore

MANIFEST_SCHEMA = "key string, bytes long, error string"
"""What a write task returns: the object it stored, or why it could not."""

LAYOUT_PROPERTY = "spark.recovery.partition.layout"
PARALLELISM_PROPERTY = "spark.recovery.partition.parallelism"
"""Known only when the plan has run its shuffles, so they travel as local properties of the job, not in the closure."""

_ROW_GROUP_BYTES = 64 * 2**20


@dataclass(frozen=True)
class StoreLocation:
    """All that an executor needs to open a job's partition store; holds no secret."""

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


class _ChecksummedFile:
    """A file to write to that knows its CRC-32 and size when it is done."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self.checksum = 0
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self.checksum = zlib.crc32(data, self.checksum)
        count = self._file.write(data)
        self.size += count
        return count

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()
        self.closed = True


def partition_writer(
    location: StoreLocation, vertex: str, epoch: int, schema: bytes, report: Callable[[str, int, str], None]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that stores the partition it is given and yields one row of :data:`MANIFEST_SCHEMA`.

    :param schema: Arrow schema, serialised, for partitions without rows
    :param report: called as ``report(key, bytes, error)`` in the task; reaches the driver as the task ends
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None  # noqa: S101 - Spark sets it in every task
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="spark-recovery-") as folder:
            path = Path(folder) / "partition.parquet"
            key, size, error = "", 0, ""
            rows, checksum, size = _write_parquet(batches, path, schema)
            partition = StoredPartition(
                vertex=vertex,
                layout=str(context.getLocalProperty(LAYOUT_PROPERTY)),
                index=context.partitionId(),
                parallelism=int(str(context.getLocalProperty(PARALLELISM_PROPERTY))),
                epoch=epoch,
                task=context.taskAttemptId(),
                rows=rows,
                checksum=f"{checksum:08x}",
                millis=int((time.monotonic() - started) * 1000),
                bytes=size,
            )
            try:
                location.open().put(partition, path)
            except (RecoveryError, OSError) as failure:
                error = str(failure)
            else:
                key = partition.key
                fault_point(AFTER_PARTITION_PUT)
        report(key, size, error)
        yield pa.RecordBatch.from_pydict({"key": [key], "bytes": [size], "error": [error]})

    return write


def _write_parquet(batches: Iterator[pa.RecordBatch], path: Path, schema: bytes) -> tuple[int, int, int]:
    """Write all batches as one Parquet file; return rows, CRC-32 and bytes."""
    import pyarrow as pa

    sink = _ChecksummedFile(path)
    writer: Any = None
    pending: list[pa.RecordBatch] = []
    pending_bytes = rows = 0

    def drain() -> None:
        nonlocal pending_bytes
        table = pa.Table.from_batches(pending)
        writer.write_table(table, row_group_size=max(table.num_rows, 1))
        pending.clear()
        pending_bytes = 0

    for batch in batches:
        plain = pa.RecordBatch.from_arrays(batch.columns, schema=_plain(batch.schema))
        if writer is None:
            writer = _parquet_writer(sink, plain.schema)
        pending.append(plain)
        pending_bytes += plain.nbytes
        rows += plain.num_rows
        if pending_bytes >= _ROW_GROUP_BYTES:
            drain()
    if writer is None:
        arrow_schema = pa.ipc.read_schema(pa.py_buffer(schema))
        writer = _parquet_writer(sink, arrow_schema)
        pending.append(pa.RecordBatch.from_pylist([], schema=arrow_schema))
    if pending:
        drain()
    writer.close()
    sink.close()
    return rows, sink.checksum, sink.size


def _parquet_writer(sink: Any, schema: pa.Schema) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=False,  # zstd finds what repeats; building dictionaries costs more than it saves
        write_page_checksum=True,  # Spark's own reader verifies pages
        write_statistics=False,  # bounds in a footer have no checksum, and nothing is filtered by them
        store_decimal_as_integer=True,  # up to 18 digits, as Spark itself writes them and reads them fastest
    )


def _plain(schema: pa.Schema) -> pa.Schema:
    """Rename the columns to c0, c1, …; nothing else."""
    import pyarrow as pa

    return pa.schema([column.with_name(f"c{i}") for i, column in enumerate(schema)])


def partition_reader(
    location: StoreLocation, partitions: tuple[str, ...], sizes: tuple[int, ...]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that turns rows holding an index into the rows of that stored partition.

    A damaged object is marked in the store, so that the next attempt computes it again, and the task fails with an
    error that names it.
    """

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        store = location.open()
        for batch in batches:
            for index in batch.column(0).to_pylist():
                partition = StoredPartition.from_key(partitions[index], sizes[index])
                assert partition is not None  # noqa: S101 - the driver passes only keys that it has parsed
                with tempfile.TemporaryDirectory(prefix="spark-recovery-") as folder:
                    path = Path(folder) / "partition.parquet"
                    try:
                        store.fetch(partition, path)
                    except CorruptObject:
                        store.mark_corrupt(partition)
                        raise
                    with pq.ParquetFile(path) as file:
                        for part in file.iter_batches():
                            yield pa.RecordBatch.from_arrays(part.columns, schema=_plain(part.schema))

    return read
