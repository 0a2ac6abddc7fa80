"""Sends a job's numbers to whatever Airflow is configured for: its metrics, and the OpenTelemetry span of the task.

Nothing here may harm a task: a monitoring system that is gone, or not installed, is a line in the debug log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from airflow_provider.operators.metrics import STORE_ERRORS, metrics_of, tags_of
from airflow_provider.recovery.report import JobReport


def tell(report: JobReport, log: logging.Logger, *, recorded: bool = True) -> None:
    """Send the numbers of the newest attempt; called once for each attempt that a task has seen the end of.

    :param recorded: whether the store knows how the attempt ended
    """
    _send(report.job, lambda: metrics_of(report, recorded=recorded), log)


def tell_store_error(job: str, log: logging.Logger) -> None:
    """Count an end of which the event store does not tell, because it cannot be read.

    :param job: the job's id, as text
    """
    _send(job, lambda: {STORE_ERRORS: 1}, log)


def _send(job: str, make: Callable[[], Mapping[str, int]], log: logging.Logger) -> None:
    try:
        numbers, tags = make(), tags_of(job)
    except Exception as error:  # noqa: BLE001 - see the module's docstring
        log.debug("The job's numbers cannot be told: %s", error)
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
    """Set the numbers as attributes of the task's span; without a span, or without the package, nothing happens."""
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
