"""Two attempts on a cluster; an executor dies after map outputs were put back on it. Arguments: FOLDER ORDERS"""

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_provider.spark.jvm.executors import executors, on_executors, wait_for_executor
from tests.spark.attempts import Attempts
from tests.spark.auto.watched import auto_attempt

folder, orders = Path(sys.argv[1]), sys.argv[2]
spark = SparkSession.builder.getOrCreate()


def query():  # type: ignore[no-untyped-def]
    totals = spark.read.parquet(orders).groupBy("customer").sum("amount").withColumnRenamed("sum(amount)", "total")
    return totals.groupBy("total").count()


def executor_process(_dirs, work):  # type: ignore[no-untyped-def]
    """Python workers are forked by a daemon, whose parent is the executor."""
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return [int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:") for _ in work]


wait_for_executor(spark)
attempts = Attempts(folder)
with auto_attempt(attempts, spark) as first:
    df = query()
    rows = sorted(df.collect())
    assert len(first.keep(df)) == 2
with auto_attempt(attempts, spark) as second:
    again = query()
    assert second.restore(again)
    holders = {place for files in second.application.registry.put_back.values() for place, _ in files}
    processes = on_executors(spark, {place: [0] for place in executors(spark) if place in holders}, executor_process)
    assert "shuffle(total)" in second.put_back()
    os.kill(processes[0][1], signal.SIGKILL)
    assert sorted(again.collect()) == rows
spark.stop()
