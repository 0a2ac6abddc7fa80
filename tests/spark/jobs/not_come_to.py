"""A job whose driver dies when Spark has committed four partitions and the driver has recorded one of them."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_provider.spark import checkpoint
from airflow_provider.spark.jvm.partition_write import WrittenPartition
from airflow_provider.spark.points.native_write import NativeWrite

target, begun = sys.argv[1], Path(sys.argv[2])
take, heard = NativeWrite._take, list[WrittenPartition]()


def take_one(write: NativeWrite, written: Sequence[WrittenPartition]) -> None:
    if not heard:
        take(write, written[:1])
    heard.extend(written)
    if len(heard) == 4:
        os.kill(os.getpid(), signal.SIGKILL)


if not begun.exists():
    begun.touch()
    NativeWrite._take = take_one  # type: ignore[method-assign]
spark = SparkSession.builder.getOrCreate()
doubled = checkpoint(spark.range(0, 400, 1, 4).selectExpr("id * 2 AS id"), "doubled")
doubled.coalesce(1).write.mode("overwrite").parquet(target)
