"""The type that each column type is stored as.

A column is stored as its *carrier*: a type that Arrow and Parquet hold exactly. Nearly every carrier has the same
bits in Spark's memory as the type it stands for (a year-month interval is a number of months, a user-defined type its
``sqlType``), so swapping the two changes nothing. Only calendar intervals are stored as text. An unknown type is
refused, never assumed.

Types are in Spark's JSON form, which the JVM writes in full: the JVM that holds a user-defined type says how it looks
in memory, and no user class is loaded for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TypeJson = Any
"""A data type as ``DataType.json`` writes it: a name, or a mapping for array, map, struct and user-defined types."""

CALENDAR_INTERVAL = "interval"

_AS_THEY_ARE = {
    "boolean",
    "byte",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "variant",
    CALENDAR_INTERVAL,
}
_DECIMAL = re.compile(r"decimal\(\d+,\s*\d+\)")  # no negative scale, which Parquet cannot express
_SAME_IN_MEMORY = (
    (re.compile(r"string( collate \w+)?|(var)?char\(\d+\)"), "string"),
    (re.compile(r"interval (year|month|year to month)"), "integer"),  # months
    (re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?"), "long"),  # microseconds
    (re.compile(r"time\(\d\)"), "long"),  # nanoseconds
    (re.compile(r"void"), "long"),  # always NULL; also the width of its elements in an array
)
"""Types that have the same form in memory according to Spark's ``PhysicalDataType``."""

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACEHOLDER = {"name": "c0", "type": "boolean", "nullable": True, "metadata": {}}
"""Stored for a frame without columns, so that its rows can be counted."""


class UnstorableType(Exception):
    """A type has no exact carrier; the text names it. Never leaves this package: the log reports it."""


def refusal(schema: TypeJson) -> str:
    """Return why a schema cannot be stored exactly, with column, type and remedy; empty if it can.

    :param schema: as the JVM writes it
    """
    for field in schema["fields"]:
        try:
            carrier(field["type"])
        except UnstorableType as error:
            return (
                f"column {field['name']!r} holds the type {error}, which cannot be stored exactly; "
                "leave it out or cast it before the checkpoint"
            )
    return ""


def bare(data_type: TypeJson) -> TypeJson:
    """Return the plain type whose values have exactly the same form in memory as those of *data_type*.

    Struct fields lose their metadata, and their names if these repeat or are no plain identifiers: neither reaches a
    file.

    :raises UnstorableType: there is none
    """
    if isinstance(data_type, str):
        return _bare_atom(data_type)
    kind = data_type["type"]
    if kind == "udt":
        return bare(data_type["sqlType"])
    if kind == "array":
        return {**data_type, "elementType": bare(data_type["elementType"])}
    if kind == "map":
        key = bare(data_type["keyType"])
        if CALENDAR_INTERVAL in _atoms(key):
            raise UnstorableType("map keyed by calendar intervals")
        return {**data_type, "keyType": key, "valueType": bare(data_type["valueType"])}
    if kind == "struct":
        return _bare_struct(data_type["fields"])
    raise UnstorableType(kind)


def _bare_atom(name: str) -> str:
    if name in _AS_THEY_ARE or _DECIMAL.fullmatch(name):
        return name
    for pattern, plain in _SAME_IN_MEMORY:
        if pattern.fullmatch(name):
            return plain
    raise UnstorableType(name)


def _bare_struct(fields: list[dict[str, Any]]) -> TypeJson:
    if not fields:
        raise UnstorableType("struct<>")
    names = [field["name"] for field in fields]
    clear = all(map(_PLAIN_NAME.fullmatch, names)) and len({name.lower() for name in names}) == len(names)
    return {
        "type": "struct",
        "fields": [
            {
                "name": field["name"] if clear else f"f{i}",
                "type": bare(field["type"]),
                "nullable": field["nullable"],
                "metadata": {},
            }
            for i, field in enumerate(fields)
        ],
    }


def carrier(data_type: TypeJson) -> TypeJson:
    """Return the type that *data_type* is stored as: :func:`bare`, with text instead of calendar intervals.

    :raises UnstorableType: there is none
    """
    return _intervals_as_text(bare(data_type))


def _intervals_as_text(data_type: TypeJson) -> TypeJson:
    if isinstance(data_type, str):
        return "string" if data_type == CALENDAR_INTERVAL else data_type
    if data_type["type"] == "array":
        return {**data_type, "elementType": _intervals_as_text(data_type["elementType"])}
    if data_type["type"] == "map":
        return {**data_type, "valueType": _intervals_as_text(data_type["valueType"])}
    fields = [{**field, "type": _intervals_as_text(field["type"])} for field in data_type["fields"]]
    return {"type": "struct", "fields": fields}


def with_nulls(data_type: TypeJson) -> TypeJson:
    """Return a plain type with NULL allowed at every depth, which is the type that Spark gives to a cast from text."""
    if isinstance(data_type, str):
        return data_type
    if data_type["type"] == "array":
        return {**data_type, "elementType": with_nulls(data_type["elementType"]), "containsNull": True}
    if data_type["type"] == "map":
        return {**data_type, "valueType": with_nulls(data_type["valueType"]), "valueContainsNull": True}
    fields = [{**field, "type": with_nulls(field["type"]), "nullable": True} for field in data_type["fields"]]
    return {"type": "struct", "fields": fields}


def carrier_schema(schema: TypeJson) -> StructType:
    """Return the schema of a stored partition: columns c0, c1, … of carrier types.

    :raises UnstorableType: a column has no carrier
    """
    from pyspark.sql.types import StructType

    fields = [
        {"name": f"c{i}", "type": carrier(field["type"]), "nullable": field["nullable"], "metadata": {}}
        for i, field in enumerate(schema["fields"])
    ]
    return StructType.fromJson({"type": "struct", "fields": fields or [_PLACEHOLDER]})


def natively_readable(schema: StructType) -> bool:
    """Whether Spark's own Parquet reader returns every column of a :func:`carrier_schema` exactly.

    Variants are read through Arrow only, because Spark's optimizer rewrites scans of variants.
    """
    return "variant" not in _atoms(schema.jsonValue())


def _atoms(data_type: TypeJson) -> Iterator[str]:
    if isinstance(data_type, str):
        yield data_type
    elif data_type["type"] == "array":
        yield from _atoms(data_type["elementType"])
    elif data_type["type"] == "map":
        yield from _atoms(data_type["keyType"])
        yield from _atoms(data_type["valueType"])
    else:
        for field in data_type["fields"]:
            yield from _atoms(field["type"])
