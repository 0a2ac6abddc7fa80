"""Stands for an Airflow worker: executes one try of a ``SparkRecoveryOperator`` in a process of its own.

Takes the operator's parameters as JSON and prints the XCom as its last line.
"""

from __future__ import annotations

import json
import signal
import sys
from types import SimpleNamespace
from typing import Any, cast

from airflow_provider.operators.spark_recovery import SparkRecoveryOperator

TASK_INSTANCE = {"dag_id": "dag", "run_id": "manual__2026-01-01T00:00:00+00:00", "task_id": "task", "map_index": -1}


def execute(task: dict[str, Any], instance: dict[str, Any]) -> Any:
    """Execute one try and return what goes to XCom."""
    operator = SparkRecoveryOperator(task_id="task", **task)

    def on_term(*_: object) -> None:
        operator.on_kill()
        sys.exit("ended by a signal")

    signal.signal(signal.SIGTERM, on_term)  # as Airflow's task runner does when a task is marked failed
    return operator.execute(cast("Any", {"ti": SimpleNamespace(**(TASK_INSTANCE | instance), stats_tags={})}))


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    sys.stdout.write(json.dumps(execute(given["task"], given.get("ti", {}))) + "\n")
