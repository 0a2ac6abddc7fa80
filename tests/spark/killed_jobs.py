"""The job that is killed at a fault point, what it should come to, and what it came to."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

KILLED = -9


def result(folder: Path) -> list[tuple[int, ...]]:
    table = pq.read_table(folder)
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def expected(orders: Path) -> list[tuple[int, ...]]:
    """The job's answer, worked out by Arrow."""
    totals = pq.read_table(orders).group_by("customer").aggregate([("amount", "sum")])
    total = totals["amount_sum"]
    grade = pc.subtract(pc.multiply(total, 7), pc.multiply(pc.divide(pc.multiply(total, 7), 101), 101))
    return sorted(zip(totals["customer"].to_pylist(), total.to_pylist(), grade.to_pylist(), strict=True))
