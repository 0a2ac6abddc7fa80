"""Clears a task of a real Airflow in each state that it may be in, and lets one be retried; prints as JSON what
``series_of`` says before and after.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any, cast

from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.models.dagbundle import DagBundleModel
from airflow.models.taskinstance import TaskInstance, clear_task_instances
from airflow.utils.db import initdb
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState

from airflow_provider.airflow.retries import series_of

BUNDLE = "dags-folder"
STATES = ("running", "failed", "up_for_retry", "deferred", "success")


def series(instance: TaskInstance, retries: int | None) -> str:
    """Return what a try would be told now."""
    context = {"ti": SimpleNamespace(max_tries=instance.max_tries), "dag_run": instance.dag_run}
    return series_of(cast("Any", context), retries)


def run(folder: str) -> dict[str, list[str]]:
    """Return, by what was done, the series before and after."""
    initdb()
    bag = DagBag(folder, bundle_name=BUNDLE)
    with create_session() as session:
        session.merge(DagBundleModel(name=BUNDLE))
    sync_bag_to_db(bag, BUNDLE, None)
    dag_run = bag.dags["cleared"].test()
    found = {}
    for what in (*STATES, "retry"):
        with create_session() as session:
            [instance] = dag_run.get_task_instances(session=session)
            task = bag.dags["cleared"].get_task(instance.task_id)
            instance.task = cast("Any", task)
            instance.try_number = max(1, instance.max_tries - 1)
            before = series(instance, task.retries)
            if what == "retry":
                instance.state = TaskInstanceState.RUNNING
                session.flush()
                instance.handle_failure("by chance", session=session)
                assert instance.state == TaskInstanceState.UP_FOR_RETRY
            else:
                instance.state = TaskInstanceState(what)
                session.flush()
                clear_task_instances([instance], session)
            session.flush()
            session.refresh(instance)
            found[what] = [before, series(instance, task.retries)]
    return found


if __name__ == "__main__":
    sys.stdout.write(f"\n{json.dumps(run(sys.argv[1]))}\n")
