"""A killed job is recovered on each supported version of Spark, with real drivers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.core import faults
from tests.spark.killed_in_writes import ONCE, Job
from tests.spark.killed_jobs import KILLED
from tests.support.driver import DriverHarness
from tests.support.sparks import EACH_OR_OLDEST, OTHERS, OWN, spark_python

pytestmark = [pytest.mark.process, pytest.mark.integration, pytest.mark.timeout(420)]

FILES = 4
EACH = sorted({*OTHERS, OWN})
WARNED = re.compile(r"^\S+ (?:WARNING|ERROR) spark-recovery: .*", re.MULTILINE)


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 orders of 30 customers, one file for each task."""
    folder = tmp_path_factory.mktemp("orders")
    for part in range(FILES):
        rows = range(part * 100, part * 100 + 100)
        table = pa.table({"customer": [row * 7919 % 30 for row in rows], "amount": [row % 97 for row in rows]})
        pq.write_table(table, folder / f"part-{part}.parquet")
    return folder


def expected(orders: Path) -> list[tuple[str, int]]:
    """The job's answer, worked out by Arrow."""
    sums = pq.read_table(orders).group_by("customer").aggregate([("amount", "sum")]).to_pylist()
    return sorted((f"customer {row['customer']}", 2 * row["amount_sum"]) for row in sums)


def reused(driver: DriverHarness) -> dict[str, tuple[int, int]]:
    """What ``spark-recovery inspect`` says of each recovery point: how many partitions or map outputs it has, and how
    many of them were reused.
    """
    store = ["--event-store", driver.event_store, "--job-id", driver.job_id, "--json"]
    command = [sys.executable, "-m", "airflow_provider.cli", "inspect", *store]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    return {vertex["name"]: (vertex["partitions"], vertex["reused"]) for vertex in report["vertices"]}


@pytest.mark.parametrize(
    ("spark", "mode"),
    [
        *(pytest.param(spark, "auto", marks=[] if spark in OTHERS else pytest.mark.walk) for spark in EACH),
        *(pytest.param(spark, "explicit", marks=pytest.mark.walk) for spark in EACH),
    ],
)
def test_a_killed_job_is_recovered(tmp_path: Path, orders: Path, spark: str, mode: str) -> None:
    """Killed with half of its checkpoint stored, or in auto mode half of the shuffle above it, and run again: plain
    Spark's rows, only the missing half is computed, neither attempt warns of anything, and a given seed is kept.
    """
    driver = DriverHarness(tmp_path, f"file://{tmp_path}/store", python=spark_python(spark))
    driver.settings = {
        "spark.sql.files.maxPartitionBytes": "4000",
        "spark.sql.files.openCostInBytes": "4000",
    }
    explicit = mode == "explicit"
    target, gate = tmp_path / "totals", tmp_path / "gate"
    arguments = (str(orders), str(target), str(gate), "checkpoint" if explicit else "shuffle")
    options = {"keep-partitions": "", "recovery-points": mode, "overhead-budget": "1e6"}
    stored = f"{faults.AFTER_PARTITION_EVENT}@{2 if explicit else FILES + 2}"

    first = driver.run("every_version.py", *arguments, fault=stored, options=options)
    assert first.code == KILLED, first.log
    gate.touch()
    second = driver.run("every_version.py", *arguments, options=options)
    assert second.code == 0, second.log

    rows = pq.read_table(target).to_pylist()
    assert sorted((row["name"], row["total"]) for row in rows) == expected(orders)
    if explicit:
        assert reused(driver) == {"amounts": (FILES, 2)}, second.log
        assert "checkpoint 'amounts': 4 partitions, 2 reused, 2 to compute" in second.log
    else:
        assert reused(driver) == {"amounts": (FILES, FILES), "shuffle(name)": (FILES, 2)}, second.log
        assert "shuffle(name): 2 map outputs put back, 2 to compute" in second.log
    samples = json.loads(Path(f"{target}-samples.json").read_text())
    assert samples["named"] == samples["plain"]
    assert FILES * 30 < len(samples["plain"]) < FILES * 70
    if spark.startswith("3."):  # PySpark 4 drops a seed that is named where the fraction is not
        assert samples["seed named"] == samples["plain"]
    assert WARNED.findall(first.log + second.log) == []
    assert "not watched" not in second.log
    events = "".join(file.read_text() for file in (tmp_path / "store").rglob("*.jsonl"))
    assert '"watched":true' in events, "the write asked before it began"
    assert '"used":[[' in events, "tasks are counted"


@pytest.mark.parametrize("spark", EACH_OR_OLDEST)
def test_a_write_is_held_to_the_lease(tmp_path: Path, spark: str) -> None:
    """Tasks that move their files themselves wait for it; and of what is pending beside the write, its commit deletes
    what was there before it had leave.
    """
    driver = DriverHarness(tmp_path, f"file://{tmp_path}/store", python=spark_python(spark))
    target = tmp_path / "target"
    done = driver.run("committed_beside.py", str(target))
    assert done.code == 0, done.log
    assert [path.name for path in (target / "_temporary").iterdir()] == ["77"]
    assert sorted(pq.read_table(target)["id"].to_pylist()) == [*range(100)]


@pytest.mark.parametrize("spark", EACH_OR_OLDEST)
def test_errors_reach_the_script_as_they_are(tmp_path: Path, spark: str) -> None:
    """Of the classes that plain Spark has; and what fails once is run again inside the application."""
    driver = DriverHarness(tmp_path, f"file://{tmp_path}/store", python=spark_python(spark))
    target = tmp_path / "found"
    done = driver.run("erring.py", str(target), options={"restart-strategy": "fixed-delay"})
    assert done.code == 0, done.log
    found = json.loads(target.read_text())
    division = found.pop("division")
    assert found == {"function": "PythonException", "table": "AnalysisException", "once": "3"}, done.log
    assert division in ("Py4JJavaError", "SparkRuntimeException"), done.log


@pytest.mark.parametrize("spark", EACH_OR_OLDEST)
def test_a_write_goes_on_where_it_was_killed(tmp_path: Path, spark: str) -> None:
    """The retry's plan is changed in a place that each version has."""
    job = Job(tmp_path, "parts_1")
    job.driver.python = spark_python(spark)
    assert job.run().code == KILLED
    second = job.run()
    assert second.code == 0, second.log
    assert "3 of its 4 tasks were committed by earlier attempts and are kept, 1 are written" in second.log
    assert job.ids("parts_1") == ONCE
    assert job.leftovers("parts_1") == []
