"""Airflow's retries of a task: which tries are automatic, and whether what a try leaves outlives the pause after it.

Tries that nobody has cleared in between have the same word (:func:`series_of`). Clearing a task raises its
``max_tries`` to the number of its last try and its retries, which a retry leaves alone; where it runs at that moment,
it does not. So the number of times that tasks of the run were cleared counts, too: since Airflow 3.2 it grows with
each clearing, while 3.1 counts only those of runs that have ended. A DAG whose ``retries`` are lowered at the same
time could hide a clearing, so they count as well. Not seen is a running task that is cleared by the REST API with
``reset_dag_runs=false``.

What nobody has touched for the retention is garbage (:func:`lost_between_tries`). Each try touches it, so what counts
is the longest single pause. Users have lost state to a retention shorter than the retry delay (apache/airflow#70718).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow import __version__

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_LONGEST_BACKOFF = timedelta(days=1)
"""What Airflow limits a delay to that grows (``MAX_RETRY_DELAY``)."""
_COUNTS_ALL_CLEARINGS = (3, 2)


def longest_pause(
    retries: int, retry_delay: timedelta, backoff: float = 0, max_retry_delay: timedelta | float | None = None
) -> timedelta:
    """Return the longest pause between two tries; zero without retries.

    Source: ``TaskInstance.next_retry_datetime``, which draws a growing delay between its least and twice that.

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
    """Return what is wrong if a retry of *task* may find that its state is gone; empty text if nothing is.

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
    """Return the word; empty text if this Airflow does not tell for certain.

    :param retries: the task's
    """
    cleared = getattr(context.get("dag_run"), "clear_number", None)
    told = (cleared, getattr(context["ti"], "max_tries", None), retries)
    version = tuple(int(part) for part in __version__.split(".")[:2])
    if version < _COUNTS_ALL_CLEARINGS or not all(isinstance(each, int) for each in told):
        return ""
    return "airflow-{}-{}-{}".format(*told)
