"""Switch auto mode on: observe while the script runs and, in a retry, put back what survived before its actions run.

An attempt with nothing to put back is plain Spark. Only two calls are intercepted then: ``DataFrame.rdd``, to note the
query, whose shuffles Spark runs without announcing them, and ``DataFrame.cache``, to tell cached frames apart. An
action that failed and runs again in the same attempt counts as a retry, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.auto.actions import noted_caches, noted_rdds, restored_actions
from airflow_provider.spark.auto.restoring import Restorer, restorable
from airflow_provider.spark.auto.watching import Watcher

if TYPE_CHECKING:
    from airflow_provider.spark.calls import Stages
    from airflow_provider.spark.context import RecoveryContext


@contextmanager
def auto_mode(context: RecoveryContext) -> Iterator[Sequence[Stages]]:
    """Keep the shuffles of the script that runs inside, if the job's options say so; yield the stages for its calls."""
    options = context.master.request.options
    if not options.enabled or options.recovery_points != "auto":
        yield ()
        return
    watcher = Watcher(context)
    restorer = Restorer(context, watcher, restorable(context))
    context.shuffles = Shuffles(context, watcher, restorer)
    with watcher.looking():
        try:
            # noted before any of it has run
            yield [noted_rdds(watcher), restored_actions(restorer), noted_caches(context, restorer)]
        finally:
            context.shuffles = None


@dataclass(frozen=True)
class Shuffles:
    """What happens to kept shuffles when something is restarted inside the application."""

    context: RecoveryContext
    watcher: Watcher
    restorer: Restorer

    def failed(self, execution: Any) -> None:
        """Keep what a failed query has shuffled; when it runs again, that counts as the same occurrence."""
        if not self._everything:
            self.watcher.catch_up()
        self.context.occurrences.failed(execution)

    def give_up(self, vertices: Collection[str]) -> None:
        """Stop putting back these shuffles, which were kept until now."""
        application = self.watcher.application()
        if application is not None:
            application.give_up(vertices)

    def restoring(self) -> AbstractContextManager[None]:
        """Let this thread's query inside start from what this attempt has kept, too, unless all is to run again."""
        return nullcontext() if self._everything else self.restorer.with_kept()

    @property
    def _everything(self) -> bool:
        return self.context.master.request.options.failover_strategy == "full"
