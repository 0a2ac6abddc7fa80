"""An append that is not repeated by a retry.

The script appends a day's sales and then fails in its first try, on purpose. The retry runs the script from the top,
but does not write the append again, because an earlier try has committed it and its files are unchanged (`sinks=once`,
the default).
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
    params={"output_dir": Param(type="string", description="Folder that the sales are appended to")},
)
def append_once() -> None:
    SparkRecoveryOperator(
        task_id="append",
        conn_id="spark_default",
        application=str(Path(__file__).with_name("append_once_job.py")),
        application_args=["{{ params.output_dir }}"],
        retries=1,
        retry_delay=timedelta(0),
    )


append_once()
