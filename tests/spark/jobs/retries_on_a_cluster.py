"""Attempts, each in an application of its own, as the lines of its input say. Usage: FOLDER ORDERS ANSWERS

A line is JSON: the ``job`` whose attempt it is, the application's ``settings``, recovery ``options``, and what happens
``then``. Between putting back and the action: ``kill`` an executor that holds restored map outputs, be ``idle`` for
longer than Spark lets one, or wait until all are ``gone``. Between the action and keeping: ``lose`` an executor that
has written map outputs. Each answer is JSON, too.
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
from airflow_provider.spark.jvm.map_output_tracker import MapOutputTracker
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


def kill(spark, holders):  # type: ignore[no-untyped-def]
    """Kill one of the executors that hold something; return which."""
    victim = next(place for place in executors(spark) if place in holders)
    ((_, process),) = on_executors(spark, {victim: [0]}, executor_process)
    os.kill(process, signal.SIGKILL)
    return victim


def writers(spark):  # type: ignore[no-untyped-def]
    tracker = MapOutputTracker(spark)
    return {status.writer for number in tracker.shuffles() for status in tracker.statuses(number)}


def attempt(settings, options, then, job):  # type: ignore[no-untyped-def]
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    rows = []
    with auto_attempt(Attempts(folder / job, options), spark) as attempt:
        df = query(spark)
        began = time.monotonic()
        attempt.restore(df)
        took = time.monotonic() - began
        held = [place for files in attempt.application.registry.put_back.values() for place, _ in files]
        if then == "kill":
            kill(spark, held)
        if then == "idle":
            time.sleep(2 * spark._jsc.sc().conf().getTimeAsSeconds("spark.dynamicAllocation.executorIdleTimeout"))
        while then == "gone" and executors(spark):
            time.sleep(0.05)
        left = [executor for executor, _ in executors(spark)]
        tasks = tasks_run(spark, lambda: rows.extend(sorted(map(list, df.collect()))))
        if then == "lose":
            victim = kill(spark, writers(spark))
            while victim in executors(spark):
                time.sleep(0.05)
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
