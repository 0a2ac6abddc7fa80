"""The job of `flights_features` in deferrable mode: no worker waits while Spark computes.

The triggerer follows the job in its event store. If the driver dies, the scheduler's retry computes only the partitions
that were not stored yet; if the triggerer dies, another one continues; marking the task as failed ends the driver.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from airflow.sdk import Param, dag

from airflow_provider.operators.spark_recovery import SparkRecoveryOperator


@dag(
    schedule=None,
    catchup=False,
    doc_md=__doc__,
    tags=["example", "spark-recovery"],
    params={
        "input_dir": Param(type="string", description="Folder with the CSV files that 'flights_features' unpacks"),
        "output_dir": Param(type="string", description="Folder for the features, as Spark writes it"),
    },
)
def flights_features_deferred() -> None:
    SparkRecoveryOperator(
        task_id="features",
        conn_id="spark_default",
        recovery_conn_id="spark_recovery_default",
        application=str(Path(__file__).with_name("flights_features_job.py")),
        application_args=["{{ params.input_dir }}", "{{ params.output_dir }}"],
        deferrable=True,
        execution_timeout=timedelta(hours=2),
        start_timeout=timedelta(minutes=30),
        retries=2,
        retry_delay=timedelta(seconds=5),
    )


flights_features_deferred()
