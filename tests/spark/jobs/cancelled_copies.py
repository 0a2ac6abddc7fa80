"""Two outputs; meanwhile a thread of the script cancels whatever job runs that is none of its own.

Usage: cancelled_copies.py SOURCE TARGET COUNTED
"""

import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

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
        time.sleep(0.005)


thread = threading.Thread(target=cancel)
thread.start()
orders = spark.read.parquet(source)
orders.groupBy("customer").sum("amount").toDF("key", "value").write.parquet(f"{target}/a")
end = time.monotonic() + 30
while not cancelled and time.monotonic() < end:
    time.sleep(0.05)
ended.set()
thread.join()
Path(counted).write_text(str(len(cancelled)))
orders.groupBy("amount").count().toDF("key", "value").write.parquet(f"{target}/b")
