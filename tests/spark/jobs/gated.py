"""A job that waits at two gates, which are files: in the middle of its vertex, and in the driver before its write."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession

from airflow_provider.spark import checkpoint

target, vertex_gate, output_gate = sys.argv[1:4]
spark = SparkSession.builder.getOrCreate()


def wait_for(gate: str) -> None:
    while not Path(gate).exists():
        time.sleep(0.05)


def double(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The upper half of the rows, two partitions of four, waits."""
    for frame in frames:
        if frame["id"].max() >= 200:
            while not Path(vertex_gate).exists():
                time.sleep(0.05)
        yield frame.assign(id=frame["id"] * 2)


doubled = checkpoint(spark.range(0, 400, 1, 4).mapInPandas(double, "id long"), "doubled")
wait_for(output_gate)
doubled.coalesce(1).write.mode("overwrite").parquet(target)
