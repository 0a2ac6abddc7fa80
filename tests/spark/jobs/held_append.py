"""Write 6 partitions, 100 rows, whose tasks commit into the folder by themselves; behind two of them they wait.

Usage: held_append.py df|rdd TARGET GATE. What is made behind GATE is marked in GATE.PARTITION.
"""

import sys
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

how, target, gate = sys.argv[1:4]
spark = SparkSession.builder.getOrCreate()


def held(value: int) -> int:
    context = TaskContext.get()
    assert context is not None
    number = context.partitionId()
    while number in (2, 3) and not Path(gate).exists():
        time.sleep(0.05)
    if number > 1:
        Path(f"{gate}.{number}").touch()
    return value


Path(f"{gate}.reached").touch()
rows = spark.range(0, 100, 1, 6)
if how == "rdd":
    rows.rdd.map(lambda row: held(row.id)).saveAsTextFile(target)
else:
    writer = rows.select(F.udf(held, "long")("id").alias("id")).write.mode("append")
    writer.option("mapreduce.fileoutputcommitter.algorithm.version", "2").parquet(target)
