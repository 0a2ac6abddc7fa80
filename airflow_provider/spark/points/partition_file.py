"""The file format of a stored partition: Parquet with columns ``c0``, ``c1``, … that may all hold NULL.

Names may repeat or be unusual in Spark, so they never reach the file. Every value is optional, at every depth: where a
struct is NULL, so are its fields in Arrow, and pyarrow writes no NULL to a field declared as required. Batches and row
groups are bounded in bytes, so that neither a partition of many gigabytes nor one of few, huge rows hits a limit of
Arrow or Parquet (2 GiB of text in a batch), or fills the memory of its reader.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider.core.errors import CorruptObject
from airflow_provider.spark.local_dirs import NoRoom

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_BYTES = 64 * 2**20
"""Most bytes in a row group, as Arrow counts them; a larger row gets one of its own."""

READ_BATCH_BYTES = 16 * 2**20
"""Bytes in a batch for the JVM if rows are alike; a larger row gets one of its own."""

_READ_BATCH_ROWS = 65536
_AGAIN = "It has to be computed again."


class _ChecksummedFile:
    """A file to write to that knows its CRC-32 and size when it is done."""

    def __init__(self, path: Path) -> None:
        with _on_disk():
            self._file = path.open("wb")
        self.checksum = 0
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self.checksum = zlib.crc32(data, self.checksum)
        with _on_disk():
            count = self._file.write(data)
        self.size += count
        return count

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        with _on_disk():
            self._file.flush()

    def close(self) -> None:
        with _on_disk():
            self._file.close()
        self.closed = True


@contextmanager
def _on_disk() -> Iterator[None]:
    """Distinguish errors of the disk from errors in computing the rows."""
    try:
        yield
    except OSError as error:
        raise NoRoom(error.errno, f"the local disk does not take it: {error.strerror}") from error


def write_partition(
    batches: Iterator[pa.RecordBatch], path: Path, schema: bytes, *, row_group_bytes: int = ROW_GROUP_BYTES
) -> tuple[int, int, int]:
    """Write all batches as one Parquet file; return rows, CRC-32 and bytes.

    :param schema: Arrow schema, serialised, for a partition without rows
    :raises NoRoom: the disk does not take it
    """
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
        for piece in _pieces(_optional(batch), row_group_bytes):
            if writer is None:
                writer = _parquet_writer(sink, piece.schema)
            if pending and pending_bytes + piece.nbytes > row_group_bytes:
                drain()
            pending.append(piece)
            pending_bytes += piece.nbytes
            rows += piece.num_rows
    if writer is None:
        empty = _optional(pa.RecordBatch.from_pylist([], schema=pa.ipc.read_schema(pa.py_buffer(schema))))
        writer = _parquet_writer(sink, empty.schema)
        pending.append(empty)
    if pending:
        drain()
    writer.close()
    sink.close()
    return rows, sink.checksum, sink.size


def read_partition(
    path: Path, *, batch_bytes: int = READ_BATCH_BYTES, checked: bool = True
) -> Iterator[pa.RecordBatch]:
    """Yield what :func:`write_partition` wrote, or Spark's own writer.

    :param checked: whether the checksum of the whole file was verified; if not, those of its pages are
    :raises CorruptObject: a checksum does not match
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, page_checksum_verification=not checked) as file:
        for group in range(file.metadata.num_row_groups):
            size = file.metadata.row_group(group)
            rows = size.num_rows * batch_bytes // max(size.total_byte_size, 1)
            try:
                yield from file.iter_batches(min(max(rows, 1), _READ_BATCH_ROWS), row_groups=[group])
            except OSError as error:
                if checked:
                    raise
                raise CorruptObject(f"A stored partition is damaged: {error}", remedy=_AGAIN) from error


def _pieces(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Yield *batch* in pieces of at most *most* bytes; a larger row makes a piece of its own."""
    if batch.nbytes <= most or batch.num_rows <= 1:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _pieces(batch.slice(0, middle), most)
    yield from _pieces(batch.slice(middle), most)


def _optional(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return *batch* with columns named c0, c1, … in which everything may be NULL; nothing is copied."""
    import pyarrow as pa

    columns = [column.cast(_optional_type(column.type)) for column in batch.columns]
    fields = [pa.field(f"c{i}", column.type) for i, column in enumerate(columns)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _optional_type(data_type: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    def optional(field: pa.Field) -> pa.Field:
        return field.with_type(_optional_type(field.type)).with_nullable(True)

    if pa.types.is_struct(data_type):
        return pa.struct([optional(field) for field in data_type])
    if pa.types.is_map(data_type):
        key = data_type.key_field
        return pa.map_(key.with_type(_optional_type(key.type)), optional(data_type.item_field))
    if pa.types.is_list(data_type):
        return pa.list_(optional(data_type.value_field))
    return data_type


def _parquet_writer(sink: Any, schema: pa.Schema) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=False,  # zstd finds repetitions; building dictionaries costs more than it saves
        write_page_checksum=True,  # Spark's own reader verifies pages
        write_statistics=False,  # bounds in a footer have no checksum, and nothing is filtered by them
        store_decimal_as_integer=True,  # up to 18 digits, as Spark itself writes them and reads them fastest
    )
