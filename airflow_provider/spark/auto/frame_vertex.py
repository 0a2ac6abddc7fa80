"""A cached DataFrame as a vertex of the execution graph: its partitions are Spark's batches of columns.

Other queries read the same frame, and a retry must find the rows of the first attempt in it. So it is identified by
what its tasks run, and by the map outputs and broadcasts that they have read. Whatever of it is missing is computed
from these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider.core.events import CACHED
from airflow_provider.spark.auto.origin import ensure_same
from airflow_provider.spark.auto.shuffle_identity import NotKept, Purpose, ShuffleIdentity, shortened
from airflow_provider.spark.auto.shuffle_vertex import ShuffleVertex, divided
from airflow_provider.spark.jvm.cached_batches import has_sparks_batches, is_observed, reader_of, scan_of
from airflow_provider.spark.jvm.exchanges import cached_plan
from airflow_provider.spark.jvm.map_output_tracker import shuffles_below
from airflow_provider.spark.jvm.scala import items
from airflow_provider.spark.jvm.session_settings import QuerySettings, all_settings

if TYPE_CHECKING:
    from airflow_provider.spark.auto.shuffle_vertex import ShuffleRegistry
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.jvm.map_output_tracker import MapOutputTracker


def frame_title(relation: Any) -> str:
    """Return the frame's name in the log, by its columns."""
    return shortened(f"{CACHED}{', '.join(str(column.name()) for column in items(relation.output()))})")


def frame_number(rdd: int) -> int:
    """Return the number under which the registry has a frame: Spark's shuffles have the others.

    :param rdd: Spark's id of the RDD that holds it
    """
    return -1 - rdd


def frame_identity(
    context: RecoveryContext,
    registry: ShuffleRegistry,
    tracker: MapOutputTracker,
    spark: Any,
    relation: Any,
    seconds: float = 0.0,
) -> ShuffleIdentity:
    """Return the identity of a cached frame whose tasks are planned.

    :param seconds: task time in which it was filled
    :raises NotKept: it has no certain identity
    :raises NotYet: what it is made of is not in the store as a whole
    """
    number = cached_plan(relation)
    cached_under = context.application.cached_under.get(number)
    if cached_under is None:
        raise NotKept("the script has not cached it by a call that can be observed")
    if not has_sparks_batches(relation):
        raise NotKept("it is cached in another form than Spark's own (spark.sql.cache.serializer)")
    if is_observed(relation.cachedPlan()):
        raise NotKept("its rows are observed")
    ensure_same(cached_under, all_settings(spark))
    reader = reader_of(spark, relation)
    identity = ShuffleIdentity.of_frame(context, spark, reader, QuerySettings(cached_under))
    identity = replace(identity, title=frame_title(relation))
    purpose = Purpose(context.purpose(number), cached=True)
    return registry.bound(identity.occurrence(purpose, _once), tracker, seconds)


def _once(_: str) -> str:
    return "1"


@dataclass
class FrameVertex(ShuffleVertex):
    """One cached frame of this application, with its vertex."""

    @classmethod
    def of_frame(
        cls,
        context: RecoveryContext,
        registry: ShuffleRegistry,
        spark: Any,
        relation: Any,
        rdd: Any,
        identity: ShuffleIdentity,
    ) -> FrameVertex:
        """Return the vertex of a frame whose tasks are planned.

        :raises NotKept: what its partitions cover cannot be told apart
        """
        if shuffles_below(rdd).keys() != set(identity.inputs or ()):
            raise NotKept("it depends on the order of rows in shuffles that its plan does not show")
        partitions, cut, order = divided(spark, scan_of(spark, relation), rdd)
        name, vertex = context.identify(identity.title, identity.fingerprint.digest)
        number = frame_number(int(rdd.id()))
        registry.serve(vertex, ("",))
        registry.reads[number] = tuple(dict.fromkeys(identity.inputs or ()))
        registry.learn(number, vertex, identity.points_below(context.master.prefix))
        schema = str(relation.schema().json())
        found = (identity, name, vertex, number, partitions, 0, cut, order)
        return cls(context, spark, None, schema, *found, registry)

    def task(self, index: int) -> int:
        """Return the partition of the frame's RDD that a stored partition is of; the inverse of :meth:`index`."""
        return self.order.index(index) if self.order else index

    def seal(self, copying_seconds: float) -> None:
        """Finish the vertex: all partitions are in the store."""
        self.sealed = self.context.master.vertex_finished(self.vertex, copying_seconds)
