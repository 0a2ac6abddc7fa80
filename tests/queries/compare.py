"""Whether two results have the same rows.

Rows are compared as a multiset: both sides are sorted by the columns that are compared exactly, then by the others, and
paired. A pairing in which every pair agrees proves equality; that sorting might miss one can only raise a false alarm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Tolerance:
    """How far apart two numbers of a column may be; all other values are equal or not.

    :ivar relative: of floating-point numbers, by their size
    :ivar units: of decimals, in units of the last digit that both types have
    """

    relative: float
    units: float


SAME_ENGINE = Tolerance(relative=1e-9, units=0)
"""Spark against Spark: sums of doubles depend on the order of the addends, nothing else does."""

OTHER_ENGINE = Tolerance(relative=1e-9, units=1)
"""Spark against DuckDB, which divides decimals and averages them as doubles where Spark keeps and rounds decimals."""


def spark_result(folder: Path) -> pa.Table:
    """What a Spark job has written, in the order of its files, which is that of an ``ORDER BY``."""
    assert (folder / "_SUCCESS").exists(), f"{folder} is not complete"
    return pa.concat_tables([pq.ParquetFile(file).read() for file in sorted(folder.glob("*.parquet"))])


def differences(expected: pa.Table, got: pa.Table, tolerance: Tolerance) -> list[str]:
    """Say in what two results differ, in at most five lines; an empty list if they have the same rows."""
    if expected.num_columns != got.num_columns or expected.num_rows != got.num_rows:
        return [f"expected {expected.num_rows} rows of {expected.num_columns}, got {got.num_rows} of {got.num_columns}"]
    columns = [_Column.of(*types, tolerance) for types in zip(expected.schema.types, got.schema.types, strict=True)]
    pairs = zip(_sorted(expected, columns), _sorted(got, columns), strict=True)
    found = []
    for one, other in pairs:
        if not all(column.same(a, b) for column, a, b in zip(columns, one, other, strict=True)):
            found.append(f"expected {one}, got {other}")
            if len(found) == 5:
                break
    return found


def out_of_order(rows: pa.Table, keys: Sequence[tuple[int, bool]]) -> list[str]:
    """Say where rows are not sorted by *keys*, pairs of a column's number and whether it descends; nulls are least."""
    previous: tuple[_Key, ...] | None = None
    found = []
    for row in _rows(rows):
        key = tuple(_Key(row[column], descends) for column, descends in keys)
        if previous is not None and key < previous:
            found.append(f"{row} comes after a row that it should come before")
        previous = key
    return found[:5]


@dataclass(frozen=True)
class _Column:
    """How the values of a column are compared.

    :ivar absolute: how far apart two numbers may be at least
    """

    exact: bool
    relative: float = 0.0
    absolute: float = 0.0

    @classmethod
    def of(cls, one: pa.DataType, other: pa.DataType, tolerance: Tolerance) -> _Column:
        scales = [kind.scale for kind in (one, other) if pa.types.is_decimal(kind)]
        if pa.types.is_floating(one) or pa.types.is_floating(other):
            return cls(False, tolerance.relative, tolerance.units * 10.0 ** -min(scales) if scales else 0.0)
        if len(scales) == 2 and scales[0] != scales[1] and tolerance.units:
            return cls(False, 0.0, tolerance.units * 10.0 ** -min(scales))
        return cls(True)

    def same(self, a: Any, b: Any) -> bool:
        if self.exact or a is None or b is None:
            return bool(a == b)
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return a == b or math.isclose(a, b, rel_tol=self.relative, abs_tol=self.absolute * (1 + 1e-9))


class _Key:
    """A value in an ``ORDER BY``."""

    def __init__(self, value: Any, descends: bool) -> None:
        self.value, self.descends = value, descends

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: _Key) -> bool:
        one, two = (other, self) if self.descends else (self, other)
        return bool(_sortable(one.value) < _sortable(two.value))


def _rows(table: pa.Table) -> list[Row]:
    columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else []


def _plain(value: Any) -> Any:
    """Values of different types that mean the same become equal: 2, 2.0 and 2.00; a struct or a list stays as it is."""
    return int(value) if isinstance(value, Decimal) and value == value.to_integral_value() else value


def _sorted(table: pa.Table, columns: Sequence[_Column]) -> list[Row]:
    exact = [number for number, column in enumerate(columns) if column.exact]
    others = [number for number, column in enumerate(columns) if not column.exact]
    return sorted(_rows(table), key=lambda row: [_sortable(row[number]) for number in (*exact, *others)])


def _sortable(value: Any) -> tuple[int, Any]:
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    return (1, repr(value) if isinstance(value, list | dict) else value)
