"""The example DAGs, run by Airflow on real drivers: one start of Airflow for all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.quick_jvm import quick_jvms
from tests.support.quick_python import quick_airflow

# Five Spark drivers, one after the other.
pytestmark = [pytest.mark.process, pytest.mark.integration, pytest.mark.timeout(600)]

DAGS = Path(__file__).parents[2] / "dags"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(scope="module")
def runs(out: Path) -> dict[str, Any]:
    """What came of each run, by a name for it."""
    asked = {
        "unmodified": ("unmodified_script", {"output_dir": f"{out}/revenue", "spark_recovery": {"resume": "never"}}),
        "append": ("append_once", {"output_dir": f"{out}/sales"}),
        "taskflow": ("taskflow_totals", {}),
        "known": ("no_useless_retries", {"currency": "USD"}),
        "unknown": ("no_useless_retries", {"currency": "XXX"}),
    }
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "AWS_", "SPARK_"))},
        **quick_airflow(),
        "AIRFLOW_HOME": str(out / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "AIRFLOW_CONN_SPARK_RECOVERY_DEFAULT": json.dumps(
            {"conn_type": "spark_recovery", "extra": {"event_store": f"file://{out}/store"}}
        ),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        **quick_jvms("-Dspark.ui.enabled=false", "-Dspark.sql.shuffle.partitions=2"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.airflow_side.run_dags", str(DAGS), json.dumps([*asked.values()])],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    (out / "log").write_text(done.stdout)
    return dict(zip(asked, json.loads(done.stdout.strip().splitlines()[-1]), strict=True))


def test_an_unmodified_script_runs_for_each_region(runs: dict[str, Any], out: Path) -> None:
    """Two mapped tasks, two jobs, two outputs; the run's conf has started them afresh."""
    assert runs["unmodified"]["state"] == "success"
    reports = [runs["unmodified"]["tasks"][f"revenue/{index}"]["returned"] for index in (0, 1)]
    assert [report["state"] for report in reports] == ["FINISHED", "FINISHED"]
    assert [report["job"].rsplit("/", 1)[-1] for report in reports] == ["0", "1"]
    for region, more in (("north", 1), ("south", 2)):
        revenue = pq.read_table(out / "revenue" / region)["revenue"].to_pylist()
        assert sum(revenue) == sum(n % 100 + more for n in range(10_000))


def test_an_append_is_not_repeated(runs: dict[str, Any], out: Path) -> None:
    """The first try fails behind its append; after the second one each row is there once."""
    assert runs["append"]["state"] == "success"
    task = runs["append"]["tasks"]["append/-1"]
    assert task["tries"] == 2
    assert [attempt["state"] for attempt in task["returned"]["attempts"]] == ["FAILED", "FINISHED"]
    assert sorted(pq.read_table(out / "sales")["sale"].to_pylist()) == list(range(1_000))


def test_a_task_functions_value_goes_to_the_next_task(runs: dict[str, Any]) -> None:
    """Computed on a driver, announced by a Python task."""
    tasks = runs["taskflow"]["tasks"]
    assert runs["taskflow"]["state"] == "success"
    totals = [sum(range(product, 10_000, 7)) for product in range(7)]
    best = totals.index(max(totals))
    value = tasks["totals/-1"]["returned"]
    assert (value["best"], value["revenue"]) == (best, totals[best])
    assert tasks["announce/-1"]["returned"] == f"{value['day']}: product {best} with {totals[best]}"


def test_a_task_with_the_retry_policy_is_not_retried_in_vain(runs: dict[str, Any]) -> None:
    """It succeeds with a known currency; with an unknown one it fails in its first try of four."""
    assert runs["known"]["tasks"]["rate/-1"] == {"state": "success", "tries": 1, "returned": 1.1}
    assert runs["unknown"]["state"] == "failed"
    assert runs["unknown"]["tasks"]["rate/-1"]["tries"] == 1
