"""How long the driver takes to fingerprint a large plan: 1,000 nodes over 10,000 files."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NODES = 1_000
FILES = 10_000
SOURCES = 10


def compare(rounds: int) -> dict[str, Any]:
    """Return seconds per fingerprint, and beside them what Spark itself takes to analyze and to print the plan."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    from airflow_provider.spark.application import ApplicationState
    from airflow_provider.spark.identity.known import Draws
    from airflow_provider.spark.identity.plan_identity import read_plan

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory(prefix="many-files-") as folder:
        plans = [_plan(spark, path) for path in _sources(spark, Path(folder))]
        df = plans[0]
        for other in plans[1:]:
            df = df.union(other)
        analyzed = df._jdf.queryExecution().analyzed()
        nodes = analyzed.toJSON().count('"class":"org.apache.spark.sql.catalyst.plans.logical.')
        known = SimpleNamespace(application=ApplicationState(), draws=Draws())
        ours, json = [], []
        for _ in range(rounds):
            started = time.perf_counter()
            description = read_plan(spark, known, analyzed)
            ours.append(time.perf_counter() - started)
            started = time.perf_counter()
            analyzed.toJSON()
            json.append(time.perf_counter() - started)
        assert not description.opaque
    spark.stop()
    return {
        "nodes": nodes,
        "files": FILES,
        "rounds": rounds,
        "seconds": statistics.median(ours),
        "worst_seconds": max(ours),
        "to_json_seconds": statistics.median(json),
    }


def _sources(spark: Any, folder: Path) -> list[Path]:
    """Write one small Parquet file under 10,000 names in ten folders."""
    spark.range(10).selectExpr("id", "id % 7 AS k", "id * 2 AS v").coalesce(1).write.parquet(str(folder / "one"))
    content = next((folder / "one").glob("part-*.parquet")).read_bytes()
    paths = [folder / f"source-{number}" for number in range(SOURCES)]
    for path in paths:
        path.mkdir()
        for number in range(FILES // SOURCES):
            (path / f"part-{number:05d}.parquet").write_bytes(content)
    return paths


def _plan(spark: Any, path: Path) -> Any:
    """Return a chain of filters, projections and functions over one source, its share of the nodes."""
    from pyspark.sql import functions as F

    grade = F.udf(lambda x: x + 1, "long")
    df = spark.read.parquet(str(path))
    for step in range(NODES // SOURCES - 3):
        if step % 20 == 7:
            df = df.withColumn("v", grade("v"))
        elif step % 2:
            df = df.where(F.col("v") > step)
        else:
            df = df.withColumn("k", F.col("k") + step)
    return df.groupBy("k").agg(F.sum("v").alias("v"))
