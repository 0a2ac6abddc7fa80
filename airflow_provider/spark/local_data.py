"""Fingerprints of rows that a script hands to ``createDataFrame``.

Spark turns them into an RDD that tells nothing of its content, so they are looked at on their way in. Only plain local
data is: lists and tuples, pandas DataFrames, Arrow tables.
"""

from __future__ import annotations

import hashlib
from typing import Any


def content_digest(data: Any) -> str:
    """Return a digest of plain local data, or empty text for anything else."""
    module = type(data).__module__.split(".")[0]
    if isinstance(data, (list, tuple)):
        return _rows(data)
    if module == "pandas" and type(data).__name__ == "DataFrame":
        import pyarrow as pa

        try:
            return _arrow(pa.Table.from_pandas(data))
        except (pa.ArrowException, TypeError, ValueError):
            return ""
    if module == "pyarrow" and type(data).__name__ == "Table":
        return _arrow(data)
    return ""


_PLAIN = {"int", "float", "str", "bool", "bytes", "bytearray", "NoneType", "Decimal", "date", "datetime", "timedelta"}
_CONTAINERS = {"list", "tuple", "dict", "Row"}


def _rows(rows: list[Any] | tuple[Any, ...]) -> str:
    sha = hashlib.sha256()
    for row in rows:
        if not _is_plain(row):
            return ""
        sha.update(repr((type(row).__name__, row)).encode("utf-8", "surrogatepass"))
        sha.update(b"\0")
    return sha.hexdigest()


def _is_plain(value: Any) -> bool:
    """Whether ``repr`` shows all of *value*: built from plain types only."""
    name = type(value).__name__
    if name in _PLAIN:
        return True
    if name not in _CONTAINERS:
        return False
    return all(_is_plain(item) for item in (value.items() if name == "dict" else value))


def _arrow(table: Any) -> str:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return hashlib.sha256(sink.getvalue()).hexdigest()
