"""Writes 1,200 rows in 24 tasks, map-only or behind a shuffle; dies when some of them have committed, if told so.

Usage: dying_tasks.py TARGET HOW DIE RAN. HOW is ``map``, ``shuffle``, or ``table`` for a shuffle that is written with
``saveAsTable``: then it dies when a map output is stored. DIE is a file that says how many tasks have to
have committed in this attempt, not counting the first one's; without it nobody dies. RAN is a folder that gets a file
for each number that a function has seen.
"""

import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

target, how, die, ran = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
spark = SparkSession.builder.getOrCreate()
pids = [int(spark._jvm.java.lang.ProcessHandle.current().pid()), os.getpid()]
(die.parent / "pids").write_text(" ".join(map(str, pids)))


@F.udf("long")
def seen(number: int) -> int:
    (ran / str(number)).touch()
    wanted = die.read_text() if die.exists() else ""
    if wanted and len(list(target.glob("_temporary/*/task_*[1-9]"))) >= int(wanted):
        die.unlink(missing_ok=True)
        while how == "table" and not list((die.parent / "store").rglob("*.shuffle*")):
            time.sleep(0.05)
        for pid in (die.parent / "pids").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
    return number


rows = spark.range(0, 1200, 1, 24)
if how != "map":
    rows = rows.withColumn("key", F.abs("id")).groupBy("key").agg(F.max("id").alias("id"))
rows = rows.select(seen("id").alias("id"), (F.col("id") % 2).alias("half"))
if how == "table":
    spark.sql(f"CREATE TABLE made (id BIGINT, half BIGINT) USING parquet LOCATION '{target}'")
    rows.write.mode("append").saveAsTable("made")
else:
    rows.write.mode("append").parquet(str(target))
