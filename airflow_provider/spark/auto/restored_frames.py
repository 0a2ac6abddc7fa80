"""Put the stored partitions of cached DataFrames back before the query that reads them runs.

Spark's own tasks fill a frame partition by partition, and look first whether a partition is there. So one that was put
into the block manager is not computed; what is lost again, or missing, is.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from itertools import compress
from typing import TYPE_CHECKING, Any

from airflow_provider.core.errors import CorruptObject, ObjectNotFound
from airflow_provider.core.events import CACHED
from airflow_provider.core.vertex_token import name_of, vertex_identity
from airflow_provider.spark.auto.frame_vertex import FrameVertex, frame_identity, frame_number, frame_title
from airflow_provider.spark.auto.shuffle_identity import NotKept
from airflow_provider.spark.auto.shuffle_vertex import FIRST_RESTORED
from airflow_provider.spark.jvm.cached_batches import CachedBatches, Unreadable, frames_below
from airflow_provider.spark.jvm.cached_frames import can_be_planned, read_by_tasks
from airflow_provider.spark.jvm.exchanges import ADAPTIVE, cached_plan, is_filled, kind
from airflow_provider.spark.jvm.executors import is_local
from airflow_provider.spark.jvm.map_output_tracker import MapOutputTracker
from airflow_provider.spark.jvm.occurrences import NotYet
from airflow_provider.spark.local_dirs import NoRoom, leave_room, scratch_folder
from airflow_provider.spark.points.reading import location
from airflow_provider.spark.shuffles.cached_partition import fetch_batches

if TYPE_CHECKING:
    from collections.abc import Set

    from airflow_provider.core.partitions import StoredPartition
    from airflow_provider.spark.auto.shuffle_vertex import ShuffleRegistry
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.storage.partition_store import PartitionStore

log = logging.getLogger(__name__)

_AT_ONCE = 4
"""How many partitions to put back at the same time: as many as the driver has cores, at most."""
_CACHED = name_of(vertex_identity(CACHED, ""))
"""Begins the name of a frame's vertex."""


def _name(relation: Any) -> str:
    """Return the name of a frame's vertex."""
    return name_of(vertex_identity(frame_title(relation), ""))


class RestoredFrames:
    """The cached DataFrames that one query reads, and that nothing has filled.

    :ivar names: the possible names of their vertices
    :ivar found: the vertices that they have turned out to be
    """

    def __init__(
        self, context: RecoveryContext, registry: ShuffleRegistry, spark: Any, wanted: Set[str], plan: Any
    ) -> None:
        self._context = context
        self._registry = registry
        self._spark = spark
        self._wanted = wanted
        self._tracker = MapOutputTracker(spark)
        names = set(map(name_of, wanted))
        cached = any(name.startswith(_CACHED) for name in names)
        frames = frames_below(plan) if cached and is_local(spark) else ()
        self._left = {cached_plan(frame): name for frame in frames if (name := _name(frame)) in names}
        self.names = frozenset(self._left.values())
        self.found: set[str] = set()

    def fill(self, relation: Any, there: Set[int]) -> None:
        """Put back what survived of a frame, if its tasks can be planned, and of those that it reads.

        :param there: see :func:`can_be_planned`
        """
        if not self._left or is_filled(relation):
            return
        if not can_be_planned(relation, there):
            self._fill_below(relation, there)  # adaptive execution plans it once these are filled
        number = cached_plan(relation)
        if number in self._left and can_be_planned(relation, there):
            del self._left[number]
            rdd = relation.cacheBuilder().cachedColumnBuffers()
            if frame_number(int(rdd.id())) not in self._registry.vertices:  # else this attempt has kept it
                self._put_back(relation, rdd)
        if not is_filled(relation):
            self._fill_below(relation, there)

    def _fill_below(self, relation: Any, there: Set[int]) -> None:
        plan = relation.cachedPlan()
        for below in read_by_tasks(plan.initialPlan() if kind(plan) == ADAPTIVE else plan):
            self.fill(below, there)

    def _put_back(self, relation: Any, rdd: Any) -> None:
        try:
            identity = frame_identity(self._context, self._registry, self._tracker, self._spark, relation)
            if identity.vertex not in self._wanted:
                return
            self.found.add(identity.vertex)
            vertex = FrameVertex.of_frame(self._context, self._registry, self._spark, relation, rdd, identity)
        except (NotKept, NotYet) as reason:
            log.info("%s is filled again: %s", frame_title(relation), reason)
            return
        with self._registry.putting_back(vertex.number):
            self._lay(vertex, relation, rdd)

    def _lay(self, vertex: FrameVertex, relation: Any, rdd: Any) -> None:
        master = self._context.master
        known = master.vertex(vertex.vertex)
        survivors = master.survivors_of(vertex.vertex, vertex.layout, vertex.maps, deterministic=True)
        batches, store = CachedBatches(self._spark), location(self._context).open()

        def restored(item: tuple[int, StoredPartition]) -> bool:
            return self._restored(store, batches, relation, rdd, vertex.task(item[0]), item[1])

        with ThreadPoolExecutor(min(_AT_ONCE, int(rdd.sparkContext().defaultParallelism()))) as pool:
            there = dict(compress(survivors.items(), pool.map(restored, survivors.items())))
        if not there:
            if why := vertex.unusable(known, "partitions" if survivors else ""):
                log.info("%s is filled again: %s", vertex.name, why)
            return
        for index, stored in there.items():
            vertex.take(stored, FIRST_RESTORED + index)
        left = vertex.maps - len(there)
        log.info("%s: %d partitions put back, %d to compute", vertex.name, len(there), left)
        if not left:
            vertex.reused(known)
        with self._registry.lock:
            self._registry.vertices[vertex.number] = vertex

    def _restored(
        self,
        store: PartitionStore,
        batches: CachedBatches,
        relation: Any,
        rdd: Any,
        task: int,
        stored: StoredPartition,
    ) -> bool:
        try:
            with scratch_folder(batches.directory) as folder:
                leave_room(folder, stored.bytes)
                path = folder / "batches"
                read = fetch_batches(store, stored, path)
                return batches.put(relation, rdd, task, str(path), read.codec)
        except Unreadable as error:
            store.mark_corrupt(stored)
            log.warning("The partition %s holds no batches of a cached DataFrame: %s", stored.key, error)
        except (CorruptObject, ObjectNotFound, NoRoom) as error:
            log.warning("%s", error)
        return False
