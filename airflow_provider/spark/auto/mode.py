"""Enter auto mode: look on while the script runs, and in a retry put back what survived before its actions run.

An attempt with nothing to put back is plain Spark. Only ``DataFrame.rdd`` is looked at then, to note the query, whose
shuffles Spark runs without announcing them, and ``DataFrame.cache``, to tell the cached frames apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider.spark.auto.actions import noted_rdds, restored_actions
from airflow_provider.spark.auto.cached_frames import noted_caches
from airflow_provider.spark.auto.restoring import Restorer, restorable
from airflow_provider.spark.auto.watching import Watcher

if TYPE_CHECKING:
    from airflow_provider.spark.calls import Stages
    from airflow_provider.spark.context import RecoveryContext


@contextmanager
def auto_mode(context: RecoveryContext) -> Iterator[Sequence[Stages]]:
    """Keep the shuffles of the script that runs inside, if the job's options say so; what its calls are to pass."""
    options = context.master.request.options
    if not options.enabled or options.recovery_points != "auto":
        yield ()
        return
    watcher = Watcher(context)
    wanted = restorable(context)
    restored = [restored_actions(Restorer(context, watcher, wanted))] if wanted else []
    watcher.start()
    try:
        yield [noted_rdds(watcher), *restored, noted_caches(context)]  # noted before any of it has run
    finally:
        watcher.stop()
