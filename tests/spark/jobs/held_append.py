"""Append 6 partitions, 100 rows, whose tasks commit into the folder by themselves; behind two of them they wait.

Usage: held_append.py df TARGET GATE. The ones that begin when GATE is there mark in GATE.PARTITION what they have made.
"""

import sys
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

_, target, gate = sys.argv[1:4]
spark = SparkSession.builder.getOrCreate()


@F.udf("long")
def held(value: int) -> int:
    context = TaskContext.get()
    assert context is not None
    number = context.partitionId()
    while number in (2, 3) and not Path(gate).exists():
        time.sleep(0.05)
    if number > 3:
        Path(f"{gate}.{number}").touch()
    return value


Path(f"{gate}.reached").touch()
writer = spark.range(0, 100, 1, 6).select(held("id").alias("id")).write.mode("append")
writer.option("mapreduce.fileoutputcommitter.algorithm.version", "2").parquet(target)
