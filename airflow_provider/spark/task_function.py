"""The driver's part of ``@task.spark_recovery``: call the function and store its result for the worker.

The result goes into the job's events, where every later try finds it, even if its worker never saw the driver. If
events cannot be written, or nothing is recorded, it goes into a file beside the script, for a worker on the same
machine.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from airflow_provider.core.plain_json import json_of
from airflow_provider.core.report import RETURNED
from airflow_provider.spark.context import recording

log = logging.getLogger(__name__)


def run_task_function(function: Callable[..., Any], filled: Sequence[str], arguments: str) -> None:
    """Call the function with the Spark session and its arguments; store its result, ``None`` after ``sys.exit(0)``.

    :param filled: parameters that take the session (``spark``) or its context (``sc``)
    :param arguments: the others, as a JSON object
    :raises ConfigurationError: the result is no JSON, or too large
    """
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    sessions: dict[str, Callable[[], Any]] = {"spark": lambda: spark, "sc": lambda: spark.sparkContext}
    value = None
    try:
        value = function(**{name: sessions[name]() for name in filled}, **json.loads(arguments))
    except SystemExit as end:
        if end.code:
            raise
    text = json_of(
        value,
        f"The task function {function.__name__!r}",
        purpose="go to XCom",
        not_plain="Return plain JSON (texts, numbers, lists, dictionaries), and write everything else to storage.",
        too_large="Write it to storage and return where it is.",
    )
    _keep(text)


def _keep(text: str) -> None:
    context = recording()
    if context is not None:
        master = context.master
        master.check()
        if master.remember(RETURNED, {"attempt": master.epoch, "value": json.loads(text)}):
            return
    place = Path(sys.argv[0]).with_suffix(".json")
    try:
        unfinished = place.with_suffix(".part")
        unfinished.write_text(text)
        os.replace(unfinished, place)
    except OSError as error:
        log.warning(
            "What the task function returned is lost: it can be kept neither in the store nor in a file: %s", error
        )
