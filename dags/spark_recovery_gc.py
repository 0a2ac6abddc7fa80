"""Delete the event stores and partitions of Spark jobs that nobody will resume.

A job that succeeds releases its partitions at once. A job that is never retried to success keeps them until nothing of
it has changed for the connection's `retention`. A job whose driver is running is never touched. With the parameter
`delete` set to false, the task only logs what it would delete.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param, dag, task


@dag(
    schedule="@daily",
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["maintenance", "spark-recovery"],
    params={
        "recovery_conn_id": Param("spark_recovery_default", type="string", description="Says where the event store is"),
        "delete": Param(True, type="boolean", description="Delete what is found; false: only list it"),
    },
)
def spark_recovery_gc() -> None:
    @task
    def collect_garbage(params: dict[str, Any]) -> dict[str, Any]:
        """Check every job of the store; return the number of garbage jobs and their bytes."""
        from airflow_provider.cli.garbage_command import table, to_dict
        from airflow_provider.hooks.recovery_store import RecoveryStoreHook
        from airflow_provider.storage.garbage import collect

        recovery = RecoveryStoreHook(params["recovery_conn_id"]).recovery
        options = recovery.settings.options
        verdicts = collect(recovery.store, older_than=options.retention, delete=params["delete"], options=options)
        print(table(verdicts))
        return {**to_dict(verdicts), "jobs": len(verdicts)}

    collect_garbage()  # type: ignore[call-arg]


spark_recovery_gc()
