"""Append to a folder in which another application attempt begins a write right behind this one's leave to commit.

Usage: committed_beside.py TARGET. What stands behind the write is what a driver does that was paused there. Its tasks
move their files into the folder themselves, as soon as the lease is confirmed.
"""

import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider.spark.jvm.commit_gate import CommitGate

target = Path(sys.argv[1])
spark = SparkSession.builder.getOrCreate()
dead, successor = (target / "_temporary" / number / "task_1" for number in ("66", "77"))
dead.mkdir(parents=True)
left = [0.0]
gate = CommitGate(spark, lambda: left[0])


@F.udf("long")
def marked(value: int) -> int:
    Path(f"{target}.{value}").touch()
    return value


def write() -> None:
    writer = spark.range(0, 100, 1, 2).select(marked("id").alias("id")).write.mode("append")
    with gate.watching(f"file:{target}", lambda _: None, lambda: successor.mkdir(parents=True)):
        writer.option("mapreduce.fileoutputcommitter.algorithm.version", "2").parquet(str(target))


thread = threading.Thread(target=write)
thread.start()
while thread.is_alive() and len([*target.parent.glob(f"{target.name}.*")]) < 100:
    time.sleep(0.05)
if [*target.glob("part-*")]:
    sys.exit("a task has committed without a lease")
left[0] = 3600.0
thread.join()
