"""A PySpark script that knows nothing of recovery, run once per region in mapped tasks, each its own Spark job.

A retry resumes from what the script's shuffles have written. To start one run afresh, trigger it with the conf
`{"spark_recovery": {"resume": "never"}}`.
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
    params={"output_dir": Param(type="string", description="Folder for the revenues, one below it for each region")},
)
def unmodified_script() -> None:
    SparkRecoveryOperator.partial(
        task_id="revenue",
        conn_id="spark_default",
        application=str(Path(__file__).with_name("unmodified_script_job.py")),
        retries=2,
        retry_delay=timedelta(seconds=5),
    ).expand(application_args=[[region, f"{{{{ params.output_dir }}}}/{region}"] for region in ("north", "south")])


unmodified_script()
