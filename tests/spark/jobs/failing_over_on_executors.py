"""A query fails on two executors, under each restart strategy and both failover strategies. Usage: FOLDER ANSWERS CELLS

Its reducer either ends its ``executor``, or cannot ``fetch`` a map output that an earlier attempt has kept and this one
has put back. Spark tries neither of them again itself. Cells are a list in JSON: failure, strategy and failover
strategy of each. Each answer is a line of JSON.
"""

import json
import logging
import sys
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_provider.spark.auto.restoring import Restorer
from tests.spark.attempts import Attempts
from tests.spark.failing_queries import (
    KEEP_ALL,
    QUICK,
    FailingQuery,
    hundred,
    of_strategy,
    restarts,
    rows,
)

folder, answers = Path(sys.argv[1]), Path(sys.argv[2])
spark = SparkSession.builder.getOrCreate()
put_back = Restorer.before
losing = []
"""What is to be lost, as long as there is something to be put back."""


def losing_one(restorer, *args, **named):  # type: ignore[no-untyped-def]
    """Delete a file of each shuffle that was put back, on its executor."""
    begun = put_back(restorer, *args, **named)
    registry = restorer._watcher.application().registry
    for files in registry.put_back.values() if losing else ():
        output = files[-1][1]
        for path in folder.parent.rglob(output.index):
            path.unlink()
            losing.clear()
    return begun


def ask(query, attempts):  # type: ignore[no-untyped-def]
    """Run an attempt; return the rows, or what the script is told, and how often something was restarted."""
    with attempts.script() as context:
        try:
            told = rows(query.of(hundred(spark)))
        except (PySparkException, Py4JJavaError) as error:
            told = str(error)
        return told, restarts(context)


def fail(failure, strategy, failover):  # type: ignore[no-untyped-def]
    """Return what an attempt with these strategies has to say, and what has run; also after the next attempt, where
    nothing is restarted.
    """
    here = folder / f"{failure}-{strategy}-{failover}"
    here.mkdir(parents=True)
    attempts = Attempts(here / "store", {**KEEP_ALL, **QUICK, "restart_strategy": "none"})
    query = FailingQuery(here / "runs", here / "store", "SIGKILL" if failure == "executor" else "RuntimeError: once")
    query.fails(1)
    if failure == "fetch":
        ask(query, attempts)
        query.fails(0)
        losing.append(failure)
    attempts.options |= of_strategy(strategy, failover)
    told, restarted = ask(query, attempts)
    answer = {"told": told, "restarts": restarted, "lost": not losing, "ran": [query.ran("map"), query.ran("reduce")]}
    query.fails(0)
    then = [] if restarted else [ask(query, attempts)[0], query.ran("map")]
    return {**answer, "cell": here.name, "then": then}


logging.basicConfig(level=logging.INFO)
spark.sparkContext.setLogLevel("ERROR")
Restorer.before = losing_one
for cell in json.loads(sys.argv[3]):
    line = json.dumps(fail(*cell))
    with answers.open("a") as file:
        file.write(f"{line}\n")
spark.stop()
