"""Put what survived back into the plan of an action, before it runs.

The plan stays the user's own. Its query stages are made ahead, as adaptive execution makes them; where the store has
the map outputs of a shuffle, they are laid into the executors' directories and registered with Spark's tracker, with
the rows and bytes that Spark counted when they were written. Spark then finds the shuffle complete, or runs the map
tasks that are missing. Each shuffle has its true child, so an output that is lost again is computed again.

A shuffle is put back only if all that its map tasks read is cut as it was (the layout), because Spark may run any of
them again.
"""

from __future__ import annotations

import functools
import itertools
import logging
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_provider.recovery.causes import one_line
from airflow_provider.recovery.errors import Fenced
from airflow_provider.recovery.events import SHUFFLE
from airflow_provider.spark.auto.placing import lay_into_executors
from airflow_provider.spark.auto.shuffle_vertex import ROWS, SIZE, NotKept, ShuffleIdentity, ShuffleVertex
from airflow_provider.spark.jvm.adaptive_plan import AdaptivePlan, adaptive_plans, static_shuffles
from airflow_provider.spark.jvm.exchanges import SHUFFLE_EXCHANGE, SHUFFLE_STAGE, kind
from airflow_provider.spark.jvm.executors import allocates_dynamically, report_shuffle_file
from airflow_provider.spark.jvm.map_output_tracker import MapOutputTracker
from airflow_provider.spark.jvm.reflection import NoSuchMember
from airflow_provider.spark.jvm.settings import active_session
from airflow_provider.spark.map_output import UNKNOWN, MapOutput
from airflow_provider.spark.reading import location

if TYPE_CHECKING:
    from airflow_provider.recovery.partitions import StoredPartition
    from airflow_provider.spark.auto.watching import Application, Watcher
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.map_output import Restored

log = logging.getLogger(__name__)

_FIRST_TASK = 2**40
"""Map ids of what is put back begin here; those of tasks count from 0."""
_WAIT = 0.02
"""Seconds between two looks at a broadcast that is under way."""


def restorable(context: RecoveryContext) -> set[str]:
    """Return the vertices of shuffles of which map outputs have survived."""
    return {
        identity
        for identity, vertex in context.master.graph.vertices.items()
        if vertex.initialized.rule == SHUFFLE and context.master.survivors(identity)
    }


class Restorer:
    """Puts shuffles back into the plans of one driver's actions.

    :param watcher: knows the Spark application that runs
    :param wanted: the vertices that have survived, as :func:`restorable` returns them
    """

    def __init__(self, context: RecoveryContext, watcher: Watcher, wanted: set[str]) -> None:
        self._context = context
        self._watcher = watcher
        self._wanted = wanted
        self._lock = threading.Lock()
        self._unable = False

    def before(self, spark: Any, execution: Any) -> bool:
        """Put back what survived into the plan of a query that has not begun; whether anything was.

        Whatever goes wrong, the query runs as it would have.

        :param spark: the session
        :param execution: the ``QueryExecution`` that the action is about to run
        :raises Fenced: a newer attempt owns the job
        """
        try:
            application = self._watcher.application()
            if self._unable or application is None or not self._context.master.usable:
                return False
            with self._lock, active_session(spark):
                if application.begins(execution) > 1:
                    return False  # another action of the frame may be under way
                return _Plan(self._context, application, spark, self._wanted).restore(execution.executedPlan())
        except Fenced:
            raise
        except NoSuchMember as error:
            self._unable = True
            log.warning("Nothing is put back in this attempt, with this version of Spark: %s", one_line(error))
            return False
        except Exception as error:
            log.warning("Nothing is put back into this query: %s", one_line(error))
            log.debug("Restoring failed", exc_info=error)
            return False

    def confirm_ownership(self) -> None:
        """Make sure, before a write, that this attempt still owns the job.

        :raises RecoveryError: it does not, or cannot find out
        """
        self._context.master.check_now()


class _Plan:
    """One query's plan."""

    def __init__(self, context: RecoveryContext, application: Application, spark: Any, wanted: set[str]) -> None:
        self._context = context
        self._registry = application.registry
        self._spark = spark
        self._wanted = wanted
        self._tracker = MapOutputTracker(spark)
        self._put_back = 0
        self._found: set[str] = set()
        self._plans: list[AdaptivePlan] = []

    def restore(self, plan: Any) -> bool:
        self._plans = [AdaptivePlan(self._spark, adaptive) for adaptive in adaptive_plans(plan, self._spark)]
        if any(adaptive.has_begun for adaptive in self._plans):
            return False
        for adaptive in self._plans:
            if not adaptive.holds_shuffle:
                continue
            if not adaptive.may_reuse:
                log.info("Nothing is put back into this query: spark.sql.exchange.reuse is off")
            elif adaptive.observes:
                log.info("Nothing is put back into this query: its rows are observed")
            else:
                adaptive.go_ahead(self._ready)
        for exchange in list(static_shuffles(plan)):
            self._shuffle(exchange, exchange.canonicalized())
        return self._put_back > 0

    def _ready(self, stage: Any) -> Any:
        """Return what a new stage has brought forth without running, ``None`` if it has to run."""
        name = kind(stage)
        if name == "BroadcastQueryStageExec":
            return self._broadcast(stage)
        if name != SHUFFLE_STAGE or kind(stage.plan()) != SHUFFLE_EXCHANGE:
            return None
        return self._shuffle(stage.plan(), stage._canonicalized())

    def _broadcast(self, stage: Any) -> Any:
        """Run what is broadcast, which the query needs in any case, if a shuffle above it may have survived."""
        if not self._more_to_come():
            return None
        future = stage.materialize()
        while not future.isCompleted():
            time.sleep(_WAIT)
        value = future.value().get()
        return value.get() if value.isSuccess() else None

    def _more_to_come(self) -> bool:
        """Whether something has survived that this query may come to: as it was planned first, or over what it has."""
        left, known = self._wanted - self._found, self._context.master.graph.vertices
        over = (set(known[vertex].initialized.upstream) for vertex in left)
        return bool(left & self._planned) or any(below and below <= self._found for below in over)

    @functools.cached_property
    def _planned(self) -> set[str]:
        """The vertices that the shuffles of the query are, as it was planned first."""
        found = set()
        for exchange in itertools.chain.from_iterable(plan.shuffles() for plan in self._plans):
            with suppress(NotKept):
                identity = ShuffleIdentity.of(self._context, self._spark, exchange, exchange.canonicalized())
                found.add(identity.occurrence(self._registry, take=False).vertex)
        return found

    def _shuffle(self, exchange: Any, canonical: Any) -> Any:
        """Put back what survived of a shuffle; returns Spark's statistics of it if that is all of it."""
        try:
            identity = ShuffleIdentity.of(self._context, self._spark, exchange, canonical)
            identity = identity.occurrence(self._registry, take=False)
            if identity.vertex not in self._wanted:
                return None
            self._found.add(identity.vertex)
            dependency = exchange.shuffleDependency()
            vertex = ShuffleVertex.of(self._context, self._spark, exchange, dependency, identity)
        except NotKept as reason:
            log.info("%s runs again: %s", kind(exchange), reason)
            return None
        master, maps = self._context.master, vertex.maps
        known = master.vertex(vertex.vertex)
        survivors = master.survivors_of(vertex.vertex, vertex.layout, maps, deterministic=True)
        totals = vertex.totals()
        wanted = [(stored, MapOutput(vertex.number, _FIRST_TASK + index)) for index, stored in survivors.items()]
        budget = master.request.options.overhead_budget
        there = lay_into_executors(self._spark, location(self._context), wanted, budget) if wanted else {}
        complete = len(there) == maps and totals is not None
        if not complete:
            there = {
                index: pair
                for index, pair in there.items()
                if UNKNOWN not in (pair[1].written.rows, pair[1].written.size)
            }
        if not there:
            if known is not None and known.partitions:
                why = "its rows are cut differently now" if not survivors else "its map outputs cannot be used any more"
                master.partitions_reset(vertex.vertex, (), why)
                log.info("%s runs again: %s", vertex.name, why)
            return None
        identity.occurrence(self._registry, take=True)
        self._register(vertex, there, survivors, totals if complete else None)
        again = maps - len(there)
        log.info("%s: %d map outputs put back, %d to compute", vertex.name, len(there), again)
        self._put_back += 1
        if again:
            return None
        master.vertex_reused(vertex.vertex)
        vertex.sealed = (known is not None and known.finished) or master.vertex_finished(vertex.vertex)
        return self._tracker.statistics(dependency)

    def _register(
        self,
        vertex: ShuffleVertex,
        there: dict[int, tuple[tuple[str, str], Restored]],
        survivors: dict[int, StoredPartition],
        totals: tuple[int, int] | None,
    ) -> None:
        """Let Spark know of what was put back."""
        reducers, managers = vertex.reducers, self._tracker.places()
        for (executor, _), output in there.values():
            if len(output.sizes) != reducers or executor not in managers:
                raise ValueError(f"{vertex.name} has {reducers} reducers, its map outputs {len(output.sizes)}")
        if allocates_dynamically(self._spark):
            holders = {executor: _FIRST_TASK + index for index, ((executor, _), _) in there.items()}
            for executor, task in holders.items():
                report_shuffle_file(self._spark, managers[executor], vertex.number, task)
        # Counted before Spark knows of them: adaptive execution takes a stage without rows for an empty relation, and
        # drops limits that it cannot reach. Too many rows do no harm.
        rows, size = totals or (
            sum(output.written.rows for _, output in there.values()),
            sum(output.written.size for _, output in there.values()),
        )
        vertex.metrics.apply(ROWS).add(rows)
        vertex.metrics.apply(SIZE).add(size)
        self._tracker.register_shuffle(vertex.number, vertex.maps, reducers)
        for index, ((executor, _), output) in there.items():
            task = _FIRST_TASK + index
            manager, checksum = managers[executor], output.written.checksum
            self._tracker.register(vertex.number, index, task, manager, output.sizes, checksum)
        for index in there:
            vertex.take(survivors[index], _FIRST_TASK + index)
        with self._registry.lock:
            self._registry.vertices[vertex.number] = vertex
            self._registry.put_back[vertex.number] = [
                (place, MapOutput(vertex.number, _FIRST_TASK + index)) for index, (place, _) in there.items()
            ]
