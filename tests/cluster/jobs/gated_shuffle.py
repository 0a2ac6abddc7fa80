"""A shuffle, and behind it a vertex whose upper half of partitions waits for a gate; then the driver, for another.

Gates are files. The driver prints what executors have: their hash seed, and where this package comes from.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider.spark import checkpoint

target, vertex_gate, output_gate = sys.argv[1:4]
spark = SparkSession.builder.getOrCreate()


def wait_for(gate: str) -> None:
    while not Path(gate).exists():
        time.sleep(0.05)


def double(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    import airflow_provider

    task = TaskContext.get()
    assert task is not None
    if task.partitionId() >= 2:
        Path(f"{vertex_gate}-{task.partitionId()}").touch()  # this task's core has done with whatever it did before
        wait_for(vertex_gate)
    has = f"seed {os.environ.get('PYTHONHASHSEED')} package {airflow_provider.__file__}"
    for frame in frames:
        yield frame.assign(id=frame["id"] * 2, has=has)


rows = spark.range(0, 400, 1, 2).repartition(4, "id")
doubled = checkpoint(rows.mapInPandas(double, "id long, has string"), "doubled")
totals = checkpoint(doubled.groupBy((F.col("id") % 10).alias("digit")).agg(F.sum("id").alias("total")), "totals")
for row in doubled.select("has").distinct().collect():
    sys.stdout.write(f"EXECUTOR {row['has']}\n")
wait_for(output_gate)
totals.coalesce(1).write.mode("overwrite").parquet(target)
