"""Airflow's retries: which tries are automatic, which belong together, and how long a job's state must last.

Tries with no clearing in between share a series (:func:`series_of`). Clearing a task raises its ``max_tries`` to the
number of its last try plus its retries; a retry does not change it, and neither does clearing a task that is running.
So the series also holds the number of times that tasks of the run were cleared: since Airflow 3.2 every clearing
increases it, in 3.1 only one of a run that has ended. Lowering a DAG's ``retries`` at the same time could hide a
clearing, so the series holds ``retries``, too. One case stays unseen: a running task that is cleared by the REST API
with ``reset_dag_runs=false``.

A job that nothing has touched for the retention is garbage (:func:`lost_between_tries`). Each try touches it, so the
longest single pause counts. Users have lost state to a retention shorter than the retry delay (apache/airflow#70718).
"""

from __future__ import annotations

import logging
import uuid
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow import __version__

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.job import run_mark

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_log = logging.getLogger(__name__)
_LONGEST_BACKOFF = timedelta(days=1)
"""What Airflow limits a delay to that grows (``MAX_RETRY_DELAY``)."""
_COUNTS_ALL_CLEARINGS = (3, 2)
_NAME_KEY = "spark_recovery_run"
"""In the task's state in Airflow."""


def longest_pause(
    retries: int, retry_delay: timedelta, backoff: float = 0, max_retry_delay: timedelta | float | None = None
) -> timedelta:
    """Return the longest possible pause between two tries; zero without retries.

    Source: ``TaskInstance.next_retry_datetime``, which draws a growing delay between its minimum and twice that.

    :param backoff: factor by which the delay grows from try to try; 0 or 1 for a constant one
    :param max_retry_delay: seconds, if it is a number
    """
    if retries < 1:
        return timedelta(0)
    factor = 2.0 if backoff is True else float(backoff)
    if factor in (0.0, 1.0):
        return retry_delay
    limit = _LONGEST_BACKOFF
    if max_retry_delay is not None:
        given = max_retry_delay if isinstance(max_retry_delay, timedelta) else timedelta(seconds=max_retry_delay)
        limit = min(limit, given)
    try:
        return min(limit, 2 * retry_delay * max(factor ** (retries - 1), 1.0))
    except OverflowError:
        return limit


def lost_between_tries(task: Any, retention: float) -> str:
    """Return a warning if a retry of *task* may find its state gone; empty text otherwise.

    :param retention: seconds
    """
    pause = longest_pause(task.retries or 0, task.retry_delay, task.retry_exponential_backoff, task.max_retry_delay)
    if pause.total_seconds() < retention:
        return ""
    return (
        f"Up to {pause} lie between two tries of this task, but 'retention' keeps what a try leaves for "
        f"{timedelta(seconds=retention)} only: 'spark-recovery gc' may delete it before the retry. "
        "Raise retention, or lower retry_delay."
    )


def series_of(context: Context, retries: int | None) -> str:
    """Return the series of a try; empty text if this Airflow does not provide it for certain.

    :param retries: the task's ``retries``
    """
    cleared = getattr(context.get("dag_run"), "clear_number", None)
    told = (cleared, getattr(context["ti"], "max_tries", None), retries)
    version = tuple(int(part) for part in __version__.split(".")[:2])
    if version < _COUNTS_ALL_CLEARINGS or not all(isinstance(each, int) for each in told):
        return ""
    return "airflow-{}-{}-{}".format(*told)


def try_of(context: Context) -> int:
    """Return the number of a try; 0 if it is unknown."""
    number = getattr(context["ti"], "try_number", 0)
    return number if isinstance(number, int) else 0


def mark_of(context: Context) -> str:
    """Return a mark that distinguishes *context*'s DAG run from others of its name; empty text if nothing does."""
    run = context.get("dag_run")
    began = getattr(run, "start_date", None)
    if not isinstance(began, datetime):
        return ""
    return run_mark(began, getattr(run, "clear_number", 0), _first_said(context, _NAME_KEY, uuid.uuid4().hex))


def require_same_store(context: Context, series: str, event_store: str) -> None:
    """Make sure that automatic retries submit their job with the event store in which the first try recorded it.

    :param series: see :func:`series_of`
    :raises ConfigurationError: the event store has changed since
    """
    first = _first_said(context, f"spark_recovery_store_{series}", event_store) if series else event_store
    if first not in ("", event_store):
        raise ConfigurationError(
            f"The event store has changed from {first} to {event_store} between two tries. What the job has computed "
            "and written is recorded in the first one, where its driver may still be running.",
            remedy="Set it back, or clear the task to start with the new one: its outputs are then written again.",
        )


def _first_said(context: Context, key: str, value: str) -> str:
    """Return what the first of the task's tries in this DAG run has said, *value* if none has; empty text before
    Airflow 3.3.

    Airflow keeps it with the task's state, which ends with the run.
    """
    state = context.get("task_state_store")
    if state is None:
        return ""
    try:
        said = state.get(key)
        if not said:
            state.set(key, value)
    except Exception as error:  # noqa: BLE001 - whatever a backend raises, the job can run
        _log.warning("Airflow does not keep the task's state: %s", error)
        return ""
    return str(said or value)
