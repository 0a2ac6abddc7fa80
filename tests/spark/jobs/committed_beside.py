"""Append to a folder in which another application attempt begins a write right behind this one's leave to commit.

Usage: committed_beside.py TARGET. What stands behind the write is what a driver does that was paused there.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_provider.spark.jvm.commit_gate import CommitGate

target = Path(sys.argv[1])
spark = SparkSession.builder.getOrCreate()
dead, successor = (target / "_temporary" / number / "task_1" for number in ("66", "77"))
dead.mkdir(parents=True)
with CommitGate(spark).watching(f"file:{target}", lambda _: None, lambda: successor.mkdir(parents=True)):
    spark.range(0, 100, 1, 2).write.mode("append").parquet(str(target))
