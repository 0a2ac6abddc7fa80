"""The comparison of results finds what is wrong, and lets pass what is not."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.queries.compare import OTHER_ENGINE, SAME_ENGINE, Tolerance, differences, out_of_order
from tests.queries.query_outputs import output_differences


def table(*columns: list[Any], types: tuple[pa.DataType, ...] = ()) -> pa.Table:
    arrays = [pa.array(values, types[number] if types else None) for number, values in enumerate(columns)]
    return pa.table(arrays, names=[f"c{number}" for number in range(len(columns))])


def test_the_order_of_rows_does_not_matter() -> None:
    """Rows are a multiset."""
    assert differences(table([1, 2, 2], ["a", "b", "b"]), table([2, 1, 2], ["b", "a", "b"]), SAME_ENGINE) == []


@pytest.mark.parametrize(
    "got",
    [
        table([1, 2], ["a", "b"]),
        table([1, 1, 2], ["a", "b", "b"]),
        table([1, 2, 2], ["a", "b", None]),
        table([1, 2, 2], ["b", "a", "b"]),
        table([1, 2, 2]),
    ],
)
def test_other_rows_are_told(got: pa.Table) -> None:
    """A row too few, another number of copies, a null, values of two rows exchanged, a column too few."""
    assert differences(table([1, 2, 2], ["a", "b", "b"]), got, SAME_ENGINE) != []


@pytest.mark.parametrize(
    ("got", "tolerance", "same"),
    [
        ([0.3, None, float("nan")], SAME_ENGINE, True),
        ([0.1 + 0.2, None, float("nan")], SAME_ENGINE, True),
        ([0.3000001, None, float("nan")], SAME_ENGINE, False),
        ([0.3, 0.0, float("nan")], SAME_ENGINE, False),
        ([0.3, None, 0.0], OTHER_ENGINE, False),
    ],
)
def test_floating_point_numbers_have_a_tolerance(got: list[Any], tolerance: Tolerance, same: bool) -> None:
    """Sums in another order are the same, other numbers, nulls and NaN are not."""
    assert (differences(table([0.3, None, float("nan")]), table(got), tolerance) == []) == same


def test_decimals_are_exact_within_an_engine_and_to_a_unit_between_engines() -> None:
    """A decimal against a double may be off by a unit of its last digit, where that is allowed."""
    thirds = table([Decimal("0.333")], types=(pa.decimal128(10, 3),))
    assert differences(table([1 / 3]), thirds, OTHER_ENGINE) == []
    assert differences(table([0.335]), thirds, OTHER_ENGINE) != []
    other = table([Decimal("0.334")], types=(pa.decimal128(10, 3),))
    assert differences(thirds, other, SAME_ENGINE) != []
    assert differences(thirds, other, OTHER_ENGINE) != []
    longer = table([Decimal("0.33349")], types=(pa.decimal128(12, 5),))
    assert differences(longer, thirds, OTHER_ENGINE) == []
    assert differences(longer, thirds, SAME_ENGINE) != []


def test_rows_out_of_order_are_told() -> None:
    """Nulls are least; equal keys may stand in any order."""
    rows = table([None, 1, 1, 2], [5, 9, 8, 7])
    assert out_of_order(rows, [(0, False)]) == []
    assert out_of_order(rows, [(0, False), (1, True)]) == []
    assert out_of_order(rows, [(0, False), (1, False)]) != []
    assert out_of_order(rows, [(0, True)]) != []


def test_folders_of_outputs_are_compared_as_a_whole(tmp_path: Path) -> None:
    """Parquet by partition, lines, JSON: a value, a folder's name or a file that differs is told."""

    def leave(name: str, part: str = "x=1", value: int = 1, figure: float = 0.5, line: str = "{}") -> Path:
        folder = tmp_path / name
        (folder / "rows" / part).mkdir(parents=True)
        (folder / "lines").mkdir()
        pq.write_table(pa.table({"a": [value]}), folder / "rows" / part / "part-0.parquet")
        (folder / "rows" / "_SUCCESS").touch()
        (folder / "lines" / "part.jsonl").write_text(line + "\n")
        (folder / "figure.json").write_text(json.dumps({"figures": [figure]}))
        return folder

    one = leave("one")
    assert output_differences(one, leave("same", figure=0.5 + 1e-12)) == []
    assert output_differences(one, leave("value", value=2)) != []
    assert output_differences(one, leave("partition", part="x=2")) != []
    assert output_differences(one, leave("figure", figure=0.6)) != []
    assert output_differences(one, leave("line", line="[]")) != []
    more = leave("more")
    (more / "other.json").write_text("1")
    assert output_differences(one, more) != []
