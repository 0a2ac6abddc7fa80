"""The story that users tell most: a bug shows in the last step, they fix it and clear the task."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.driver import JOBS, DriverHarness

pytestmark = [pytest.mark.process, pytest.mark.integration]


def test_fix_the_bug_and_clear(driver: DriverHarness, orders: Path) -> None:
    """The vertices before the bug are reused, the fixed one is computed, the result is that of the fixed script."""
    script = driver.folder / "job.py"
    broken = (JOBS / "four_vertices.py").read_text()
    script.write_text(broken)
    arguments = (script, str(orders), str(driver.folder / "out"))
    first = driver.run(*arguments)
    assert first.code == 1, first.log
    assert "ZeroDivisionError" in first.log.splitlines()[-1]
    fixed = broken.replace("(total - total)", "total")
    assert fixed != broken
    script.write_text(fixed)
    second = driver.run(*arguments, options={"keep-partitions": ""})
    assert second.code == 0, second.log
    computed = {name: second.tasks[f"checkpoint {name}"] > 0 for name in ("orders", "totals", "joined", "shares")}
    assert computed == {"orders": False, "totals": False, "joined": False, "shares": True}
    assert "'shares' is computed again, because function 'share' changed" in second.log
    rows = [row for row in pq.read_table(orders).to_pylist() if row["amount"] > 0]
    totals: dict[int, int] = {}
    for row in rows:
        totals[row["customer"]] = totals.get(row["customer"], 0) + row["amount"]
    expected = sorted((row["customer"], 100 * row["amount"] // totals[row["customer"]]) for row in rows)
    result = pq.read_table(driver.folder / "out").to_pylist()
    assert sorted((row["customer"], row["share"]) for row in result) == expected
