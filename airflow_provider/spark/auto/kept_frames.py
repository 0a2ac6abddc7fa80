"""Keep what the script has cached: copy the partitions of cached DataFrames while they are filled, and after.

With a local master they lie in the driver's own JVM. The same rules hold as for shuffles: copying a frame must cost
little compared with filling it, and a frame counts from the first partition that is stored. What Spark has written to
its local disks, because memory is short or the script wants it so, is a file like a map output. Batches that lie in
memory as objects have to be written first, and so are weighed by themselves.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_provider.core.causes import one_line
from airflow_provider.core.errors import Fenced, RecoveryError
from airflow_provider.core.overhead import COPYING, IDENTITIES
from airflow_provider.core.quantities import bytes_text
from airflow_provider.spark.auto.cost import CopyingCost
from airflow_provider.spark.auto.frame_vertex import FrameVertex, frame_identity, frame_number, frame_title
from airflow_provider.spark.auto.origin import Origin
from airflow_provider.spark.auto.shuffle_identity import NotKept
from airflow_provider.spark.jvm.cached_batches import CachedBatches, Held, cached_rdd, partitions_in
from airflow_provider.spark.jvm.occurrences import NotYet
from airflow_provider.spark.jvm.session_settings import active_session, all_settings
from airflow_provider.spark.local_dirs import leave_room, scratch_folder
from airflow_provider.spark.points.partition_io import Place
from airflow_provider.spark.points.reading import location
from airflow_provider.spark.shuffles.cached_partition import Batches, store_batches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider.core.partitions import StoredPartition
    from airflow_provider.spark.auto.copying import Tools
    from airflow_provider.spark.auto.shuffle_vertex import ShuffleRegistry
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.jvm.exchanges import RunningQueries

log = logging.getLogger(__name__)

_SHARE = 0.3
"""Of the overhead budget, what writing batches that lie in memory may cost: what is counted is not all, because they
also take room in the page cache that the script's tasks use.
"""
_CODEC = {True: "none", False: "lz4"}
"""With what they are compressed, if a store on files gets them, and if they are sent: bytes cost less, or more."""
_AT_ONCE = 256 * 2**20
"""Bytes to copy in one look, so that looks at shuffles do not wait."""
_TRIES = 3
"""How often to try to copy a partition, or to let looks at a frame fail."""
_LOOKS = 40
"""How often to wait until Spark says which queries have filled a frame."""


class KeptFrames:
    """The cached DataFrames of one Spark application with a local master.

    :ivar cost: what writing batches that lie in memory has cost, and may cost
    """

    def __init__(
        self,
        context: RecoveryContext,
        spark: Any,
        registry: ShuffleRegistry,
        tools: Tools,
        queries: RunningQueries,
        settings: Mapping[str, str],
    ) -> None:
        self.context = context
        self._spark = spark
        self.registry = registry
        self.tools = tools
        self.queries = queries
        self.settings = settings
        budget = context.master.request.options.overhead_budget
        self.cost = CopyingCost(budget * _SHARE, assumed=tools.cost.assumed)
        self._new = context.application.frames
        self._frames: list[KeptFrame] = []

    @cached_property
    def batches(self) -> CachedBatches:
        """The partitions of all of them."""
        return CachedBatches(self._spark, _CODEC[self.tools.links])

    def look(self) -> None:
        """Keep what the script has cached."""
        while self._new:
            self._frames.append(KeptFrame(self, *self._new.popleft()))
        for frame in self._frames:
            frame.look()
        self._frames = [frame for frame in self._frames if not frame.over]


class KeptFrame:
    """One cached DataFrame of the application, looked at again and again until it is stored or skipped.

    :param held: weak reference to its ``InMemoryRelation``
    :ivar over: whether nothing is left to do
    """

    def __init__(self, frames: KeptFrames, spark: Any, held: Any) -> None:
        self._all = frames
        self._spark = spark
        self._held = held
        self._vertex: FrameVertex | None = None
        self._title = "a cached DataFrame"
        self._settled = ""
        """What there was when nothing was left to do with it."""
        self._misses: Counter[int] = Counter()
        self._restored: frozenset[int] = frozenset()
        self._seconds = 0.0
        self._unknown = 0
        self._failures = 0
        self.over = False

    def look(self) -> None:
        """Copy new partitions if they are worth it."""
        try:
            look = self._all.batches.look(self._held)
            if look is None:
                self.over = True
            elif look and look != self._settled and not self._all.tools.backing_off:
                self._settled = look if self._keep(*partitions_in(look)) else ""
            self._failures = 0
        except Fenced:
            raise
        except NotKept as reason:
            self._leave_alone(str(reason))
        except NotYet:
            pass
        except Exception as error:
            self._failures += 1
            log.debug("A look at %s failed", self._title, exc_info=error)
            if self._failures >= _TRIES:
                self._leave_alone(f"it cannot be looked at: {one_line(error)}")

    def _keep(self, rdd: int, held: dict[int, Held]) -> bool:
        """Copy partitions; return whether there is nothing to do until others are there.

        :param rdd: Spark's id of the RDD that holds the frame
        :param held: the partitions that are there, by index
        """
        number = frame_number(rdd)
        if number in self._all.registry.coming:
            return False
        known = self._all.registry.vertices.get(number)
        if self._vertex is None and isinstance(known, FrameVertex):
            self._vertex, self._restored = known, frozenset(known.stored)
        if self._vertex is not None and (known is not self._vertex or self._vertex.sealed):
            self.over = True  # given up, or stored
            return True
        stored = self._vertex.stored if self._vertex is not None else {}
        if not any(self._is_new(task, stored) for task in held):
            return True
        seconds, ended = self._all.tools.metrics.filling(rdd, len(held))
        worth = self._worth(held, seconds) if ended else {}
        new = {task: each for task, each in worth.items() if self._is_new(task, stored)}
        if not new:
            return ended >= len(held)
        size = sum(each.size for each in worth.values())
        relation = self._held.get()
        if relation is None:
            return False
        if self._vertex is None:
            self._title = frame_title(relation)
            with self._all.context.master.overhead.on(IDENTITIES):
                self._vertex = self._identified(relation, cached_rdd(relation), seconds)
        vertex = self._vertex
        if vertex.made_since(self._all.tools.tracker) is None:  # asked behind what is held
            raise NotKept("Spark has run tasks again whose rows it depends on")
        whole = size * vertex.maps // max(1, len(held))
        if not self._all.tools.make_room(vertex, max(0, whole - vertex.bytes), seconds / max(1, size)):
            raise NotKept("the store budget is full, all of it worth more than this")
        with self._all.context.master.overhead.on(COPYING):
            self._copy(cached_rdd(relation), new, seconds / ended)
        if len(vertex.stored) == vertex.maps:
            vertex.seal(self._seconds)
            self.over = True
            log.info("Kept %s: %d partitions, %s", vertex.name, vertex.maps, bytes_text(vertex.bytes))
        return False

    def _is_new(self, task: int, stored: Mapping[int, StoredPartition]) -> bool:
        return self._index(task) not in stored and self._misses[task] < _TRIES

    def _worth(self, held: Mapping[int, Held], seconds: float) -> dict[int, Held]:
        """Return the partitions of this attempt that are worth a copy.

        :param seconds: task time in which all that is held was filled
        """
        made = {task: each for task, each in held.items() if self._index(task) not in self._restored}
        worth: dict[int, Held] = {}
        for written, cost in ((True, self._all.tools.cost), (False, self._all.cost)):
            some = {task: each for task, each in made.items() if each.written is written}
            size = sum(each.size for each in some.values())
            if not cost.too_high(seconds * len(some) / max(1, len(made)), size):
                worth |= some
        return worth

    def _index(self, task: int) -> int:
        return self._vertex.index(task) if self._vertex is not None else task

    def _identified(self, relation: Any, rdd: Any, seconds: float) -> FrameVertex:
        spark = self._spark
        with active_session(spark):
            self._check_settings(spark, rdd)
            identity = frame_identity(
                self._all.context, self._all.registry, self._all.tools.tracker, spark, relation, seconds
            )
            vertex = FrameVertex.of_frame(self._all.context, self._all.registry, spark, relation, rdd, identity)
        with self._all.registry.lock:
            if vertex.vertex in {each.vertex for each in self._all.registry.vertices.values()}:
                raise NotKept("another cached DataFrame holds the same, and is kept in its place")
            self._all.registry.vertices[vertex.number] = vertex
        return vertex

    def _check_settings(self, spark: Any, rdd: Any) -> None:
        """Make sure that all queries that have computed partitions ran with the settings that hold now.

        :raises NotKept: one has not
        :raises NotYet: Spark does not say yet which they were
        """
        stages = self._all.tools.metrics.computing(int(rdd.id()))
        ran = self._all.tools.metrics.queries_of(stages)
        if not stages or not stages <= ran.keys():
            self._unknown += 1
            if self._unknown >= _LOOKS:
                raise NotKept("Spark does not say which queries have filled it")
            raise NotYet("Spark does not say yet which queries have filled it")
        now = all_settings(spark)
        for stage, query in ran.items():
            record = self._all.queries.record(query)
            origin = Origin.of(record, self._all.settings) if record is not None else None
            if origin is None:
                raise NotYet("Spark does not say yet with which settings it was filled")
            origin.check(stage, now)

    def _copy(self, rdd: Any, partitions: Mapping[int, Held], seconds: float) -> None:
        began, left = time.monotonic(), _AT_ONCE
        for task, held in partitions.items():
            if left <= 0 or self._all.tools.backing_off:
                break
            try:
                took = self._store(rdd, task, held.size, seconds)
            except Fenced:
                raise
            except (RecoveryError, OSError) as error:
                log.warning("A cached DataFrame is not stored now; it is tried again later: %s", error)
                self._all.tools.back_off()
                break
            if took is None:
                self._misses[task] += 1
            else:
                (self._all.tools.cost if held.written else self._all.cost).copied(held.size, took)
                self._seconds += took
                left -= held.size
        self._all.tools.waited += time.monotonic() - began

    def _store(self, rdd: Any, task: int, size: int, seconds: float) -> float | None:
        """Store a partition; return the seconds that this took, ``None`` if it is not there any more.

        Writing it counts by the CPU that it takes: it competes with the script's tasks for that.
        """
        vertex = self._vertex
        assert vertex is not None  # noqa: S101 - identified before
        vertex.record()
        with scratch_folder(self._all.batches.directory) as folder:
            leave_room(folder, size)
            path = folder / "batches"
            written = self._all.batches.write(rdd, task, str(path))
            if written is None:
                return None
            codec, checksum, took = written
            named = Place(
                vertex.vertex, vertex.layout, vertex.index(task), vertex.maps, self._all.context.master.epoch, task
            )
            batches = Batches(codec, path.stat().st_size, checksum)
            store = location(self._all.context).open()
            partition, stored_in = store_batches(store, named, path, batches, seconds)
        vertex.take(partition, task)
        return took + stored_in

    def _leave_alone(self, reason: str) -> None:
        self.over = True
        log.debug("%s is not kept: %s", self._title, reason)
        self._all.context.master.vertex_skipped(self._title, reason)
