"""Users' scripts behave under the runner as they do without it, and ``spark-recovery inspect`` tells how they went."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider.core import faults
from airflow_provider.core.events import JobFailed
from airflow_provider.core.job import JobId
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.uris import open_store
from tests.spark.killed_jobs import KILLED
from tests.support.driver import DriverHarness

pytestmark = [pytest.mark.process, pytest.mark.integration]


def inspect(driver: DriverHarness, *flags: str) -> str:
    store = ["--event-store", driver.event_store, "--job-id", driver.job_id]
    command = [sys.executable, "-m", "airflow_provider.cli", "inspect", *store, *flags]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def base_vertex(driver: DriverHarness) -> dict[str, Any]:
    (vertex,) = json.loads(inspect(driver, "--json"))["vertices"]
    return {name: vertex[name] for name in ("name", "partitions", "reused", "computed", "missing", "rows", "finished")}


@pytest.mark.walk
def test_killed_then_failing_then_well(driver: DriverHarness) -> None:
    """A script's own error is shown and recorded, keeps the partitions, and the next run goes on; inspect agrees."""
    target = driver.folder / "out"
    keep = {"keep-partitions": ""}

    def run(mood: str, fault: str = "") -> Any:
        return driver.run("moody.py", "--target", str(target), "--mood", mood, fault=fault, options=keep)

    killed = run("well", f"{faults.AFTER_PARTITION_EVENT}@3")
    assert killed.code == KILLED, killed.log
    stored = len(driver.partitions("base"))
    assert 0 < stored < 8

    failed = run("bad")
    assert failed.code == 1, failed.log
    assert failed.log.count("Traceback (most recent call last)") == 1, failed.log
    assert re.search(r'moody\.py", line \d+, in <module>', failed.log)
    assert "\nValueError: the answer is missing\n" in failed.log
    assert "runner.py" not in failed.log
    events = JobEventLog(open_store(driver.event_store), JobId.parse(driver.job_id).prefix).read().events
    assert [(e.epoch, e.error) for e in events if isinstance(e, JobFailed)] == [
        (2, "ValueError: the answer is missing")
    ]
    assert len(driver.partitions("base")) == 8
    base = base_vertex(driver)
    reused = base["reused"]  # what tasks had committed when the driver died counts, too
    assert stored <= reused <= 8
    assert failed.tasks["checkpoint base"] == 8 - reused
    assert base == {
        "name": "base",
        "partitions": 8,
        "reused": reused,
        "computed": 8 - reused,
        "missing": 0,
        "rows": 100,
        "finished": True,
    }

    well = run("well")
    assert well.code == 0, well.log
    assert well.tasks["checkpoint base"] == 0
    assert sorted(pq.read_table(target)["tripled"].to_pylist()) == [3 * i for i in range(100)]
    report = json.loads(inspect(driver, "--json"))
    assert (report["job"], report["state"]) == (driver.job_id, "FINISHED")
    assert [attempt["state"] for attempt in report["attempts"]] == ["LOST", "FAILED", "FINISHED"]
    assert (report["partitions_reused"], report["partitions_computed"]) == (8, 0)
    assert report["bytes_reused"] == sum(p.bytes for p in driver.partitions("base"))
    table = inspect(driver).splitlines()
    assert table[0] == f"Job {driver.job_id}: FINISHED in attempt 3"
    assert any(line.split()[:5] == ["base", "8", "8", "0", "0"] for line in table), table


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [("0", 0, "FINISHED"), ("3", 1, "exit code 3"), ("'no orders today'", 1, "no orders today")],
)
def test_exit_codes_of_scripts(driver: DriverHarness, tmp_path: Path, end: str, code: int, said: str) -> None:
    """``sys.exit(0)`` is success; any other code, or a text, is a failure that says so, without a stack trace."""
    script = tmp_path / "exits.py"
    script.write_text(f"import sys\nassert sys.argv[1:] == ['--flag', '--job-id', 'x']\nsys.exit({end})\n")
    outcome = driver.run(script, "--flag", "--job-id", "x")
    assert outcome.code == code, outcome.log
    assert said in outcome.log
    assert "Traceback" not in outcome.log


def test_a_script_that_ends_its_process_by_itself_has_finished(driver: DriverHarness, tmp_path: Path) -> None:
    """``os._exit(0)``, with which scripts leave threads behind that would not end, is a success that is recorded."""
    script = tmp_path / "leaves.py"
    script.write_text(
        "import os, sys\nfrom pyspark.sql import SparkSession\n"
        "SparkSession.builder.getOrCreate().range(10).write.parquet(sys.argv[1])\nos._exit(0)\n"
    )
    outcome = driver.run(script, str(tmp_path / "out"))
    assert outcome.code == 0, outcome.log
    assert json.loads(inspect(driver, "--json"))["state"] == "FINISHED"
    assert sorted(pq.read_table(tmp_path / "out")["id"].to_pylist()) == list(range(10))
