"""From a job's report to numbers for monitoring. Pure: who sends them is in ``operators.telemetry``."""

from __future__ import annotations

from airflow_provider.recovery.job import JobId
from airflow_provider.recovery.report import JobReport

PREFIX = "spark_recovery."
"""Begins the name of every metric and of every span attribute."""

STORE_ERRORS = f"{PREFIX}store_errors"
"""The event store could not be read at the end of a try, or has no record of the job's success."""


def metrics_of(report: JobReport, *, recorded: bool = True) -> dict[str, int]:
    """Return what the newest attempt adds to each counter, by its whole name; zeros are named, too.

    Bytes are stored bytes; milliseconds are task time, summed over partitions. All are counts, so that sums over tasks
    and time mean something.

    :param recorded: whether the store knows how the attempt ended
    """
    reached = [vertex for vertex in report.vertices if vertex.reached]
    newest = report.attempts[-1] if report.attempts else None
    resumed = newest is not None and len(report.attempts) > 1 and not newest.fresh
    numbers = {
        "attempts": int(newest is not None),
        "attempts_resumed": int(resumed),
        "partitions_reused": report.partitions_reused,
        "partitions_computed": report.partitions_computed,
        "bytes_reused": report.bytes_reused,
        "task_milliseconds_saved": _milliseconds(report.task_seconds_saved),
        "task_milliseconds_computed": _milliseconds(sum(vertex.task_seconds for vertex in reached)),
        "task_milliseconds_storing": _milliseconds(sum(vertex.storing_seconds for vertex in reached)),
        "restarts": newest.restarts if newest is not None else 0,
        "store_retries": newest.store_retries if newest is not None else 0,
    }
    return {f"{PREFIX}{name}": number for name, number in numbers.items()} | {STORE_ERRORS: int(not recorded)}


def tags_of(job: str) -> dict[str, str]:
    """Return the tags with which the numbers are sent: those of Airflow's own metrics of a task instance.

    :param job: the job's id, as text
    """
    dag_id, _run_id, task_id, _map_index = JobId.parse(job).parts
    return {"dag_id": dag_id, "task_id": task_id}


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
