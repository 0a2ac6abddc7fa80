"""Decide, while the job runs, which map outputs of a shuffle are kept, and have them copied.

A shuffle is kept once its tasks have taken long enough for what they wrote. The kept outputs are those that reducers
read: if Spark runs a map task again, its new output replaces the old one, and the vertex is sealed only when the
tracker and the store agree on every map id.
"""

from __future__ import annotations

import functools
import logging
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider.core.causes import one_line
from airflow_provider.core.overhead import COPYING, IDENTITIES
from airflow_provider.core.quantities import bytes_text
from airflow_provider.core.unfinished_write import is_written
from airflow_provider.spark.auto.cost import Pace
from airflow_provider.spark.auto.origin import ensure_same
from airflow_provider.spark.auto.shuffle_identity import NotKept, ShuffleIdentity, title_of
from airflow_provider.spark.auto.shuffle_vertex import ROWS, SIZE, ShuffleVertex
from airflow_provider.spark.jvm.cached_frames import rdds_of_cached
from airflow_provider.spark.jvm.exchanges import calls_functions
from airflow_provider.spark.jvm.occurrences import NotYet, Numbered, Uncertain
from airflow_provider.spark.jvm.session_settings import active_session, all_settings
from airflow_provider.spark.shuffles.map_output import Written

if TYPE_CHECKING:
    from airflow_provider.spark.auto.copying import Tools
    from airflow_provider.spark.auto.origin import Origin
    from airflow_provider.spark.auto.shuffle_identity import Purpose
    from airflow_provider.spark.auto.shuffle_vertex import ShuffleRegistry
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.jvm.ended_queries import Kind
    from airflow_provider.spark.jvm.exchanges import RunningShuffle
    from airflow_provider.spark.jvm.map_output_tracker import MapStatus
    from airflow_provider.spark.jvm.occurrences import Turn
    from airflow_provider.spark.jvm.stage_metrics import StageMetrics

log = logging.getLogger(__name__)

_BYTES = "shuffleBytesWritten"
_TRIES = 3
"""How often to look for a map output on its executor, or let looks at a shuffle fail, before giving up."""
_WORTH_SAYING = 1.0
"""Seconds of task time from which on a shuffle skipped for its cost is recorded: there may be thousands."""
_PATIENCE = 20
"""How often to wait for the listeners' counts of a task that has ended."""


class KeptShuffle:
    """One shuffle of the application, looked at again and again until it is stored or skipped.

    :ivar number: Spark's shuffle id
    :ivar over: whether nothing is left to do
    :ivar worth: seconds of task time per byte of its files, as last measured
    :ivar failures: failed looks in a row
    """

    def __init__(
        self,
        context: RecoveryContext,
        registry: ShuffleRegistry,
        tools: Tools,
        spark: Any,
        running: RunningShuffle,
        origin: Origin,
        purpose: Purpose,
        turn: Turn | None,
    ) -> None:
        self._context = context
        self._registry = registry
        self._tools = tools
        self._spark = spark
        self._shuffle = running.held()
        self.number = running.number
        self._origin = origin
        self._purpose = purpose
        self._turn = turn
        self._what: ShuffleIdentity | None = None
        self._kind: Kind | None = None
        self._counted = purpose.cached or turn is None
        """Whether it is counted already, or needs no counting."""
        self._refused = ""
        """Why it has no identity, or its occurrence no number."""
        self._waits = ""
        """Why its occurrence number is not known yet."""
        self._counts = running.exchange.metrics()
        self._rdd = int(running.dependency.rdd().id())
        self._maps = int(running.dependency.rdd().getNumPartitions())
        self._title = title_of(running.exchange)
        self._vertex: ShuffleVertex | None = None
        self._stage: int | None = None
        self._misses: dict[int, int] = defaultdict(int)
        self._waited: dict[int, int] = defaultdict(int)
        self._written: dict[int, Written] = {}
        self._metrics = {name: int(self._counts.apply(name).id()) for name in (ROWS, SIZE)}
        self._seconds = 0.0
        self.failures = 0
        self._too_high_for = 0
        """The number of map outputs there when all of them together cost too much."""
        self._asked = (0, 0)
        """The number of map outputs there, and how often they were found to cost too much."""
        self._too_costly = False
        """Whether it was left for its cost alone."""
        self._needed = 0.0
        """Seconds of task time of what can be kept only with it."""
        self._pace = Pace()
        self.worth = 0.0
        self.over = False

    def reconsider(self) -> bool:
        """Return whether something is left to do, also if it was too costly before another one needed it."""
        needed = self._registry.needed.get(self.number, 0.0)
        if needed > self._needed:
            self._needed, self._too_high_for = needed, 0
            self._pace.at_once()
            if self._too_costly:
                self.over = self._too_costly = False
        return not self.over

    def look(self, available: int) -> None:
        """Copy new map outputs if they are worth it.

        :param available: number of map outputs that exist
        """
        if self.over or available == 0 or self._tools.backing_off or self.number in self._registry.coming:
            return
        if self._vertex is None:
            self._vertex = self._registry.vertices.get(self.number)  # it may have been seen before it was put back
        if self._vertex is not None and self._vertex.sealed:
            self.over = True
            return
        stored = len(self._vertex.stored) if self._vertex is not None else 0
        if self._stage is None:
            self._stage = self._tools.metrics.stage_of(self._metrics[ROWS], self._rdd)
            if self._stage is None:
                return
        with suppress(NotYet):
            self.count()
        maps = self._maps
        if stored < available:
            if available == self._too_high_for or (available < maps and not self._pace.due):
                return
            measured = self._measured(maps)
            written = int(self._counts.apply(_BYTES).value())
            self.worth = measured.seconds / max(1, written)
            saved = measured.seconds + self._needed
            too_high = self._tools.cost.too_high(saved, written)
            if too_high and (filling := self._filling):
                saved += filling
                too_high = self._tools.cost.too_high(saved, written)
            if too_high:
                if self._tools.cores:
                    self._pace.wait(self._tools.cost.lacking(saved, written) / self._tools.cores)
                counted = self._all_counted(measured, available)
                if counted:
                    self._too_high_for = available
                if counted and available == maps:
                    self._leave_alone(too_high, worth_saying=measured.seconds >= _WORTH_SAYING, for_good=False)
                    self._too_costly = True
                return
            if self._vertex is None and (self._for_written_output or not self._identified(saved)):
                return
            if not self._has_room(written * maps // available):
                return
            with self._context.master.overhead.on(COPYING):
                self._copy(measured)
            if self._tools.cores is None:
                self._pace.copied()
        self._seal(maps)

    def _all_counted(self, measured: StageMetrics, available: int) -> bool:
        """Whether the listeners have counted all tasks whose outputs are there, as far as they will.

        They say nothing of outputs that were put back, nor, when a stage runs some of its tasks again, of the others.
        """
        known, times = self._asked
        self._asked = (available, times + 1 if available == known else 1)
        return measured.ended >= available or self._asked[1] >= _PATIENCE

    def _has_room(self, size: int) -> bool:
        """Whether the job may hold *size* bytes of it; shuffles that save less may be removed for that."""
        vertex = self._vertex
        assert vertex is not None  # noqa: S101 - identified before
        if self._tools.make_room(vertex, max(0, size - vertex.bytes), self.worth):
            return True
        if not vertex.stored:
            self._registry.leave_out(self.number)
        budget = bytes_text(self._context.master.request.options.store_budget)
        self._leave_alone(f"the store budget is full (store_budget={budget}), all of it worth more than this")
        return False

    @functools.cached_property
    def _filling(self) -> float:
        """Seconds of task time in which the cached frames that its tasks read were filled, before it began."""
        exchange = self._shuffle.exchange()
        if exchange is None or self._stage is None:
            return 0.0
        rdds = rdds_of_cached(exchange.child())
        return sum(self._tools.metrics.seconds_before(self._stage, rdd) for rdd in rdds)

    @property
    def _for_written_output(self) -> bool:
        """Whether the output that it serves is written, so that a retry leaves out its query."""
        return bool(self._purpose.recorded) and is_written(self._context.master.coordinator(self._purpose.recorded))

    def failed(self, error: Exception) -> None:
        """Count a failed look: Spark may be busy, or has forgotten the stage and with it the tasks."""
        self.failures += 1
        log.debug("A look at %s failed", self._title, exc_info=error)
        if self.failures >= _TRIES:
            self._leave_alone(f"it cannot be looked at: {one_line(error)}")

    def _measured(self, maps: int) -> StageMetrics:
        """Ask the listeners, and remember their counts of single tasks, which are gone when the query is over."""
        metrics, stage = self._tools.metrics, self._stage or 0
        measured = metrics.read(stage, maps, (self._metrics[ROWS], self._metrics[SIZE]))
        self._remember(measured.values)
        return measured

    def _remember(self, values: dict[int, dict[int, int]]) -> None:
        rows, sizes = (values.get(self._metrics[name], {}) for name in (ROWS, SIZE))
        self._written |= {index: Written(rows[index], sizes[index]) for index in rows.keys() & sizes.keys()}

    def _shares(self, records: dict[int, int]) -> dict[int, dict[int, int]]:
        """Return counts of which only the records are known, as :attr:`.StageMetrics.values`; empty if there are none.

        Bytes are distributed in proportion to records: Spark uses them for planning only.
        """
        if not records:
            return {}
        rows, size = (int(self._counts.apply(name).value()) for name in (ROWS, SIZE))
        shares = {index: size * count // max(1, rows) for index, count in records.items()}
        return {self._metrics[ROWS]: records, self._metrics[SIZE]: shares}

    def _leave_alone(self, reason: str, *, worth_saying: bool = True, for_good: bool = True) -> None:
        """Look at it no more.

        :param for_good: even if another one needs it
        """
        self.over = True
        if for_good:
            self._registry.left[self.number] = reason
        log.debug("%s is not kept: %s", self._title, reason)
        if worth_saying:
            self._context.master.vertex_skipped(self._title, reason)

    def _identified(self, seconds: float) -> bool:
        """Identify the shuffle; return whether it may be kept.

        :param seconds: task time so far
        """
        exchange, dependency = self._shuffle.exchange(), self._shuffle.dependency()
        canonical = self._shuffle.canonical()
        if exchange is None or dependency is None or canonical is None:  # the script has dropped it
            self.over = True
            return False
        try:
            with self._context.master.overhead.on(IDENTITIES), active_session(self._spark):
                numbered = self._identity(exchange, canonical)
                identity = self._registry.bound(numbered, self._tools.tracker, seconds)
                self._registry.look_below(dependency)
                vertex = ShuffleVertex.of(
                    self._context, self._registry, self._spark, exchange, dependency, identity, self._purpose
                )
        except NotYet as reason:
            self._waits = str(reason)
            return False
        except NotKept as reason:
            self._leave_alone(str(reason))
            return False
        known = self._context.master.vertex(vertex.vertex)
        with self._registry.lock:
            kept = {each.vertex for each in self._registry.vertices.values()}
            if vertex.vertex in kept or (
                known is not None and known.finished and known.initialized.layout == vertex.layout
            ):
                self._leave_alone("those of another query are kept in its place", worth_saying=False)
                if known is not None and known.initialized.purposes != self._registry.purposes(vertex.vertex):
                    vertex.record()  # a retry may need them for this query, too
                return False
            self._registry.vertices[self.number] = vertex
        self._vertex = vertex
        return True

    def _identity(self, exchange: Any, canonical: Any) -> ShuffleIdentity:
        """Return the shuffle's identity, and count it.

        :raises NotKept: it has no certain identity
        :raises NotYet: its occurrence number is not known yet
        """
        with self._context.occurrences.lock:
            if self._refused:
                raise NotKept(self._refused)
            try:
                if self._what is None:
                    self._what = self._identify(exchange, canonical)
                return self._what.occurrence(self._purpose, functools.partial(self._time, exchange))
            except NotKept as reason:
                self._refused = str(reason)
                raise

    def _identify(self, exchange: Any, canonical: Any) -> ShuffleIdentity:
        if self._stage is None:
            raise NotKept("Spark does not know its tasks any more")
        settings = self._origin.check(self._stage, all_settings(self._spark))
        identity = ShuffleIdentity.of(self._context, self._spark, exchange, canonical, settings)
        ensure_same(settings.values, all_settings(self._spark))
        return identity

    def _time(self, exchange: Any, what: str) -> str:
        occurrences, purpose = self._context.occurrences, self._purpose.name
        self._kind = self._kind or occurrences.kind(exchange)
        if self._turn is None or purpose is None:
            raise Uncertain("it calls a Python function, and where its query stands among others is not known")
        numbered = Numbered(what, self._kind, purpose, self._turn)
        return occurrences.take(numbered, self._spark.sparkContext.applicationId, self.number)

    def count(self) -> None:
        """Count the shuffle, kept or not, if its tasks call functions.

        Otherwise a later one would get its number, and a retry that looks for this one would find the later one's rows.

        :raises NotYet: its occurrence number is not known yet
        """
        if self._counted or self._refused:
            return
        exchange, canonical = self._shuffle.exchange(), self._shuffle.canonical()
        if exchange is None or canonical is None:
            return
        if not calls_functions(canonical, self._spark):
            self._counted = True
            return
        if self._stage is None:
            self._stage = self._tools.metrics.stage_of(self._metrics[ROWS], self._rdd)
        with self._context.master.overhead.on(IDENTITIES), suppress(NotKept), active_session(self._spark):
            self._identity(exchange, canonical)
            self._counted = True

    def forgotten(self) -> None:
        """Note that Spark has dropped the shuffle; if something was not known in time, record this reason."""
        if not self.over and self._waits:
            self._leave_alone(self._waits)
        self._registry.forget(self.number)

    def _copy(self, measured: StageMetrics) -> None:
        vertex = self._vertex
        assert vertex is not None  # noqa: S101 - identified before
        there = {vertex.index(status.index): status for status in self._tools.tracker.statuses(self.number)}
        wanted = {
            index: status
            for index, status in there.items()
            if index not in vertex.stored and self._misses[index] < _TRIES
        }
        if not measured.values and any(status.index not in self._written for status in wanted.values()):
            self._remember(self._shares(self._tools.metrics.records(self._stage or 0)))
        counted = ((replace(status, index=index), self._counts_of(status)) for index, status in wanted.items())
        new = [(status, counts) for status, counts in counted if counts is not None]
        since = vertex.made_since(self._tools.tracker)  # behind the statuses: these tasks have read all that they read
        if since is None:  # what is stored was made of what was there before
            self._leave_alone("Spark has run tasks again whose rows it depends on")
            return
        new = [(status, counts) for status, counts in new if status.task > since]
        began = time.monotonic()
        for missed in self._tools.copy(self._context, self._spark, vertex, new, measured.per_task):
            self._misses[missed] += 1
        self._seconds += time.monotonic() - began

    def _counts_of(self, status: MapStatus) -> Written | None:
        """Return Spark's counts for a task; ``None`` if they may still come."""
        written = self._written.get(status.index)
        if written is not None:
            return replace(written, checksum=status.checksum)
        self._waited[status.index] += 1
        if self._waited[status.index] < _PATIENCE:
            return None
        return Written(checksum=status.checksum)

    def _seal(self, maps: int) -> None:
        vertex = self._vertex
        if vertex is None or len(vertex.stored) < maps:
            return
        now = vertex.tasks_now(self._tools.tracker)
        again = [index for index, task in vertex.tasks.items() if now.get(index) != task]
        if again:
            vertex.forget(again)
            return
        vertex.seal(self._seconds)
        self.over = True
        log.info("Kept %s: %d map outputs, %s", vertex.name, maps, bytes_text(vertex.bytes))
