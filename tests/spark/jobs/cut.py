"""One vertex whose partitions follow from the size of the cluster; all but the first wait at a gate."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from pyspark import TaskContext
from pyspark.sql import SparkSession

from airflow_provider.spark import checkpoint

kind, source, gate, target = sys.argv[1:5]
spark = SparkSession.builder.getOrCreate()


def double(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        while TaskContext.get().partitionId() > 0 and not Path(gate).exists():
            time.sleep(0.05)
        yield frame.assign(id=frame["id"] * 2)


rows = {
    "files": lambda: spark.read.parquet(source),
    "range": lambda: spark.range(400),
    "shuffle": lambda: spark.range(400).repartition("id"),
}[kind]()
doubled = checkpoint(rows.mapInPandas(double, "id long"), "doubled")
doubled.coalesce(1).write.mode("overwrite").parquet(target)
