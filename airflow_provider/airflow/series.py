"""Which tries of a task Airflow has started by itself: the same word for tries that nobody has cleared in between.

Clearing a task raises its ``max_tries`` to the number of its last try and its retries, which a retry leaves alone;
where it runs at that moment, it does not. So the number of times that tasks of the run were cleared counts, too: since
Airflow 3.2 it grows with each clearing, while 3.1 counts only those of runs that have ended. A DAG whose ``retries``
are lowered at the same time could hide a clearing, so they count as well.

Not seen is a running task that is cleared by the REST API with ``reset_dag_runs=false``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow import __version__

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_COUNTS_ALL_CLEARINGS = (3, 2)


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
