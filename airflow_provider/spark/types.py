"""Which column types survive the way through Arrow and Parquet exactly, and which of those Spark's reader may read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_NATIVE = {
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
}
"""Types that Spark's own Parquet reader takes from Arrow's writer as they are; decimals too."""

_ARROW_ONLY = ("interval day", "interval hour", "interval minute", "interval second")
"""Day-time intervals: their Parquet form is Arrow's own, so only Arrow reads it back."""


def unstorable(schema: StructType) -> str:
    """Return why the schema cannot be stored exactly, naming column, type and remedy; empty text if it can."""
    if not schema.fields:
        return "it has no columns"
    for field in schema.fields:
        bad = _first(field.dataType, lambda text: not _native(text) and not text.startswith(_ARROW_ONLY))
        if bad:
            return (
                f"column {field.name!r} holds the type {bad}, which cannot be stored exactly; "
                "leave it out or cast it before the checkpoint"
            )
    return ""


def natively_readable(schema: StructType) -> bool:
    """Whether Spark's own Parquet reader gives every column back exactly."""
    return not any(_first(field.dataType, lambda text: not _native(text)) for field in schema.fields)


def _native(text: str) -> bool:
    return text in _NATIVE or text.startswith("decimal(")


def _first(data_type: DataType, unwanted: Callable[[str], bool]) -> str:
    """Return the first type inside *data_type*, itself included, whose SQL name is unwanted."""
    from pyspark.sql.types import ArrayType, MapType, StructType, UserDefinedType

    if isinstance(data_type, UserDefinedType):
        return data_type.typeName()
    if isinstance(data_type, ArrayType):
        return _first(data_type.elementType, unwanted)
    if isinstance(data_type, MapType):
        return _first(data_type.keyType, unwanted) or _first(data_type.valueType, unwanted)
    if isinstance(data_type, StructType):
        if not data_type.fields:
            return "struct<>"
        return next((bad for field in data_type.fields if (bad := _first(field.dataType, unwanted))), "")
    text = data_type.simpleString()
    return text if unwanted(text) else ""
