"""Runs DAGs one after the other in one Airflow without a scheduler; takes ``[[dag_id, conf], …]`` and prints JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.models.dagbundle import DagBundleModel
from airflow.utils.db import initdb
from airflow.utils.session import create_session

BUNDLE = "dags-folder"


def run(folder: str, runs: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Run the DAGs; return state and tries of every task instance, and what it returned."""
    initdb()
    bag = DagBag(folder, bundle_name=BUNDLE)
    with create_session() as session:
        session.merge(DagBundleModel(name=BUNDLE))
    sync_bag_to_db(bag, BUNDLE, None)
    results = []
    for dag_id, conf in runs:
        dag_run = bag.dags[dag_id].test(run_conf=conf)
        with create_session() as session:
            instances = dag_run.get_task_instances(session=session)
            tasks = {
                f"{instance.task_id}/{instance.map_index}": {
                    "state": str(instance.state),
                    "tries": instance.try_number,
                    "returned": instance.xcom_pull(
                        task_ids=instance.task_id, map_indexes=instance.map_index, session=session
                    ),
                }
                for instance in instances
            }
        results.append({"state": str(dag_run.state), "tasks": tasks})
    return results


if __name__ == "__main__":
    told = json.dumps(run(sys.argv[1], json.loads(sys.argv[2])))
    sys.stdout.write(f"\n{told}\n")
