"""Put what survived back into the plan of one query: its query stages from the bottom up, and the cached frames below.

A shuffle is put back only if everything that its map tasks read is split as before (the layout), because Spark may run
any of them again. A cached frame that the query reads is filled by its readers: by those that still have to run.
"""

from __future__ import annotations

import functools
import itertools
import logging
import threading
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider.core.vertex_token import name_of, vertex_identity
from airflow_provider.spark.auto.ahead import StagesAhead
from airflow_provider.spark.auto.restored_frames import RestoredFrames
from airflow_provider.spark.auto.shuffle_identity import NotKept, Purpose, ShuffleIdentity, may_be_kept, title_of
from airflow_provider.spark.auto.shuffle_vertex import FIRST_RESTORED, ROWS, SIZE, ShuffleVertex
from airflow_provider.spark.jvm.adaptive_plan import AdaptivePlan, static_shuffles
from airflow_provider.spark.jvm.cached_frames import can_be_planned, offer_stages, read_by_tasks, shuffles_over
from airflow_provider.spark.jvm.exchanges import (
    CACHED_STAGE,
    SHUFFLE_EXCHANGE,
    SHUFFLE_STAGE,
    is_filled,
    kind,
    send_broadcasts,
)
from airflow_provider.spark.jvm.execution import micro_batch
from airflow_provider.spark.jvm.executors import allocates_dynamically, has_shuffle_service, report_shuffle_file
from airflow_provider.spark.jvm.map_output_tracker import MapOutputTracker
from airflow_provider.spark.jvm.occurrences import Numbered, Uncertain
from airflow_provider.spark.jvm.session_settings import QuerySettings, settings_of_tasks
from airflow_provider.spark.points.filled_caches import removal_by
from airflow_provider.spark.points.reading import location
from airflow_provider.spark.shuffles.map_output import UNKNOWN, MapOutput
from airflow_provider.spark.shuffles.placing import lay_into_executors

if TYPE_CHECKING:
    from collections.abc import Sequence, Set
    from contextlib import AbstractContextManager

    from airflow_provider.core.partitions import StoredPartition
    from airflow_provider.spark.auto.seen_shuffles import SeenShuffles
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.jvm.occurrences import Turn
    from airflow_provider.spark.shuffles.map_output import Restored

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _PutBack:
    """A shuffle that was put back.

    :ivar statistics: Spark's, of all its map outputs; ``None`` if some must be computed
    """

    statistics: Any


def _name(exchange: Any) -> str:
    """Return the name of an exchange's vertex."""
    return name_of(vertex_identity(title_of(exchange), ""))


class RestoredPlan:
    """The plan of one query.

    :ivar begun: whether anything was put back, or has run ahead
    """

    def __init__(
        self,
        context: RecoveryContext,
        application: SeenShuffles,
        spark: Any,
        wanted: Set[str],
        lock: threading.Condition,
        settings: QuerySettings,
        execution: Any,
    ) -> None:
        self._context = context
        self._application = application
        self._registry = application.registry
        self._lock = lock
        self._spark = spark
        self._wanted = wanted
        self._settings = settings
        self._execution = execution
        self._tracker = MapOutputTracker(spark)
        self.begun = False
        self._found: set[str] = set()
        self._fills: frozenset[int] = frozenset()
        self._plans: list[AdaptivePlan] = []
        self._static: list[Any] = []
        self._there: set[int] = set()
        """The numbers of cached frames' plans whose shuffles are all there."""

    def restore(self, plans: Sequence[tuple[Any, int | None]]) -> None:
        """Put back what survived.

        :param plans: see :func:`adaptive_plans`
        """
        found = [(AdaptivePlan(self._spark, adaptive), cached) for adaptive, cached in plans]
        if any(adaptive.has_begun for adaptive, cached in found if cached is None):
            return
        # A cached frame that the script has read in part has its stages already.
        found = [(adaptive, cached) for adaptive, cached in found if not adaptive.has_begun]
        self._fills = frozenset(cached for _, cached in found if cached is not None)
        self._plans = [adaptive for adaptive, _ in found]
        if self._settings.in_tasks:  # without adaptive execution, an RDD's run when it is used, with the settings then
            self._static = list(static_shuffles(self._execution.executedPlan()))
        execution = self._execution.executedPlan()
        self._frames = RestoredFrames(self._context, self._registry, self._spark, self._wanted, execution)
        if self._names.isdisjoint(self._wanted_names) and not self._frames.names:
            return  # the lowest survivor of a query has the name of a shuffle that the query begins with
        for adaptive, cached in found:
            purpose = self._context.purpose(cached)
            if not adaptive.holds_shuffle:
                if cached is None:
                    self._fill(adaptive.initial)
                continue
            if adaptive.barred:
                log.info("Nothing is put back into this query: %s", adaptive.barred)
            else:
                ahead, partly = StagesAhead(self._told, self._lock), set[int]()
                ready = functools.partial(self._ready, adaptive, Purpose(purpose, cached is not None), partly)
                waiting = adaptive.go_ahead(ready, functools.partial(self._run, ahead))
                if adaptive.complete and cached is not None:
                    self._there.add(cached)
                for stage in waiting:
                    if not ahead.needs(stage) and int(stage.id()) not in partly:
                        adaptive.forget(stage)
                if cached is None and adaptive.last is not None:
                    self._fill(adaptive.last)
                offer_stages(self._spark, adaptive)
        for exchange in self._static:
            if _name(exchange) in self._wanted_names:
                with self._told():
                    send_broadcasts(exchange)  # its query sends them in any case
            back = self._shuffle(Purpose(self._context.purpose()), exchange, exchange.canonicalized())
            if back is None or back.statistics is None:
                self._fill(exchange.child())
        self._fill(self._execution.executedPlan())

    def _fill(self, plan: Any) -> None:
        """Put back what survived of the cached frames that the tasks of a plan read."""
        for relation in read_by_tasks(plan) if self._frames.names else ():
            if not is_filled(relation):
                self._begins()
                with self._told():
                    self._frames.fill(relation, self._there)
                self._found |= self._frames.found

    def _told(self) -> AbstractContextManager[None]:
        """Give the tasks of jobs that this thread starts the same settings as the action's tasks."""
        return settings_of_tasks(self._spark) if self._settings.in_tasks else nullcontext()

    def _ready(self, adaptive: AdaptivePlan, purpose: Purpose, partly: set[int], stage: Any) -> Any:
        """Return the result that a new stage has without running; ``None`` if it must run.

        :param partly: gets the number of a stage of which some map tasks must run
        """
        if kind(stage) == CACHED_STAGE:
            return "filled" if self._holds(adaptive, stage) else None
        if kind(stage) != SHUFFLE_STAGE or kind(stage.plan()) != SHUFFLE_EXCHANGE:
            return None
        back = self._shuffle(purpose, stage.plan(), stage._canonicalized())
        if back is None or back.statistics is None:
            self._fill(stage.plan().child())
        if back is not None and back.statistics is None:
            partly.add(int(stage.id()))
        return None if back is None else back.statistics

    def _holds(self, adaptive: AdaptivePlan, stage: Any) -> bool:
        """Whether a cached frame is filled, maybe by what survived of it, or will be by those that read it."""
        relation = stage.plan().relation()
        if is_filled(relation) or self._planned(adaptive, relation):
            return True
        self._fill(stage)
        return is_filled(relation)

    def _planned(self, adaptive: AdaptivePlan, relation: Any) -> bool:
        """Plan an empty cached frame if something shuffled right above it may survive; return whether it did.

        Tasks that read the frame fill it, as far as they still have to run. A script that may remove files has it
        filled at once: what it is made of may be gone later.
        """
        left = set(map(name_of, self._wanted - self._found))
        above = (_name(exchange) for exchange in shuffles_over(adaptive, relation) if may_be_kept(exchange))
        if left.isdisjoint(above) or not can_be_planned(relation, self._there) or removal_by(self._context):
            return False
        self._begins()
        with self._told():
            relation.cacheBuilder().cachedColumnBuffers()
        return True

    def _run(self, ahead: StagesAhead, stages: Sequence[Any]) -> dict[int, Any]:
        """Run stages that the query needs in any case, if a shuffle above them may have survived."""
        if not self._more_to_come():
            return {}
        self._begins()
        return ahead.run(stages)

    def _begins(self) -> None:
        """Have the rest of the query observed from now on.

        Spark has not announced it yet, and may lose its record later: the scheduler reports the end of a stage that was
        there already twice, and the listener takes the query for ended.
        """
        if not self.begun:
            self.begun = True
            self._application.note(self._execution, self._settings, self._fills)

    def _more_to_come(self) -> bool:
        """Whether this query may still reach a survivor: one whose own survivors below have all been found; if it has
        none, one with the name of a shuffle that the query begins with.
        """
        left, known = self._wanted - self._found, self._context.master.graph.vertices
        below = {vertex: set(known[vertex].initialized.upstream) & self._wanted for vertex in left}
        return any(below[each] <= self._found and (below[each] or name_of(each) in self._names) for each in left)

    @functools.cached_property
    def _names(self) -> set[str]:
        """The possible vertex names of the query's shuffles, whatever joins they turn out to be over."""
        exchanges = [*itertools.chain.from_iterable(plan.shuffles() for plan in self._plans), *self._static]
        return {_name(exchange) for exchange in exchanges if may_be_kept(exchange)} | self._frames.names

    @functools.cached_property
    def _wanted_names(self) -> set[str]:
        return set(map(name_of, self._wanted))

    @functools.cached_property
    def _turn(self) -> Turn:
        """The query's turn. All queries that have ended are counted first.

        :raises NotKept: it cannot be determined
        """
        if micro_batch(self._spark):
            raise NotKept("it calls a Python function, and a retry may begin with another batch of the stream")
        self._application.settle(wait=True)
        turn = self._application.turn(self._execution)
        if turn is None:
            raise NotKept("it calls a Python function, and this version of Spark does not say which queries have run")
        return turn

    def _next(self, purpose: Purpose, exchange: Any, what: str) -> str:
        return self._context.occurrences.next(self._numbered(purpose, exchange, what))

    def _numbered(self, purpose: Purpose, exchange: Any, what: str) -> Numbered:
        return Numbered(what, self._context.occurrences.kind(exchange), purpose.name or "", self._turn)

    def _take(self, purpose: Purpose, exchange: Any, number: int, what: str) -> str:
        application = self._spark.sparkContext.applicationId
        return self._context.occurrences.take(self._numbered(purpose, exchange, what), application, number)

    def _shuffle(self, purpose: Purpose, exchange: Any, canonical: Any) -> _PutBack | None:
        """Put back what survived of a shuffle; return ``None`` if nothing did."""
        if _name(exchange) not in self._wanted_names:
            return None
        try:
            any_time = ShuffleIdentity.of(self._context, self._spark, exchange, canonical, self._settings)
            numbered = any_time.occurrence(purpose, functools.partial(self._next, purpose, exchange))
            identity = self._registry.bound(numbered, self._tracker)
            if identity.vertex not in self._wanted:
                return None
            self._found.add(identity.vertex)
            with self._told():  # without adaptive execution, broadcasts below run now
                dependency = exchange.shuffleDependency()
            take = functools.partial(self._take, purpose, exchange, int(dependency.shuffleId()))
            if any_time.occurrence(purpose, take) != numbered:
                raise NotKept("another thread has run a query of its kind meanwhile")
            vertex = ShuffleVertex.of(
                self._context, self._registry, self._spark, exchange, dependency, identity, purpose
            )
        except (NotKept, Uncertain) as reason:
            log.info("%s runs again: %s", kind(exchange), reason)
            return None
        with self._registry.putting_back(vertex.number):
            return self._put_back(vertex, dependency)

    def _put_back(self, vertex: ShuffleVertex, dependency: Any) -> _PutBack | None:
        """Put back what survived of a vertex; return ``None`` if nothing of it can be used."""
        master, maps = self._context.master, vertex.maps
        known = master.vertex(vertex.vertex)
        survivors = master.survivors_of(vertex.vertex, vertex.layout, maps, deterministic=True)
        totals = vertex.totals()
        wanted = [(stored, MapOutput(vertex.number, FIRST_RESTORED + index)) for index, stored in survivors.items()]
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
            if why := vertex.unusable(known, "map outputs" if survivors else ""):
                log.info("%s runs again: %s", vertex.name, why)
            return None
        self._register(vertex, there, survivors, totals if complete else None)
        again = maps - len(there)
        log.info("%s: %d map outputs put back, %d to compute", vertex.name, len(there), again)
        self._begins()
        if again:
            return _PutBack(None)
        vertex.reused(known)
        return _PutBack(self._tracker.statistics(dependency))

    def _register(
        self,
        vertex: ShuffleVertex,
        there: dict[int, tuple[tuple[str, str], Restored]],
        survivors: dict[int, StoredPartition],
        totals: tuple[int, int] | None,
    ) -> None:
        """Register the restored outputs with Spark."""
        reducers, places = vertex.reducers, self._tracker.places()
        for (executor, _), output in there.values():
            if len(output.sizes) != reducers or executor not in places:
                raise ValueError(f"{vertex.name} has {reducers} reducers, its map outputs {len(output.sizes)}")
        if allocates_dynamically(self._spark) and not has_shuffle_service(self._spark):
            holders = {executor: FIRST_RESTORED + index for index, ((executor, _), _) in there.items()}
            for executor, task in holders.items():
                report_shuffle_file(self._spark, places[executor], vertex.number, task)
        # Count before Spark knows of them: adaptive execution takes a stage without rows for an empty relation, and
        # drops limits that it cannot reach. Too many rows do no harm.
        rows, size = totals or (
            sum(output.written.rows for _, output in there.values()),
            sum(output.written.size for _, output in there.values()),
        )
        vertex.metrics.apply(ROWS).add(rows)
        vertex.metrics.apply(SIZE).add(size)
        self._tracker.register_shuffle(vertex.number, vertex.maps, reducers)
        writers = {vertex.index(task): task for task in range(vertex.maps)}
        for index, ((executor, _), output) in there.items():
            task = FIRST_RESTORED + index
            place, checksum = places[executor], output.written.checksum
            self._tracker.register(vertex.number, writers[index], task, place, output.sizes, checksum)
        for index in there:
            vertex.take(survivors[index], FIRST_RESTORED + index)
        with self._registry.lock:
            self._registry.vertices[vertex.number] = vertex
            self._registry.put_back[vertex.number] = [
                (place, MapOutput(vertex.number, FIRST_RESTORED + index)) for index, (place, _) in there.items()
            ]
