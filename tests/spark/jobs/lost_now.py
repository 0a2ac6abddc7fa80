"""Two outputs of slow functions, each of whose rows takes a known time; in the last step before the end one waits.

The first output has one shuffle. The second has a cheap one, below two steps that are kept: by name, or as shuffles.
Before them the script looks at rows, as each attempt does; that starts the Python workers of all other tasks.

Usage: lost_now.py named|shuffled GATE TARGET ROWS; each row that is computed adds its seconds to the file ROWS.
"""

import sys
import time
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider.spark import checkpoint

mode, gate, target, rows = sys.argv[1:5]
WAITS = 107
spark = SparkSession.builder.config("spark.sql.adaptive.coalescePartitions.enabled", "false").getOrCreate()


def slow(seconds: float, *, waits: bool = False) -> Column:
    def work(key: int) -> int:
        time.sleep(seconds)
        while waits and key == WAITS and not Path(gate).exists():
            time.sleep(0.05)
        with open(rows, "a") as file:
            file.write(f"{seconds}\n")
        return key

    return F.udf(work, "long", useArrow=False)("key").alias("key")


def keys(first: int) -> DataFrame:
    """Eight rows in eight partitions."""
    return spark.range(first, first + 8, 1, 8).withColumnRenamed("id", "key")


def shuffled(frame: DataFrame) -> DataFrame:
    """The same keys, by a shuffle that no optimizer leaves out."""
    return frame.groupBy("key").count().select((F.col("key") + F.col("count") - 1).alias("key"))


def kept(frame: DataFrame, name: str) -> DataFrame:
    return checkpoint(frame, name) if mode == "named" else shuffled(frame)


keys(0).select(slow(0.25)).collect()
shuffled(keys(0).select(slow(1.0))).select(slow(0.5)).write.parquet(f"{target}/one")
cheap = shuffled(keys(100).select(slow(0.2)))
whole = kept(cheap.select(slow(1.0)), "whole")
part = kept(whole.select(slow(1.0, waits=True)), "part")
part.select(slow(0.25)).write.parquet(f"{target}/two")
