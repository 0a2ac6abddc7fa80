"""Enter auto mode: look on while the script runs, and in a retry put back what survived before its actions run.

An attempt with nothing to put back is plain Spark. Only ``DataFrame.rdd`` is wrapped then: it notes the query, whose
shuffles Spark runs without announcing them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from airflow_provider.spark.auto.actions import noting_rdds, restoring_actions
from airflow_provider.spark.auto.restoring import Restorer, restorable
from airflow_provider.spark.auto.watching import Watcher

if TYPE_CHECKING:
    from airflow_provider.spark.context import RecoveryContext


@contextmanager
def auto_mode(context: RecoveryContext) -> Iterator[None]:
    """Keep the shuffles of the script that runs inside, if the job's options say so."""
    options = context.master.request.options
    if not options.enabled or options.recovery_points != "auto":
        yield
        return
    with ExitStack() as stack:
        watcher = Watcher(context)
        wanted = restorable(context)
        if wanted:
            stack.enter_context(restoring_actions(Restorer(context, watcher, wanted)))
        stack.enter_context(noting_rdds(watcher))
        watcher.start()
        stack.callback(watcher.stop)
        yield
