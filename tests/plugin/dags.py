"""DAGs whose Spark jobs have ended in every way that the page tells apart."""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from airflow_provider.operators.spark_recovery import SparkRecoveryOperator

for dag_id in ("etl", "other_dag"):
    with DAG(dag_id, schedule=None):
        EmptyOperator(task_id="empty") >> SparkRecoveryOperator(task_id="job", application=__file__)

with DAG("several", schedule=None):
    EmptyOperator(task_id="empty")
    SparkRecoveryOperator(task_id="job", application=__file__)
    SparkRecoveryOperator.partial(task_id="mapped").expand(application=[__file__, __file__])
