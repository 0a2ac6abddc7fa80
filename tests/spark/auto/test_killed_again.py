"""Real drivers that are killed in the same stage, one after the other."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.core import faults
from tests.spark.killed_jobs import KILLED, result
from tests.support.driver import JOBS, DriverHarness

pytestmark = [pytest.mark.integration, pytest.mark.process]

ROWS = [6000 + 100 * number for number in range(9)]
"""Of each file, and so of each map output."""
ROWS_BY_TASK = ROWS[::-1]
"""Spark begins with the largest file."""
OPTIONS = {"recovery-points": "auto", "overhead-budget": "1e6"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Files that are a map task each."""
    folder = tmp_path / "source"
    folder.mkdir()
    for number, rows in enumerate(ROWS):
        ids = range(number * 10000, number * 10000 + rows)
        pq.write_table(pa.table({"id": ids}), folder / f"{number}.parquet")
    return folder


def test_each_attempt_goes_on_where_the_last_one_was(driver: DriverHarness, source: Path) -> None:
    """Killed with three more map outputs stored, twice: each attempt puts back what all earlier ones have stored."""
    target = driver.folder / "target"

    def attempt(fault: str = "") -> tuple[int, list[tuple[int, int]]]:
        outcome = driver.run("slow_map_tasks.py", str(source), str(target), fault=fault, options=OPTIONS)
        return outcome.code, outcome.put_back("shuffle(id)")

    killed = f"{faults.AFTER_PARTITION_PUT}@3"
    assert attempt(killed) == (KILLED, [])
    assert attempt(killed) == (KILLED, [(3, 6)])
    (stored,) = driver.store.survivors().values()
    assert {each.index: each.rows for each in stored} == {each.index: ROWS_BY_TASK[each.index] for each in stored}
    assert len(stored) == 6
    assert attempt() == (0, [(6, 3)])
    plain = driver.folder / "plain"
    script = [driver.python, str(JOBS / "slow_map_tasks.py"), str(source), str(plain)]
    subprocess.run(script, env=driver.env(), check=True, timeout=120)
    assert result(target) == result(plain)
