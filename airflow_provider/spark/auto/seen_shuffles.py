"""Observe the shuffles of one Spark application: find those that run, and decide which are kept.

A look computes nothing by asking, and starts no Spark job with a local master. It examines plans only if the map
output tracker knows a shuffle that is new here and may have run long enough to be worth keeping.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider.core.errors import Fenced
from airflow_provider.spark.auto.copying import Tools
from airflow_provider.spark.auto.cost import COPY_RATE, LINK_RATE, CopyingCost
from airflow_provider.spark.auto.keeping import KeptShuffle
from airflow_provider.spark.auto.kept_frames import KeptFrames
from airflow_provider.spark.auto.origin import Origin
from airflow_provider.spark.auto.shuffle_identity import NotKept, Purpose
from airflow_provider.spark.auto.shuffle_vertex import ShuffleRegistry
from airflow_provider.spark.environment import ship_package
from airflow_provider.spark.jvm.exchanges import RunningQueries, is_of_a_stream, shuffles_of
from airflow_provider.spark.jvm.executors import executors, is_local, on_executors
from airflow_provider.spark.jvm.left_files import Readers
from airflow_provider.spark.jvm.map_output_tracker import MapOutputTracker, not_sparks_own_files
from airflow_provider.spark.jvm.occurrences import Turn, Uncertain
from airflow_provider.spark.jvm.queries import WeakCounts, held_weakly, session_of
from airflow_provider.spark.jvm.session_settings import active_session, application_settings, serves_spark_connect
from airflow_provider.spark.jvm.stage_metrics import StageMetricsReader
from airflow_provider.spark.shuffles.map_output import remove_map_output

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence, Set
    from contextlib import AbstractContextManager

    from airflow_provider.spark.auto.shuffle_vertex import ShuffleVertex
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.jvm.ended_queries import NotedQuery
    from airflow_provider.spark.jvm.session_settings import QuerySettings
    from airflow_provider.spark.local_dirs import LocalDirs
    from airflow_provider.spark.shuffles.map_output import MapOutput

log = logging.getLogger(__name__)

_LOOKS = 32
"""Looks after which a shuffle that no plan has shown counts as an RDD's, without a plan."""
_NOTED = 16
"""How many queries that became RDDs are observed, the newest ones."""


@dataclass
class _Unseen:
    """A shuffle that the map output tracker knows, but that no plan has shown.

    :ivar since: a moment before it started, on the monotonic clock
    :ivar queries: those that ran when it was first seen; empty if none did
    :ivar looks: how often it was looked for
    """

    since: float
    queries: frozenset[int] = frozenset()
    looks: int = 0

    @property
    def due(self) -> bool:
        """Whether to search the plans for it now: the number of looks in between doubles each time."""
        return self.looks < _LOOKS and self.looks & (self.looks - 1) == 0

    def may_be_of(self, running: frozenset[int]) -> bool:
        """Whether it may belong to a query that runs now."""
        return not self.queries or bool(self.queries & running)


@dataclass(frozen=True)
class _Noted:
    """A query that Spark does not announce, or not yet.

    :ivar held: weak reference to its ``QueryExecution``
    """

    held: Any
    origin: Origin
    purpose: str
    turn: Turn | None


class SeenShuffles:
    """The shuffles of one Spark application, as observed from outside.

    :ivar registry: what is known of them, shared with the actions of a retry

    With a local master, a shuffle can be worth keeping only after all cores have worked for a while; plans are not
    searched before that. On a cluster, tasks run elsewhere and cores come and go: the driver looks at once.
    """

    def __init__(self, context: RecoveryContext, spark: Any) -> None:
        self._context = context
        self._spark = spark
        reason = not_sparks_own_files(spark)
        if reason:
            raise NotKept(reason)
        if serves_spark_connect(spark):
            raise NotKept("a client of Spark Connect cannot see plans, so nothing could be put back")
        ship_package(spark)
        self.registry = ShuffleRegistry(identities=context.application.shuffles)
        self._queries = RunningQueries(spark)
        links = context.master.store.uri.startswith("file:")
        budget = context.master.request.options.overhead_budget
        cost = CopyingCost(budget, assumed=LINK_RATE if links else COPY_RATE)
        cores = int(spark.sparkContext.defaultParallelism) if is_local(spark) else None
        self._costly_after = cost.least / cores if cores else 0.0
        self._looked = time.monotonic()
        tracker, readers, metrics = MapOutputTracker(spark), Readers(spark), StageMetricsReader(spark)
        self._tools = Tools(tracker, readers, metrics, cost, cores, links, self._make_room)
        self._settings = application_settings(spark)
        self._frames = KeptFrames(context, spark, self.registry, self._tools, self._queries, self._settings)
        self._gone_for_others: set[str] = set()
        self._noted: deque[_Noted] = deque(maxlen=_NOTED)
        self._noting = threading.Lock()
        self._origins: dict[int, Origin | None] = {}
        self._kept: dict[int, KeptShuffle] = {}
        self._unseen: dict[int, _Unseen] = {}
        self._left_alone: set[str] = set()
        self._actions = WeakCounts(spark)
        context.occurrences.attach(spark)

    def seconds_in_jvm(self) -> float:
        """Return the CPU seconds that the JVM has spent on this thread's requests."""
        return self._tools.tracker.own_time()

    @property
    def waited(self) -> float:
        """Seconds that looks have spent waiting for executors."""
        return self._tools.waited

    def begins(self, execution: Any) -> int:
        """Return the number of the current action of a query, from 1; the caller serialises threads."""
        return self._actions.add(execution)

    def note(self, execution: Any, settings: QuerySettings, fills: Set[int] | None = None) -> None:
        """Observe the plan of a query of this thread that Spark does not announce, as long as the script holds it.

        :param execution: its ``QueryExecution``, of which nothing has run yet
        :param settings: what it runs with
        :param fills: see :class:`Origin`
        """
        held, turn = held_weakly(self._spark, execution), self.turn(execution)
        with self._noting:
            self._noted.append(_Noted(held, Origin(settings, fills=fills), self._context.purposes.own, turn))

    def turn(self, execution: Any) -> Turn | None:
        """Return the turn of a query of this thread that is about to start; ``None`` if it is unknown."""
        try:
            turn = self._context.occurrences.turn(execution)
        except Uncertain:
            return None
        self._context.occurrences.tell_own(turn)
        return turn

    def unannounced(self, execution: Any) -> AbstractContextManager[None]:
        """Count a query that runs inside, in this thread, without being announced."""
        return self._context.occurrences.unannounced(execution)

    def settle(self, *, wait: bool = False) -> None:
        """Count the shuffles that call functions, of queries that have ended and were not observed.

        :param wait: until Spark has reported all that have ended
        """
        self._context.occurrences.settle(self._count, wait=wait)

    def look(self) -> None:
        """Find new shuffles, and keep those that are worth it."""
        self.settle()
        available = self._tools.tracker.shuffles()
        numbers = available.keys()
        self._forget(numbers)
        now = time.monotonic()
        unseen = numbers - self._kept.keys()
        new = unseen - self._unseen.keys()
        looked_for = new or any(shuffle.looks < _LOOKS for shuffle in self._unseen.values())
        running = self._queries.running() if looked_for else frozenset()
        self._unseen |= {number: _Unseen(self._looked, running) for number in new}
        costly = [
            shuffle
            for shuffle in map(self._unseen.__getitem__, unseen)
            if now - shuffle.since >= self._costly_after and (self._noted or shuffle.may_be_of(running))
        ]
        if any(shuffle.due for shuffle in costly):
            self._find()
        for shuffle in costly:
            shuffle.looks += 1
        self._looked = now
        with self._context.occurrences.lock:
            pending = [kept for kept in self._kept.values() if kept.reconsider()]
        for kept in sorted(pending, key=lambda kept: (-kept.worth, kept.number)):  # ties: first what others read
            try:
                kept.look(available.get(kept.number, 0))
                kept.failures = 0
            except Fenced:
                raise
            except Exception as error:  # noqa: BLE001 - the others go on
                kept.failed(error)
        if self._tools.cores is not None:  # on a cluster, what is cached lies in the executors' memory
            self._frames.look()
        self._release()

    def _make_room(self, vertex: ShuffleVertex, size: int, worth: float) -> bool:
        """Whether the job may hold *size* more bytes of a shuffle; others may be removed for that.

        A shuffle that reads one removed for others could not be put back.
        """
        read = self.registry.upstream(vertex.number)
        if not self._gone_for_others.isdisjoint(read):
            return False
        going = self._context.master.make_room(size, worth, {vertex.vertex, *read})
        if going:
            self._gone_for_others.update(going)
            self.give_up(going)
        return going is not None

    def _release(self) -> None:
        """Release what was kept for outputs that are written now."""
        released = self._context.master.release_shuffles()
        if released:
            self.give_up(released)
            self.registry.forget_purposes(released)

    def _find(self) -> None:
        for execution, origin, own, turn in [*self._noted_queries(), *self._started_queries()]:
            if is_of_a_stream(execution):
                self.leave_alone("stream", "a streaming query's own checkpoint is its recovery")
                continue
            self._add(execution, origin, own, turn)

    def _add(self, execution: Any, origin: Origin, own: str | None, turn: Turn | None) -> None:
        """Start observing the shuffles of a query."""
        spark = session_of(self._spark, execution.sparkSession())
        with self._context.occurrences.lock, active_session(spark):
            for running in shuffles_of(execution.executedPlan(), spark, set(self._kept)):
                cached = running.cached
                if not origin.holds_for(cached):
                    continue
                name = own if cached is None else self._context.purpose(cached)
                purpose = Purpose(name, cached is not None)
                self._kept[running.number] = KeptShuffle(
                    self._context, self.registry, self._tools, spark, running, origin, purpose, turn
                )

    def _count(self, query: NotedQuery, execution: Any, purpose: str) -> None:
        """Count the shuffles of a query that has ended."""
        if query.application != self._spark.sparkContext.applicationId:
            return
        numbers = sorted(number for _, number in query.shuffles if number is not None)
        turn = Turn(query.position, query.token)
        if execution is not None and not self._kept.keys() >= set(numbers):
            origin = self._origin_of(query, execution)
            if origin is not None:
                self._add(execution, origin, purpose, turn)
        for number in numbers:
            if number in self._kept:
                self._kept[number].count()

    def _origin_of(self, query: NotedQuery, execution: Any) -> Origin | None:
        with self._noting:
            noted = next((each for each in self._noted if each.turn and each.turn.token == query.token), None)
        if noted is not None:
            return noted.origin
        record = self._queries.record(query.position)
        return None if record is None else Origin.of(record, self._settings)

    def _started_queries(self) -> list[tuple[Any, Origin, str | None, Turn | None]]:
        started = self._context.purposes.started(self._queries)
        self._origins = {
            number: self._origins.get(number) or Origin.of(query.record, self._settings)
            for number, (query, _) in started.items()
        }
        found: list[tuple[Any, Origin, str | None, Turn | None]] = []
        for number, (query, purpose) in started.items():
            origin = self._origins[number]
            if origin is not None:
                own = None if self._queries.is_in_a_stream(number, query) else purpose
                self._context.occurrences.tell(number, own)
                found.append((query.execution, origin, own, self._turn_of(number, query.execution)))
        return found

    def _turn_of(self, number: int, execution: Any) -> Turn | None:
        try:
            return self._context.occurrences.turn_of(number, execution)
        except Uncertain:
            return None

    def _noted_queries(self) -> list[tuple[Any, Origin, str | None, Turn | None]]:
        """Return the noted queries; forget those that the script has dropped.

        They come before those that Spark has announced: a query may have started ahead of its action.
        """
        held: list[tuple[Any, Origin, str | None, Turn | None]] = []
        with self._noting:
            for noted in self._noted:
                execution = noted.held.get()
                if execution is not None:
                    held.append((execution, noted.origin, noted.purpose, noted.turn))
            if len(held) < len(self._noted):
                self._noted = deque((each for each in self._noted if each.held.get() is not None), _NOTED)
        return held

    def give_up(self, vertices: Collection[str]) -> None:
        """Stop handling shuffles whose stored outputs were all given up or released."""
        with self._context.occurrences.lock:
            for number in self.registry.give_up(vertices):
                if number in self._kept:
                    self._kept[number].over = True

    def leave_alone(self, name: str, reason: str) -> None:
        """Record, once, why a kind of query is not observed."""
        if name not in self._left_alone:
            self._left_alone.add(name)
            self._context.master.vertex_skipped(name, reason)

    def _forget(self, numbers: Set[int]) -> None:
        """Forget shuffles that Spark has dropped, and delete the files that were put back for them."""
        with self._context.occurrences.lock:
            for number in self._kept.keys() - numbers:
                self._kept.pop(number).forgotten()
        for number in self._unseen.keys() - (numbers - self._kept.keys()):
            del self._unseen[number]
        with self.registry.lock:
            gone = [number for number in self.registry.put_back if number not in numbers]
            files = [pair for number in gone for pair in self.registry.put_back.pop(number)]
        if not files:
            return
        there = executors(self._spark)  # files of other executors are gone with these, or go with the application
        work: dict[tuple[str, str], list[MapOutput]] = defaultdict(list)
        for place, output in files:
            if place in there:
                work[place].append(output)
        if work:
            on_executors(self._spark, work, _remove_here)


def _remove_here(dirs: LocalDirs, outputs: Sequence[MapOutput]) -> list[int]:
    for output in outputs:
        remove_map_output(dirs, output)
    return []
