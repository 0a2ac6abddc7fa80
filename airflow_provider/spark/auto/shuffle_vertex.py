"""A shuffle as a vertex of the execution graph: its partitions are the outputs of its map tasks.

As in Flink, what is kept are result partitions: a map task's output is a result, whatever becomes of the query.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider.core.digest import digest
from airflow_provider.core.events import MOST_PARTITIONS, SHUFFLE, VertexInitialized
from airflow_provider.core.partitions import WHOLE, StoredPartition, incarnation
from airflow_provider.spark.auto.shuffle_identity import NotKept, Purpose, ShuffleIdentity
from airflow_provider.spark.jvm.layout import CUTTING_SETTINGS, describe_layout
from airflow_provider.spark.jvm.map_output_tracker import MapOutputTracker, shuffles_below
from airflow_provider.spark.jvm.occurrences import NotYet
from airflow_provider.spark.jvm.session_settings import all_settings, settings_set
from airflow_provider.spark.points.cut import Cut

if TYPE_CHECKING:
    from airflow_provider.core.graph import Vertex
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.shuffles.map_output import MapOutput

ROWS = "shuffleRecordsWritten"
SIZE = "dataSize"
"""The metrics of an exchange by which adaptive execution decides."""
FIRST_RESTORED = 2**40
"""Map ids of restored outputs start here; those of tasks count from 0, in the order in which tasks are started."""
_TOTALS = "shuffle/"
"""Prefix of the name under which the totals of a complete shuffle are stored."""


@dataclass
class ShuffleVertex:
    """One shuffle of this application, with its vertex.

    Holds nothing of the shuffle's plan, so that Spark may clean up after it.

    :ivar metrics: of its exchange, by name
    :ivar schema: of its rows, as JSON
    :ivar name: of the vertex in this attempt
    :ivar vertex: its identity
    :ivar number: Spark's shuffle id
    :ivar maps: number of map tasks
    :ivar reducers: number of reducers
    :ivar layout: what each map task reads
    :ivar order: index of a map task → the index of its partition, if these differ; else empty
    :ivar stored: index → stored partition
    :ivar tasks: index → this application's map id of the stored output
    :ivar sealed: whether all of it is in the store, and the store has confirmed that
    :ivar again: whether Spark has run tasks again whose outputs were in the store
    """

    context: RecoveryContext
    spark: Any
    metrics: Any
    schema: str
    identity: ShuffleIdentity
    name: str
    vertex: str
    number: int
    maps: int
    reducers: int
    layout: str
    order: tuple[int, ...]
    registry: ShuffleRegistry
    stored: dict[int, StoredPartition] = field(default_factory=dict)
    tasks: dict[int, int] = field(default_factory=dict)
    sealed: bool = False
    again: bool = False
    _recorded: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    """The vertices that it reads, and its purposes, as recorded; ``None`` if not recorded."""

    @property
    def bytes(self) -> int:
        """What is stored of it."""
        return sum(partition.bytes for partition in self.stored.values())

    @classmethod
    def of(
        cls,
        context: RecoveryContext,
        registry: ShuffleRegistry,
        spark: Any,
        exchange: Any,
        dependency: Any,
        identity: ShuffleIdentity,
        purpose: Purpose,
    ) -> ShuffleVertex:
        """Return the vertex of a shuffle whose tasks are planned.

        :param registry: learns what it is
        :param purpose: what this query runs it for
        :raises NotKept: the inputs of its map tasks cannot be told apart
        """
        rdd = dependency.rdd()
        if rdd.isBarrier():
            raise NotKept("its tasks run in barrier mode")
        reducers = int(dependency.partitioner().numPartitions())
        if reducers != int(exchange.outputPartitioning().numPartitions()):
            raise NotKept("it has another number of reducers than its plan says")
        maps, cut, order = divided(spark, exchange.child(), rdd)  # whose rows its identity is sure of
        if identity.inputs is not None and shuffles_below(rdd).keys() != set(identity.inputs):
            raise NotKept("it depends on the order of rows in shuffles that its plan does not show")
        name, vertex = context.identify(identity.title, identity.fingerprint.digest)
        number = int(dependency.shuffleId())
        metrics, schema = exchange.metrics(), str(exchange.schema().json())
        known = context.master.vertex(vertex)
        served = known.initialized.purposes or ("",) if known is not None and known.partitions else ()
        registry.serve(vertex, (*served, purpose.recorded))
        registry.learn(number, vertex, identity.points_below(context.master.prefix))
        found = (identity, name, vertex, number, maps, reducers, cut, order)
        return cls(context, spark, metrics, schema, *found, registry)

    def index(self, task: int) -> int:
        """Return the index of the partition that a map task writes.

        :param task: its index in this application
        """
        return self.order[task] if self.order else task

    def tasks_now(self, tracker: MapOutputTracker) -> dict[int, int]:
        """Return, by index, this application's map ids of the outputs that reducers read now."""
        return {self.index(task): number for task, number in tracker.tasks(self.number).items()}

    def made_since(self, tracker: MapOutputTracker) -> int | None:
        """Return the map id above which its tasks that have ended have read what its identity says; ``None`` if tasks
        may read something else now.
        """
        if self.identity.inputs is None:
            return -1
        inputs = self.registry.whole(self.identity.inputs, tracker)
        if inputs is None or _incarnation(inputs) != self.identity.incarnation:
            return None
        tasks = (task for vertex in inputs for task in vertex.tasks.values())
        return max((task for task in tasks if task < FIRST_RESTORED), default=-1)

    def record(self) -> None:
        """Record the vertex for the next attempt, before any of its outputs is stored."""
        if self._recorded is None:
            self._record(self._told())

    def record_more(self) -> None:
        """Record what it reads and its purposes again, if more is known now."""
        if self._recorded is not None and (told := self._told()) != self._recorded:
            self._record(told)

    def _told(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self._upstream(), self.registry.purposes(self.vertex)

    def _upstream(self) -> tuple[str, ...]:
        """Return the vertices that it reads, including those recorded when it was stored."""
        known = self.context.master.vertex(self.vertex)
        before = known.initialized.upstream if known is not None else ()
        return tuple(dict.fromkeys((*before, *self.registry.upstream(self.number))))

    def _record(self, told: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
        self._recorded = told
        self.context.master.vertex_initialized(
            VertexInitialized(
                epoch=self.context.master.epoch,
                at=time.time(),
                vertex=self.vertex,
                name=self.name,
                fingerprint=self.identity.fingerprint.digest,
                parallelism=self.maps,
                layout=self.layout,
                deterministic=True,
                schema=self.schema,
                upstream=told[0],
                parts=self.identity.fingerprint.parts,
                layout_spec=Cut(0, settings_set(self.spark, all_settings(self.spark), *CUTTING_SETTINGS), []).to_spec(),
                rule=SHUFFLE,
                purposes=told[1],
            )
        )

    def take(self, partition: StoredPartition, task: int) -> None:
        """Record a map output that is in the store.

        :param task: its map id in this application
        """
        self.record()
        self.context.master.partition_finished(partition)
        self.stored[partition.index] = partition
        self.tasks[partition.index] = task

    def forget(self, indexes: Iterable[int]) -> None:
        """Forget map outputs that were computed again: the stored ones are not what reducers read."""
        self.again = True
        again = tuple(sorted(indexes))
        self.context.master.partitions_recomputed(self.vertex, again, "Spark has run these map tasks again")
        for index in again:
            self.stored.pop(index, None)
            self.tasks.pop(index, None)

    def seal(self, copying_seconds: float) -> None:
        """Finish the vertex: all map outputs are in the store, and Spark has counted their rows."""
        rows, size = int(self.metrics.apply(ROWS).value()), int(self.metrics.apply(SIZE).value())
        self.context.master.remember(_TOTALS + self.vertex, {"layout": self.layout, "rows": rows, "bytes": size})
        self.sealed = self.context.master.vertex_finished(self.vertex, copying_seconds)

    def reused(self, known: Vertex | None) -> None:
        """Record that all of it was put back; *known* is what was known of it before."""
        self.context.master.vertex_reused(self.vertex)
        self.sealed = (known is not None and known.finished) or self.context.master.vertex_finished(self.vertex)

    def unusable(self, known: Vertex | None, survivors: str) -> str:
        """Record why nothing of it is put back, and return that; empty if nothing was stored.

        :param survivors: what its partitions are, if some have survived all the same
        """
        if known is None or not known.partitions:
            return ""
        why = f"its {survivors} cannot be used any more" if survivors else "its rows are cut differently now"
        self.context.master.partitions_reset(self.vertex, (), why)
        return why

    def totals(self) -> tuple[int, int] | None:
        """Return the rows and bytes that Spark counted when the shuffle was complete; ``None`` if unknown."""
        known = self.context.master.coordinator(_TOTALS + self.vertex)
        if known is None or known.get("layout") != self.layout:
            return None
        return int(known["rows"]), int(known["bytes"])


@dataclass
class ShuffleRegistry:
    """The shuffles of one application, under Spark's numbers, which start from 0 in each application.

    :ivar vertices: Spark's shuffle id → the vertex whose map outputs it has
    :ivar put_back: Spark's shuffle id → its restored map outputs, by executor; Spark does not delete their files
    :ivar coming: Spark's ids of shuffles whose map outputs are being put back
    :ivar identities: Spark's shuffle id → its vertex, even if another shuffle's map outputs are kept
    :ivar named: vertex of a shuffle → the script's recovery points that are read below
    :ivar reads: Spark's shuffle id → those that its tasks read
    :ivar serves: vertex → what its queries are for, see :attr:`Purpose.recorded`
    :ivar needed: Spark's shuffle id → seconds of task time of a shuffle above that can be kept only if this one is
    :ivar left: Spark's shuffle id → why it is not kept, whatever needs it
    """

    vertices: dict[int, ShuffleVertex] = field(default_factory=dict)
    put_back: dict[int, list[tuple[tuple[str, str], MapOutput]]] = field(default_factory=dict)
    coming: set[int] = field(default_factory=set)
    identities: dict[int, str] = field(default_factory=dict)
    named: dict[str, tuple[str, ...]] = field(default_factory=dict)
    reads: dict[int, tuple[int, ...]] = field(default_factory=dict)
    serves: dict[str, dict[str, None]] = field(default_factory=dict)
    needed: dict[int, float] = field(default_factory=dict)
    left: dict[int, str] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    @contextmanager
    def putting_back(self, number: int) -> Iterator[None]:
        """Put map outputs back while the block runs: which of them are stored is known at its end."""
        self.coming.add(number)
        try:
            yield
        finally:
            self.coming.discard(number)

    def look_below(self, dependency: Any) -> None:
        """Learn what the tasks of a shuffle read, and those of shuffles below it that are no vertices."""
        pending = [dependency]
        while pending:
            shuffle = pending.pop()
            if (number := int(shuffle.shuffleId())) not in self.reads:
                below = shuffles_below(shuffle.rdd())
                self.reads[number] = tuple(below)
                pending += [each for number, each in below.items() if number not in self.identities]

    def bound(self, identity: ShuffleIdentity, tracker: MapOutputTracker, seconds: float = 0.0) -> ShuffleIdentity:
        """Return a shuffle's identity with the incarnation of its inputs, if its rows depend on their order.

        :param seconds: task time that keeping its inputs would save, too
        :raises NotKept: these are not kept
        :raises NotYet: they are not in the store as a whole
        """
        if identity.inputs is None:
            return identity
        inputs = self.whole(identity.inputs, tracker)
        if inputs is not None and identity.over_cached and any(vertex.again for vertex in inputs):
            raise NotKept("it reads a cached DataFrame, which may be made of map outputs that Spark has computed again")
        if inputs is not None:
            return identity.made_of(_incarnation(inputs))
        reason = "it depends on the order of rows in a shuffle that is not"
        with self.lock:
            if left := next((self.left[each] for each in identity.inputs if each in self.left), ""):
                raise NotKept(f"{reason} kept: {left}")
            self.needed |= {each: max(seconds, self.needed.get(each, 0.0)) for each in identity.inputs}
        raise NotYet(f"{reason} in the store as a whole")

    def whole(self, numbers: Iterable[int], tracker: MapOutputTracker) -> list[ShuffleVertex] | None:
        """Return shuffles, if exactly the map outputs of them that tasks read now are in the store; else ``None``.

        :param numbers: Spark's ids
        """
        with self.lock:
            kept = [self.vertices.get(number) for number in numbers]
        whole = [
            vertex
            for vertex in kept
            if vertex is not None and vertex.sealed and vertex.tasks_now(tracker) == vertex.tasks
        ]
        return whole if len(whole) == len(kept) else None

    def learn(self, number: int, vertex: str, named: tuple[str, ...]) -> None:
        """Learn the vertex of a shuffle.

        :param named: the script's recovery points that the shuffle's tasks, or those further down, read
        """
        with self.lock:
            self.named[vertex] = named
            self.identities[number] = vertex
            vertices = list(self.vertices.values())
        for above in vertices:
            above.record_more()

    def serve(self, vertex: str, purposes: Iterable[str]) -> None:
        """Learn what queries run a shuffle for, whichever of them is kept."""
        with self.lock:
            self.serves.setdefault(vertex, {}).update(dict.fromkeys(purposes))

    def purposes(self, vertex: str) -> tuple[str, ...]:
        """Return what the queries of a shuffle are for."""
        with self.lock:
            return tuple(self.serves.get(vertex, ()))

    def give_up(self, given_up: Collection[str]) -> list[int]:
        """Forget that shuffles are kept; return their Spark ids."""
        with self.lock:
            numbers = [number for number, kept in self.vertices.items() if kept.vertex in given_up]
            for number in numbers:
                del self.vertices[number]
            return numbers

    def leave_out(self, number: int) -> None:
        """Treat a shuffle as no vertex after all: nothing of it is kept."""
        with self.lock:
            self.vertices.pop(number, None)
            self.identities.pop(number, None)

    def forget(self, number: int) -> None:
        """Forget whether a shuffle that Spark has dropped was needed."""
        with self.lock:
            self.needed.pop(number, None)
            self.left.pop(number, None)

    def forget_purposes(self, released: Collection[str]) -> None:
        """Forget what released shuffles were kept for: another query may have to keep them again."""
        with self.lock:
            for vertex in released:
                self.serves.pop(vertex, None)

    def upstream(self, number: int) -> tuple[str, ...]:
        """Return the vertices that a shuffle reads, looking through shuffles that are none; empty if not examined."""
        if number not in self.reads:
            return ()
        pending, found = list(self.reads[number]), dict[str, None]()
        seen = set(pending)
        for below in pending:
            if below in self.identities:
                found[self.identities[below]] = None
            else:
                pending += (new := [each for each in self.reads.get(below, ()) if each not in seen])
                seen.update(new)
        further_down = {name for vertex in found for name in self.named[vertex]}
        named = self.named[self.identities[number]]
        return (*(name for name in named if name not in further_down), *found)


def _incarnation(vertices: Iterable[ShuffleVertex]) -> str:
    """Return what stands for the map outputs of shuffles, and for which of them is read where."""
    return digest(*(incarnation(partition.key for partition in vertex.stored.values()) for vertex in vertices))[:16]


def divided(spark: Any, plan: Any, rdd: Any) -> tuple[int, str, tuple[int, ...]]:
    """Return the number of tasks that run a plan, what identifies the parts that each reads, and their order.

    :raises NotKept: it is not the same tasks in each run
    """
    tasks = int(rdd.getNumPartitions())
    if not 0 < tasks <= MOST_PARTITIONS:
        raise NotKept(f"it has no tasks, or more than {MOST_PARTITIONS:,}")
    if "INDETERMINATE" in str(rdd.outputDeterministicLevel().toString()):
        raise NotKept("Spark takes its rows for not deterministic")
    layout = describe_layout(spark, plan, maps=True)
    cut = layout.identity(tasks)
    if cut == WHOLE:
        raise NotKept(f"what its tasks read cannot be told apart: {'; '.join(layout.whole_only)}")
    if len(layout.order) not in (0, tasks):
        raise NotKept("several partitions of tables are read by one of its tasks")
    return tasks, cut, layout.order
