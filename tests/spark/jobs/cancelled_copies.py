"""Two outputs; meanwhile a thread of the script cancels whatever job runs that is none of its own. The first output
waits behind its shuffle until one is cancelled, but no longer than a minute.

Usage: cancelled_copies.py SOURCE TARGET COUNTED
"""

import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

source, target, counted = sys.argv[1:4]
spark = SparkSession.builder.getOrCreate()
context = spark.sparkContext
context.setJobGroup("own", "of the script")
tracker, cancelled, ended = context.statusTracker(), set(), threading.Event()


def cancel() -> None:
    while not ended.is_set():
        for job in set(tracker.getActiveJobsIds()).difference(tracker.getJobIdsForGroup("own"), cancelled):
            context._jsc.sc().cancelJob(job)
            cancelled.add(job)
            Path(counted).write_text(str(len(cancelled)))
        time.sleep(0.005)


@F.udf("long", useArrow=False)
def waits(value: int) -> int:
    end = time.monotonic() + 60
    while not Path(counted).exists() and time.monotonic() < end:
        time.sleep(0.05)
    return value


thread = threading.Thread(target=cancel)
thread.start()
orders = spark.read.parquet(source)
sums = orders.groupBy("customer").sum("amount").toDF("key", "value")
sums.withColumn("value", waits("value")).write.parquet(f"{target}/a")
ended.set()
thread.join()
orders.groupBy("amount").count().toDF("key", "value").write.parquet(f"{target}/b")
