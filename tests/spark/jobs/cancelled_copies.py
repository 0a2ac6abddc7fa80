"""Two outputs; between them the script cancels whatever job runs, which are none of its own.

Usage: cancelled_copies.py SOURCE TARGET COUNTED
"""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

source, target, counted = sys.argv[1:4]
spark = SparkSession.builder.getOrCreate()
orders = spark.read.parquet(source)
orders.groupBy("customer").sum("amount").toDF("key", "value").write.parquet(f"{target}/a")
tracker, cancelled, end = spark.sparkContext.statusTracker(), set(), time.monotonic() + 8
while time.monotonic() < end:
    active = tracker.getActiveJobsIds()
    if active:
        spark.sparkContext.cancelAllJobs()
        cancelled |= set(active)
    time.sleep(0.01)
Path(counted).write_text(str(len(cancelled)))
orders.groupBy("amount").count().toDF("key", "value").write.parquet(f"{target}/b")
