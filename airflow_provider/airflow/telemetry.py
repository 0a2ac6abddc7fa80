"""Send a job's numbers to monitoring: to Airflow's metrics, and to the task's OpenTelemetry span.

Nothing here may fail a task: a monitoring system that is down or not installed causes a line in the debug log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from airflow_provider.core.job import JobId
from airflow_provider.core.report import JobReport

PREFIX = "spark_recovery."
"""Begins the name of every metric and of every span attribute."""

STORE_ERRORS = f"{PREFIX}store_errors"
"""The event store could not be read at the end of a try, or has no record of the job's success."""


def metrics_of(report: JobReport, *, recorded: bool = True) -> dict[str, int]:
    """Return what the newest attempt adds to each counter, by full name, zeros included.

    Bytes are stored bytes; milliseconds are task time, summed over partitions. All are counts, so they can be summed
    over tasks and time.

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
    """Return the tags of the numbers, the same as those of Airflow's own metrics of a task instance.

    :param job: the job's id, as text
    """
    dag_id, _run_id, task_id, _map_index = JobId.parse(job).parts
    return {"dag_id": dag_id, "task_id": task_id}


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def tell(report: JobReport, log: logging.Logger, *, recorded: bool = True) -> None:
    """Send the numbers of the newest attempt; called once for each attempt whose end a task has seen.

    :param recorded: whether the store knows how the attempt ended
    """
    _send(report.job, lambda: metrics_of(report, recorded=recorded), log)


def tell_store_error(job: str, log: logging.Logger) -> None:
    """Count an end that is unknown because the event store cannot be read.

    :param job: the job's id, as text
    """
    _send(job, lambda: {STORE_ERRORS: 1}, log)


def _send(job: str, make: Callable[[], Mapping[str, int]], log: logging.Logger) -> None:
    try:
        numbers, tags = make(), tags_of(job)
    except Exception as error:  # noqa: BLE001 - see the module's docstring
        log.debug("Cannot read the job's metrics: %s", error)
        return
    _count(numbers, tags, log)
    _describe_span(numbers, log)


def _count(numbers: Mapping[str, int], tags: dict[str, str], log: logging.Logger) -> None:
    """Add the numbers to Airflow's counters (``[metrics]``: StatsD, Datadog or OpenTelemetry)."""
    try:
        from airflow.providers.common.compat.sdk import Stats

        for name, number in numbers.items():
            Stats.incr(name, number, tags=tags)
    except Exception as error:  # noqa: BLE001 - see the module's docstring
        log.debug("Airflow's metrics were not told: %s", error)


def _describe_span(numbers: Mapping[str, int], log: logging.Logger) -> None:
    """Set the numbers as attributes of the task's span; do nothing without a span or without the package."""
    try:
        from opentelemetry import trace
    except ImportError:
        return
    try:
        span = trace.get_current_span()
        for name, number in numbers.items():
            span.set_attribute(name, number)
    except Exception as error:  # noqa: BLE001 - see the module's docstring
        log.debug("The task's span was not told: %s", error)
