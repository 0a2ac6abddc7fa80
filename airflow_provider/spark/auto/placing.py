"""Put recovery points into the plan of one action, where the rules and the price say so.

Nothing here may break an action: whatever goes wrong before a Spark job runs, the action runs as the user wrote it, and
the report says so. The fingerprint of a point is that of its whole subtree, whether or not points further down were
placed in it; so a retry finds what survived though it may decide otherwise about the rest. A point that is complete
is read, and nothing below it is looked at; otherwise the points below come first.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider.recovery.causes import one_line
from airflow_provider.recovery.errors import Fenced
from airflow_provider.spark.auto.cost import CostModel
from airflow_provider.spark.auto.rules import CACHED, Node, Placement, Rule, placements, placements_in_kept
from airflow_provider.spark.environment import executors_ready
from airflow_provider.spark.fingerprint import fingerprint
from airflow_provider.spark.jvm.map_stage import map_stages, planned_shuffles
from airflow_provider.spark.jvm.optimized import OptimizedPlan, at_a_glance
from airflow_provider.spark.jvm.settings import active_session
from airflow_provider.spark.recover import go_on_from
from airflow_provider.spark.recovery_point import RecoveryPoint
from airflow_provider.spark.types import refusal, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from airflow_provider.spark.context import RecoveryContext

log = logging.getLogger(__name__)

_OF_THE_PLAN = {"AnalysisException", "AttributeError", "TypeError", "KeyError", "ValueError", "Py4JError"}
_IN_ORDER = frozenset({Rule.FUNCTION_BEFORE_SINK, Rule.PERSISTED})
"""Without a shuffle rows come in the order of their files, and partitions in their number; both are kept."""


def with_recovery_points(context: RecoveryContext, df: DataFrame, *, returns_rows: bool) -> DataFrame:
    """Return a DataFrame with the rows of *df* for an action on it; *df* itself where nothing is worth storing.

    Computes and stores what the points need.

    :param returns_rows: the action returns rows to the driver; otherwise it writes them somewhere
    :raises Fenced: a newer attempt owns the job
    :raises Exception: a Spark job failed for good, as it would have in the action
    """
    frame = _guarded(context, df, lambda action: action.frame(df, returns_rows=returns_rows))
    return df if frame is None else frame


def kept(context: RecoveryContext, df: DataFrame) -> DataFrame | None:
    """Store a DataFrame that the script keeps as a whole, with ``checkpoint()`` say; ``None`` if that does not pay.

    :raises Fenced: a newer attempt owns the job
    :raises Exception: a Spark job failed for good, as it would have without this
    """
    return _guarded(context, df, _Action.kept)


def is_cheap(context: RecoveryContext, df: DataFrame) -> bool:
    """Whether computing *df* takes so little that nothing is worth remembering of it."""
    return _action(context, df) is None


def _action(context: RecoveryContext, df: DataFrame) -> _Action | None:
    """Return the plan of an action on *df*, to place points in; ``None`` if computing it takes too little for any.

    Of a small plan that is seen before Spark optimizes it.
    """
    cores = df.sparkSession.sparkContext.defaultParallelism
    model, node = CostModel(context.master.request.options.overhead_budget, cores), at_a_glance(df)
    if node is not None and model.too_cheap(model.computing(node)):
        return None
    action = _Action(context, df.sparkSession, OptimizedPlan.of(df), model)
    return None if action.cheap else action


def _guarded(context: RecoveryContext, df: DataFrame, do: Callable[[_Action], DataFrame | None]) -> DataFrame | None:
    context.master.check()
    if not context.master.usable or df.isStreaming:
        return None
    try:
        with active_session(df.sparkSession), context.live.of_action():
            action = _action(context, df)
            return None if action is None else do(action)
    except Fenced:
        raise
    except _JobFailed as failed:
        raise failed.error from None
    except Exception as error:  # noqa: BLE001 - whatever goes wrong in placing, the action is the user's
        log.warning("No recovery points are placed in this action, which runs as it is written: %s", one_line(error))
        context.master.vertex_skipped("an action", one_line(error))
        return None


class _JobFailed(Exception):
    """A Spark job failed for good.

    :ivar error: with what
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _computed(context: RecoveryContext, point: RecoveryPoint) -> DataFrame:
    """Return a frame that reads *point*.

    :raises _JobFailed: computing it failed
    """
    try:
        return go_on_from(context, point)
    except Fenced:
        raise
    except Exception as error:
        if _of_the_job(error):
            raise _JobFailed(error) from error
        raise


def _of_the_job(error: Exception) -> bool:
    """Whether a Spark job failed, which would have failed in the action, too; not the building of its plan."""
    return type(error).__name__ not in _OF_THE_PLAN and "INTERNAL_ERROR" not in str(error)


class _Action:
    """The points of one plan.

    :ivar plan: it
    :ivar model: what its points may cost
    """

    def __init__(self, context: RecoveryContext, spark: Any, plan: OptimizedPlan, model: CostModel) -> None:
        self.context = context
        self.plan = plan
        self._spark = spark
        self.model = model
        self._placed: dict[Node, Placement] = {}
        self._cached: dict[Node, Any] = {}
        self._vertices: dict[Node, str] = {}
        self._tried: dict[Node, RecoveryPoint] = {}
        self._unstored = False

    @property
    def cheap(self) -> bool:
        """Whether computing the whole plan takes too little for any point."""
        return bool(self.model.too_cheap(self.model.computing(self.plan.root)))

    def frame(self, df: DataFrame, *, returns_rows: bool) -> DataFrame:
        """Return *df* with its plan's points resolved; itself if there are none."""
        self._place(placements(self.plan.root, returns_rows=returns_rows))
        replaced = self._below(self.plan.root)
        return self.plan.frame(self.plan.root, replaced) if replaced else df

    def kept(self) -> DataFrame | None:
        """Return a frame that reads the whole plan from the store; ``None`` if storing it does not pay."""
        self._place(placements_in_kept(self.plan.root))
        return self._resolve(self._placed[self.plan.root]) if self._placed else None

    def _place(self, found: list[Placement]) -> None:
        """Take up the placements, and resolve what is cached."""
        cached = [node for node in self.plan.root.walk() if node.name == CACHED]
        if not (found or cached) or executors_ready(self.context, self._spark):
            return
        for node in cached:
            plan = self._from_cache(node)
            if plan is not None:
                self._cached[node] = plan
        refused = self.model.not_placed(self.plan.root, found)
        self._placed = {placement.node: placement for placement in found if placement.node not in refused}

    def _from_cache(self, node: Node) -> Any:
        """Return the plan that stands for a cached DataFrame, stored and cached; ``None`` to leave the leaf alone."""
        relation = self.plan.cached(node)

        def store() -> DataFrame | None:
            optimized = relation.optimized()
            if optimized is None:
                return None
            inside = _Action(self.context, self._spark, OptimizedPlan(self._spark, optimized), self.model)
            return None if inside.cheap else inside.kept()

        frame = self.context.persisted.frame(relation, store)
        if frame is None:
            return None
        return relation.replaced_by(frame)

    def _below(self, node: Node, *, itself: bool = True) -> dict[Node, Any]:
        """Return the plans of the highest points below *node*, resolved."""
        if node in self._cached:
            return {node: self._cached[node]}
        if itself and node in self._placed:
            frame = self._resolve(self._placed[node])
            if frame is not None:
                return {node: frame._jdf.queryExecution().analyzed()}
        replaced: dict[Node, Any] = {}
        for child in node.children:
            replaced |= self._below(child)
        return replaced

    def _resolve(self, placement: Placement) -> DataFrame | None:
        """Return a frame that reads the point; ``None`` if it is not worth having."""
        node, name = placement.node, placement.name
        raw = self.plan.frame(node, self._cached)
        identity = fingerprint(raw, self.context)
        reason = refusal(schema_of(raw)) or "; ".join(identity.opaque)
        if reason:
            log.info("No recovery point %r: %s", name, reason)
            self.context.master.vertex_skipped(name, reason)
            return None
        name, vertex = self.context.identify(name, identity.digest)
        point = RecoveryPoint(
            raw,
            name,
            vertex,
            identity,
            identity.not_deterministic,
            rule=str(placement.rule),
            in_order=placement.rule in _IN_ORDER,
            price=self.model.price(node),
        )
        if not self._complete(point):
            point = self._fed(point, node)
        frame = _computed(self.context, point)
        if point.vertex in self.context.done:
            self._vertices[node] = point.vertex
            return frame
        if point.vertex not in self.context.unstored.vertices:
            self._unstored = True
        if self.context.unstored.shuffles.get(point.vertex):
            self._tried[node] = point
        return frame

    def _fed(self, point: RecoveryPoint, node: Node) -> RecoveryPoint:
        """Return *point* so that it reads the points further down."""
        below = self._below(node, itself=False)
        upstream = (*point.fingerprint.upstream, *(self._vertices[read] for read in below if read in self._vertices))
        return replace(
            point,
            df=self._over(node, below),
            fingerprint=replace(point.fingerprint, upstream=upstream),
            reads_unstored=self._unstored,
        )

    def _over(self, node: Node, below: Mapping[Node, Any]) -> DataFrame:
        """Return a frame over *node* in which the points below are replaced.

        Rows of a place that was tried and not worth storing come as an RDD, which hides how they are spread; a join on
        the same keys would shuffle them once more. There the place is left as the script has written it, if the plan
        still finds the shuffles that have run for it: what is optimized twice may differ.
        """
        frame = self.plan.frame(node, below)
        for place in below:
            if place not in self._tried:
                continue
            tried = self._tried[place]
            as_written = {**below, place: tried.df._jdf.queryExecution().analyzed()}
            other = self.plan.frame(node, as_written)
            more = planned_shuffles(frame) + planned_shuffles(tried.df) > planned_shuffles(other)
            if more and self.context.live.all_found(self.context.unstored.shuffles[tried.vertex], map_stages(other)):
                frame, below = other, as_written
        return frame

    def _complete(self, point: RecoveryPoint) -> bool:
        master = self.context.master
        known = master.vertex(point.vertex)
        return point.vertex in self.context.done or (
            known is not None and len(master.survivors(point.vertex)) == known.initialized.parallelism
        )
