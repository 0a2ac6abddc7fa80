"""On a cluster copying runs as jobs, which a script may cancel like its own."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.driver import DriverHarness
from tests.support.sparks import ROOT
from tests.support.standalone import EXECUTOR_SETTINGS, standalone_cluster

pytestmark = [pytest.mark.integration, pytest.mark.process]

OPTIONS = {"recovery-points": "auto", "overhead-budget": "1e6"}


def test_a_job_goes_on_when_it_cancels_our_copies(driver: DriverHarness, orders: Path, tmp_path: Path) -> None:
    """What was to be copied is not kept; the script's outputs are those of plain Spark."""
    target, counted, folder = driver.folder / "target", driver.folder / "counted", tmp_path / "cluster"
    folder.mkdir()
    with standalone_cluster(folder, environment={"PYTHONPATH": str(ROOT)}) as cluster:
        driver.settings = {"spark.master": cluster.url, **EXECUTOR_SETTINGS}
        done = driver.run("cancelled_copies.py", str(orders), str(target), str(counted), options=OPTIONS)
    assert done.code == 0, done.log
    assert counted.exists(), done.log
    rows = pq.read_table(orders)
    sums = rows.group_by("customer").aggregate([("amount", "sum")]).to_pylist()
    counts = rows.group_by("amount").aggregate([("customer", "count")]).to_pylist()
    written = {each: pq.read_table(target / each).to_pylist() for each in "ab"}
    assert {row["key"]: row["value"] for row in written["a"]} == {row["customer"]: row["amount_sum"] for row in sums}
    assert {row["key"]: row["value"] for row in written["b"]} == {
        row["amount"]: row["customer_count"] for row in counts
    }
