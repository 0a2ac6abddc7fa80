"""Attempts at one job, each in an application of its own, as the lines of its input say. Usage: FOLDER ORDERS ANSWERS

A line is JSON: the application's ``settings``, recovery ``options``, and what happens ``then``, between putting back
and the action: ``kill`` an executor that holds restored map outputs, or ``idle`` for longer than Spark lets one. So is
each answer.
"""

import json
import logging
import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_provider.spark.jvm.executors import executors, on_executors
from tests.spark.attempts import Attempts
from tests.spark.auto.watched import auto_attempt, tasks_run

folder, orders, answers = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])


def query(spark):  # type: ignore[no-untyped-def]
    totals = spark.read.parquet(orders).groupBy("customer").sum("amount").withColumnRenamed("sum(amount)", "total")
    return totals.groupBy("total").count()


def executor_process(_dirs, work):  # type: ignore[no-untyped-def]
    """Python workers are forked by a daemon, whose parent is the executor."""
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return [int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:") for _ in work]


def attempt(settings, options, then):  # type: ignore[no-untyped-def]
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    rows = []
    with auto_attempt(Attempts(folder, options), spark) as attempt:
        df = query(spark)
        began = time.monotonic()
        attempt.restore(df)
        took = time.monotonic() - began
        held = [place for files in attempt.application.registry.put_back.values() for place, _ in files]
        if then == "kill":
            victim = next(place for place in executors(spark) if place in held)
            ((_, process),) = on_executors(spark, {victim: [0]}, executor_process)
            os.kill(process, signal.SIGKILL)
        if then == "idle":
            time.sleep(2 * spark._jsc.sc().conf().getTimeAsSeconds("spark.dynamicAllocation.executorIdleTimeout"))
        left = [executor for executor, _ in executors(spark)]
        tasks = tasks_run(spark, lambda: rows.extend(sorted(map(list, df.collect()))))
        kept = attempt.keep(df)
        answer = {
            "rows": rows,
            "kept": kept,
            "put_back": attempt.put_back(),
            "holders": sorted({executor for executor, _ in held}),
            "left": left,
            "tasks": tasks,
            "took": took,
        }
    spark.stop()
    return answer


logging.basicConfig(level=logging.INFO)
for line in sys.stdin:
    answer = json.dumps(attempt(**json.loads(line)))
    with answers.open("a") as file:
        file.write(answer + "\n")
