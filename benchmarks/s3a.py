"""``checkpoint(df, name)`` against ``df.checkpoint()``, both on S3 by way of ``s3a://``, with Spark 3.5.

The jars that Hadoop needs for it are to be had for that version only (``tools/setup.sh s3a``), so that its own Python
runs the ways, as a child of this process. The S3 server is none of its children, and does not count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from airflow_provider.core.options import StorageOptions
from airflow_provider.spark.points import recover
from benchmarks.checkpoint import REFERENCE, Way, Ways, measured, summary
from tests.support.s3_gateway import S3Server, s3_gateway

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

BUCKET = "benchmark"


def compare(data: Path, rounds: int) -> dict[str, Any]:
    """Run the comparison in a Python with Spark 3.5 and return medians, ratios and all single figures."""
    from tests.spark.s3_driver import s3a_settings
    from tests.support.jars import SPARK
    from tests.support.sparks import ROOT, spark_python

    with s3_gateway(memory_gib=8) as server:
        server.create_bucket(BUCKET)
        settings = s3a_settings(server)
        jars = settings["spark.driver.extraClassPath"]
        hadoop = json.dumps({name: text for name, text in settings.items() if name.startswith("spark.hadoop")})
        command = [spark_python(SPARK), "-m", __name__, str(data), str(rounds), server.endpoint, hadoop]
        environment = {
            **os.environ,
            **server.environment,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_SUBMIT_ARGS": f"--driver-class-path {jars} --driver-memory 3g pyspark-shell",
        }
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _run(data: Path, rounds: int, endpoint: str, hadoop: dict[str, str]) -> dict[str, Any]:
    server = S3Server(endpoint, os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    client: Any = server.session().client("s3", endpoint_url=endpoint)

    def keys(prefix: str) -> list[dict[str, Any]]:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [entry for page in pages for entry in page.get("Contents", [])]

    def clear() -> None:
        for entry in keys(""):
            client.delete_object(Bucket=BUCKET, Key=entry["Key"])

    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        spark = _session(hadoop, Path(folder))
        ways = Ways(spark, Path(folder))
        native = ways.recovery(f"s3://{BUCKET}/store", StorageOptions(endpoint_url=endpoint, addressing_style="path"))

        def spark_checkpoint(df: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
            return df.checkpoint(), lambda: sum(entry["Size"] for entry in keys("checkpoints"))

        def by_python(df: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
            with patch.object(recover, "writable_by_spark", return_value=False):
                return native(df)

        runs: dict[str, Way] = {
            REFERENCE: spark_checkpoint,
            "checkpoint(df, name), Spark's own writer": native,
            "checkpoint(df, name), written by Python": by_python,
        }
        costs = measured(runs, spark.read.parquet(str(data / "lineitem")), rounds, clear)
        spark.stop()
    return summary(costs, rounds)


def _session(hadoop: dict[str, str], folder: Path) -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{len(os.sched_getaffinity(0))}]")
    for name, text in {
        **hadoop,
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder / "spark-local"),
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, text)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.sparkContext.setCheckpointDir(f"s3a://{BUCKET}/checkpoints")
    return spark


if __name__ == "__main__":
    print(json.dumps(_run(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]))))
