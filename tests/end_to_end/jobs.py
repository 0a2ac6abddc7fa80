"""A small job with two recovery points that waits between them, its input, and its right answer."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.driver import JOBS

ROWS = 2000

_WAIT = """\
import os, time
print("the driver waits", flush=True)
while not os.path.exists(sys.argv[3]):
    time.sleep(0.1)
print("the driver goes on", flush=True)
"""
BUG = 'raise ValueError("a bug in the last step")\n'


def gated_job(*, bug: bool = False, factor: Path | None = None) -> str:
    """The script: SOURCE TARGET GATE; it computes *totals*, waits until the file GATE is there, then *graded*.

    :param bug: fail after both, before anything is written
    :param factor: a file that the Python function of *graded* reads; 7 is the right one
    """
    text = (JOBS / "two_vertices.py").read_text()
    assert text.count("graded = checkpoint") == text.count("graded.orderBy") == text.count("total * 7") == 1
    if factor is not None:
        text = text.replace("total * 7", f"total * int(open({str(factor)!r}).read())")
    text = text.replace("graded = checkpoint", f"{_WAIT}graded = checkpoint")
    return text.replace("graded.orderBy", f"{BUG if bug else ''}graded.orderBy")


def write_orders(path: Path) -> None:
    """Write the input."""
    customers, amounts = ([number(row) for row in range(ROWS)] for number in (_customer, _amount))
    pq.write_table(pa.table({"customer": customers, "amount": amounts}), path)


def check_answer(target: Path) -> None:
    """The output is what the script must yield, and was committed by one driver."""
    totals: dict[int, int] = {}
    for row in range(ROWS):
        totals[_customer(row)] = totals.get(_customer(row), 0) + _amount(row)
    expected = [(customer, total, total * 7 % 101) for customer, total in sorted(totals.items())]
    table = pq.read_table(target).select(["customer", "total", "grade"])
    assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == expected
    assert len(list(target.glob("part-*"))) == 1
    assert (target / "_SUCCESS").is_file()


def _customer(row: int) -> int:
    return row * 7919 % 300


def _amount(row: int) -> int:
    return row % 97
