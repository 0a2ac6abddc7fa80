from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PARSE = """
import json, sys
from airflow.dag_processing.dagbag import DagBag

bag = DagBag(sys.argv[1], bundle_name="examples")
dags = {
    dag.dag_id: {
        task.task_id: {
            "type": task.task_type,
            "retries": task.retries,
            "upstream": sorted(task.upstream_task_ids),
            "application": getattr(task, "application", None),
            "deferrable": getattr(task, "deferrable", None),
        }
        for task in dag.tasks
    }
    for dag in bag.dags.values()
}
print(json.dumps({"errors": bag.import_errors, "dags": dags}))
"""

EXECUTED = {
    "append_once",
    "flights_features",
    "flights_features_deferred",
    "no_useless_retries",
    "spark_recovery_gc",
    "taskflow_totals",
    "unmodified_script",
}
"""DAGs that a test runs: test_demo_end_to_end.py, test_real_airflow_at_length.py, and test_gc_dag.py and
test_example_dags.py in tests/airflow_side.
"""


@pytest.mark.integration
@pytest.mark.process
def test_the_example_dags_are_imported_without_errors_and_all_of_them_are_run_by_tests(
    dags: Path, tmp_path: Path
) -> None:
    """Airflow finds the example DAGs, takes no PySpark script for one, and every DAG that it finds is run by a test."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
    answer = subprocess.run(
        [sys.executable, "-c", PARSE, str(dags)],
        env=environment | {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )

    found = json.loads(answer.stdout.splitlines()[-1])

    assert found["errors"] == {}
    assert set(found["dags"]) == EXECUTED
    tasks = found["dags"]["flights_features"]
    assert tasks["features"]["type"] == "SparkRecoveryOperator"
    assert found["dags"]["flights_features_deferred"]["features"]["deferrable"] is True
    assert tasks["features"]["deferrable"] is False
    assert tasks["features"]["upstream"] == ["unpack"]
    assert tasks["features"]["retries"] == 2
    assert Path(tasks["features"]["application"]).is_file()
