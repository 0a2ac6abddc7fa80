"""Put what survived back into the plan of an action, before it runs.

The plan stays the user's own. Its query stages are made in advance, as adaptive execution makes them. If the store has
map outputs of a shuffle, they are put into the executors' directories and registered with Spark's tracker, with the
rows and bytes that Spark counted when they were written. Spark then finds the shuffle complete, or runs the missing map
tasks. Each shuffle keeps its true child, so Spark can recompute an output that is lost again.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider.core.causes import one_line
from airflow_provider.core.errors import Fenced
from airflow_provider.core.events import SHUFFLE
from airflow_provider.spark.auto.restored_plan import RestoredPlan
from airflow_provider.spark.jvm.adaptive_plan import adaptive_plans
from airflow_provider.spark.jvm.queries import hash_of
from airflow_provider.spark.jvm.reflection import NoSuchMember
from airflow_provider.spark.jvm.session_settings import QuerySettings, active_session, all_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Set

    from airflow_provider.spark.auto.watching import Watcher
    from airflow_provider.spark.context import RecoveryContext

log = logging.getLogger(__name__)


class _Thread(threading.local):
    """What a thread's queries may start from besides survivors of earlier attempts."""

    kept: Set[str] = frozenset()


def restorable(context: RecoveryContext) -> set[str]:
    """Return the vertices of shuffles that have surviving map outputs."""
    return {
        identity
        for identity, vertex in context.master.graph.vertices.items()
        if vertex.initialized.rule == SHUFFLE and context.master.survivors(identity)
    }


class Restorer:
    """Puts shuffles back into the plans of one driver's actions.

    :param watcher: knows the running Spark application
    :param wanted: the vertices that have survived, as :func:`restorable` returns them
    """

    def __init__(self, context: RecoveryContext, watcher: Watcher, wanted: set[str]) -> None:
        self._context = context
        self._watcher = watcher
        self._survived = wanted
        self._thread = _Thread()
        self._lock = threading.Condition()
        self._under_way: set[int] = set()
        self._unable = False

    @property
    def wanted(self) -> Set[str]:
        """The vertices whose stored outputs this thread's queries may start from; released ones are left out."""
        known = ((identity, self._context.master.vertex(identity)) for identity in self._survived)
        there = {identity for identity, vertex in known if vertex is not None and not vertex.released}
        return there | self._thread.kept

    @contextmanager
    def with_kept(self) -> Iterator[None]:
        """Let this thread's queries inside start from what this attempt has kept so far, too."""
        self._thread.kept = restorable(self._context)
        try:
            yield
        finally:
            self._thread.kept = frozenset()

    def before(self, spark: Any, execution: Any, *, in_tasks: bool = True) -> bool:
        """Put what survived into the plan of a query that has not started; return whether the plan has started by that.

        If so, run this plan, not another one of the same query: stages of it may have run ahead. Whatever goes wrong
        here, the query runs as it would have.

        :param spark: the session
        :param execution: the ``QueryExecution`` that the action is about to run
        :param in_tasks: whether its tasks will know the session's settings
        :raises Fenced: a newer attempt owns the job
        """
        plan = None
        try:
            application = self._watcher.application()
            if self._unable or application is None or not self._context.master.usable:
                return False
            with self._lock, active_session(spark):
                if application.begins(execution) > 1:
                    self._wait_for({hash_of(spark, execution)})
                    return False
                settings = QuerySettings(all_settings(spark), in_tasks)
                plan = RestoredPlan(self._context, application, spark, self.wanted, self._lock, settings, execution)
                self._restore(plan, spark, execution)
        except Fenced:
            raise
        except NoSuchMember as error:
            self._unable = True
            log.warning("Nothing is put back in this attempt, with this version of Spark: %s", one_line(error))
        except Exception as error:
            log.warning("Nothing more is put back into this query: %s", one_line(error))
            log.debug("Restoring failed", exc_info=error)
        return plan is not None and plan.begun

    def _restore(self, plan: RestoredPlan, spark: Any, execution: Any) -> None:
        """Restore, but first wait for other threads that restore the same plan: a frame's, or a cached one below it."""
        adaptive = list(adaptive_plans(execution.executedPlan(), spark))
        own = {hash_of(spark, owner) for owner in (execution, *(plan for plan, _ in adaptive))}
        self._wait_for(own)
        self._under_way |= own
        try:
            plan.restore(adaptive)
        finally:
            self._under_way -= own
            self._lock.notify_all()

    def _wait_for(self, plans: set[int]) -> None:
        self._lock.wait_for(lambda: self._under_way.isdisjoint(plans))

    def confirm_ownership(self) -> None:
        """Make sure, before a write, that this attempt still owns the job.

        :raises RecoveryError: it does not, or cannot find out
        """
        self._context.master.check_now()
