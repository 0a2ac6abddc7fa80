"""Stands for an Airflow worker: executes one try of a ``SparkRecoveryOperator`` in a process of its own.

Takes the operator's parameters as JSON, or a task function's, and prints the XCom as its last line.
"""

from __future__ import annotations

import json
import signal
import sys
from types import SimpleNamespace
from typing import Any, cast

from airflow.sdk import DAG

from airflow_provider.operators.decorated import spark_recovery_task
from airflow_provider.operators.spark_recovery import SparkRecoveryOperator
from tests.airflow_side import task_functions

TASK_INSTANCE = {"dag_id": "dag", "run_id": "manual__2026-01-01T00:00:00+00:00", "task_id": "task", "map_index": -1}


def operator_of(task: dict[str, Any]) -> SparkRecoveryOperator:
    """Return the operator, or that of a task function: ``function`` names it, ``arguments`` are its own."""
    if (name := task.pop("function", None)) is None:
        return SparkRecoveryOperator(task_id="task", **task)
    arguments = task.pop("arguments", {})
    with DAG("dag"):
        decorate = spark_recovery_task(task_id="task", **task)
        return cast("Any", decorate(getattr(task_functions, name)))(**arguments).operator  # type: ignore[no-any-return]


def tell_xcom(key: str, value: Any) -> None:
    """Stand for Airflow's XComs."""
    sys.stdout.write(f"XCom {key}: {json.dumps(value)}\n")


def execute(task: dict[str, Any], instance: dict[str, Any]) -> Any:
    """Execute one try and return what goes to XCom."""
    operator = operator_of(task)

    def on_term(*_: object) -> None:
        operator.on_kill()
        sys.exit("ended by a signal")

    signal.signal(signal.SIGTERM, on_term)  # as Airflow's task runner does when a task is marked failed
    ti = SimpleNamespace(**(TASK_INSTANCE | instance), stats_tags={}, max_tries=0, xcom_push=tell_xcom)
    context = {"ti": ti, "dag_run": SimpleNamespace(clear_number=0), "ds": "2026-01-01"}
    return operator.execute(cast("Any", context))


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    sys.stdout.write(json.dumps(execute(given["task"], given.get("ti", {}))) + "\n")
