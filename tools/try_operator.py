"""Run a job by the operator, with what is installed: ``make build`` calls it inside an empty environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = """
import sys
from pyspark.sql import SparkSession
from airflow_provider.spark import checkpoint

spark = SparkSession.builder.getOrCreate()
checkpoint(spark.range(100).selectExpr("id % 7 AS k"), "rows").groupBy("k").count().write.json(sys.argv[1])
"""
DAG = """
from airflow.sdk import DAG
from airflow_provider.operators.spark_recovery import SparkRecoveryOperator

with DAG("tried", schedule=None):
    SparkRecoveryOperator(task_id="job", application={script!r}, application_args=[{output!r}])
"""


def main() -> None:
    """Make an Airflow, run the job, and look at what it has left."""
    import airflow_provider

    assert Path(airflow_provider.__file__).is_relative_to(sys.prefix), airflow_provider.__file__
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script, output = folder / "job.py", folder / "out"
        script.write_text(SCRIPT)
        (folder / "dags").mkdir()
        (folder / "dags" / "tried.py").write_text(DAG.format(script=str(script), output=str(output)))
        environment = {
            **os.environ,
            "AIRFLOW_HOME": str(folder / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
            "AIRFLOW_CONN_SPARK_RECOVERY_DEFAULT": json.dumps(
                {"conn_type": "spark_recovery", "extra": {"event_store": f"file://{folder}/store"}}
            ),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        for command in (["db", "migrate"], ["dags", "reserialize"], ["dags", "test", "tried"]):
            done = subprocess.run(
                ["airflow", *command], env=environment, capture_output=True, text=True, check=False, cwd=folder
            )
            assert done.returncode == 0, f"airflow {' '.join(command)}:\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
        rows = [json.loads(line) for file in output.glob("*.json") for line in file.read_text().splitlines()]
        assert sorted((row["k"], row["count"]) for row in rows) == [(k, 15 if k < 2 else 14) for k in range(7)], rows


if __name__ == "__main__":
    main()
