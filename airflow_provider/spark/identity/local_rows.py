"""Digest rows that the script gives to ``createDataFrame``: all of them, and without what differs between attempts.

Tables of audits and logs get rows with the current time, or with the id of the run. Such rows differ between attempts,
but belong to the same write.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from types import NoneType
from typing import Any
from zoneinfo import ZoneInfo

from airflow_provider.core.causes import one_line
from airflow_provider.core.run_values import Value
from airflow_provider.spark.jvm.sources import LocalRows

log = logging.getLogger(__name__)

_MOST_MARKED = 1000
"""Most rows of a list that are searched for marks: larger lists are data, and looking at each value takes long."""


def described(data: Any, mark: Callable[[Value], str]) -> LocalRows | None:
    """Return the digests of rows, whatever their schema; ``None`` if they are not plain data.

    :param mark: returns why a value marks the rows of this attempt alone; empty if it does not
    """
    try:
        identity = content_digest(data)
        if not identity:
            return None
        marks: list[str] = []
        listed = isinstance(data, (list, tuple)) and len(data) <= _MOST_MARKED
        unmarked = _unmarked(data, mark, marks) if listed else data
        return LocalRows(identity, content_digest(unmarked) if marks else "", next(iter(marks), ""))
    except Exception as error:  # noqa: BLE001 - objects of the script's may do anything when they are looked at
        log.debug("Local data cannot be told apart: %s", one_line(error))
        return None


def _unmarked(value: Any, mark: Callable[[Value], str], marks: list[str]) -> Any:
    """Return a value without what marks this attempt; add the reasons to *marks*."""
    kind = type(value)
    if kind in (str, int, float) or isinstance(value, datetime):
        why = _why(value, mark)
        if why:
            marks.append(why)
            return None
    elif kind is dict:
        return {key: _unmarked(each, mark, marks) for key, each in value.items()}
    elif isinstance(value, (list, tuple)):
        names = getattr(value, "__fields__", ())  # of a Row
        return [kind.__name__, list(names), [_unmarked(each, mark, marks) for each in value]]
    return value


def _why(value: Any, mark: Callable[[Value], str]) -> str:
    try:
        return mark(value.timestamp() if isinstance(value, datetime) else value)
    except (ArithmeticError, OSError, ValueError):  # no clock shows it
        return ""


def content_digest(data: Any) -> str:
    """Return a digest of plain local data; empty for anything else.

    :raises Exception: whatever an object of the script's raises, or Arrow if it has no type for a column
    """
    module = type(data).__module__.split(".")[0]
    if isinstance(data, (list, tuple)):
        return _rows(data)
    if module == "pandas" and type(data).__name__ == "DataFrame":
        import pyarrow as pa

        return _arrow(pa.Table.from_pandas(data)) + _objects(data)
    if module == "pyarrow" and type(data).__name__ == "Table":
        return _arrow(data)
    return ""


def _objects(data: Any) -> str:
    """Return a digest of a pandas DataFrame's object columns, for values that Arrow makes equal, but PySpark without
    Arrow does not: NaN and ``None``, 1 and 1.0. Empty if it has no such columns.
    """
    columns = [data.iloc[:, at] for at in range(data.shape[1]) if data.dtypes.iloc[at].kind == "O"]
    if not columns:
        return ""
    containers = (list, tuple, dict)
    shown = (
        repr(value) if _is_plain(value, containers) else type(value).__name__ for column in columns for value in column
    )
    return "-" + hashlib.sha256("\0".join(shown).encode("utf-8", "surrogatepass")).hexdigest()


_PLAIN = {int, float, str, bool, bytes, bytearray, NoneType, Decimal, date, datetime, timedelta}


def _rows(rows: list[Any] | tuple[Any, ...]) -> str:
    from pyspark.sql import Row

    sha, containers = hashlib.sha256(), (list, tuple, dict, Row)
    for row in rows:
        if not _is_plain(row, containers):
            return ""
        sha.update(repr((type(row).__name__, row)).encode("utf-8", "surrogatepass"))
        sha.update(b"\0")
    if any(_has_local_time(row) for row in rows):  # a time of day depends on this machine's time zone
        sha.update(repr((time.tzname, time.timezone, time.altzone)).encode())
    return sha.hexdigest()


def _has_local_time(value: Any) -> bool:
    if type(value) is datetime:
        return not isinstance(value.tzinfo, (timezone, ZoneInfo))  # dateutil has one that is this machine's
    if type(value) is dict:
        return any(map(_has_local_time, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_has_local_time, value))


def _is_plain(value: Any, containers: tuple[type, ...]) -> bool:
    """Whether ``repr`` shows all of *value*: it is built from plain types only, not from classes with their names."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind not in containers:
        return False
    return all(_is_plain(item, containers) for item in (value.items() if kind is dict else value))


def _arrow(table: Any) -> str:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return hashlib.sha256(sink.getvalue()).hexdigest()
