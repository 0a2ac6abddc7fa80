"""A partition's file holds exactly what it was given, in pieces of bounded size."""

from __future__ import annotations

import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.spark.points.partition_file import read_partition, write_partition

_TEXT = pa.schema([pa.field("t", pa.string(), nullable=False)])
_LIMIT = 10_000


def write(path: Path, *batches: pa.RecordBatch, schema: pa.Schema = _TEXT) -> tuple[int, int, int]:
    return write_partition(iter(batches), path, schema.serialize().to_pybytes(), row_group_bytes=_LIMIT)


@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param([[10] * 5000], id="one large batch of small rows"),
        pytest.param([[10] * 7] * 700, id="many small batches"),
        pytest.param([[3000] * 50, [3000] * 50], id="rows of a third of the limit"),
        pytest.param([[1, 50_000, 1, 1, 20_000] * 3], id="rows above the limit between small ones"),
    ],
)
def test_row_groups_and_batches_are_bounded(tmp_path: Path, lengths: list[list[int]]) -> None:
    """None is larger than the limit, unless a single row is; rows keep their order and number."""
    path = tmp_path / "partition.parquet"
    texts = [[f"{i}".ljust(length, "x") for i, length in enumerate(batch)] for batch in lengths]
    rows, checksum, size = write(path, *(pa.record_batch([pa.array(batch)], _TEXT) for batch in texts))
    flat = [text for batch in texts for text in batch]
    assert (rows, size, checksum) == (len(flat), path.stat().st_size, zlib.crc32(path.read_bytes()))
    metadata = pq.ParquetFile(path).metadata
    for group in (metadata.row_group(i) for i in range(metadata.num_row_groups)):
        assert group.total_byte_size <= _LIMIT * 1.1 or group.num_rows == 1
    assert metadata.num_row_groups <= 2 * sum(map(len, flat)) // _LIMIT + 2 * len(lengths[0]) // 5 + 2
    batches = list(read_partition(path, batch_bytes=1000))
    assert all(batch.nbytes <= 2500 or batch.num_rows == 1 for batch in batches)
    assert [text for batch in batches for text in batch.column(0).to_pylist()] == flat


def _never(name: str, data_type: pa.DataType, metadata: dict[bytes, bytes] | None = None) -> pa.Field:
    return pa.field(name, data_type, nullable=False, metadata=metadata)


def test_null_above_values_that_are_never_null(tmp_path: Path) -> None:
    """A struct or variant that is NULL is stored as Spark sends it: with NULL in fields that are said never to be."""
    absent = pa.array([False, True])
    variant = pa.StructArray.from_arrays(
        [pa.array([b"\0", None]), pa.array([b"\1", None])],
        fields=[_never("value", pa.binary()), _never("metadata", pa.binary(), {b"variant": b"true"})],
        mask=absent,
    )
    struct = pa.StructArray.from_arrays(
        [pa.array([7, None]), variant], fields=[_never("x", pa.int64()), pa.field("v", variant.type)], mask=absent
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2]), struct)
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2]), pa.array(["a", "b"]), struct)
    batch = pa.RecordBatch.from_arrays([variant, struct, lists, maps], names=["x", "x", "", "y"])
    write(tmp_path / "partition.parquet", batch, schema=batch.schema)
    (back,) = read_partition(tmp_path / "partition.parquet")
    assert back.to_pydict() == {f"c{i}": batch.column(i).to_pylist() for i in range(4)}
    assert back.column(0).to_pylist() == [{"value": b"\0", "metadata": b"\1"}, None]
    assert back.schema.field("c1").type.field("v").type.field("metadata").metadata[b"variant"] == b"true"


def test_a_partition_without_rows_has_its_columns(tmp_path: Path) -> None:
    """Without a batch to learn it from, the schema is the one that was given."""
    path = tmp_path / "partition.parquet"
    schema = pa.schema([("x", pa.int32()), ("x", pa.struct([pa.field("y", pa.string(), nullable=False)]))])
    assert write(path, schema=schema)[0] == 0
    assert pq.read_schema(path).names == ["c0", "c1"]
    assert list(read_partition(path)) == []
