"""Ask the rules and the price of auto mode about a plan, as ``auto/placing`` does, and compute nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.auto.cost import CostModel
from airflow_provider.spark.auto.rules import CACHED, Node, Placement, placements, placements_in_kept
from airflow_provider.spark.explain.explanation import ExplainedNode, ExplainedPoint
from airflow_provider.spark.fingerprint import fingerprint
from airflow_provider.spark.functions import FunctionReader
from airflow_provider.spark.jvm.map_stage import map_stages
from airflow_provider.spark.jvm.optimized import OptimizedPlan
from airflow_provider.spark.jvm.scala import items
from airflow_provider.spark.kept_shuffle import keepable
from airflow_provider.spark.types import refusal, schema_of
from airflow_provider.spark.watching import Watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EXPRESSION_ID = re.compile(r"#\d+L?")
_LABEL_LENGTH = 200


@dataclass
class Seen:
    """What is known of one script, as far as it has come.

    :ivar budget: seconds that storing may take for one second of computing
    :ivar cores: tasks that run side by side; 0 to ask Spark
    :ivar watched: what was learnt from watching the script make its DataFrames
    :ivar kept: fingerprint → number of the action that stores it, and the name that it has there
    :ivar cached: entry of the cache → number of the action that computes it
    """

    budget: float
    cores: int = 0
    watched: Watched = field(default_factory=Watched)
    kept: dict[str, tuple[int, str]] = field(default_factory=dict)
    cached: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.functions = FunctionReader(self.watched.broadcasts)

    def model(self, spark: Any) -> CostModel:
        """Return the price list."""
        return CostModel(self.budget, self.cores or int(spark.sparkContext.defaultParallelism))

    def unique_name(self, name: str) -> str:
        """Return *name*, or ``name#2`` and so on where another plan has it."""
        names = {taken for _, taken in self.kept.values()}
        return next(n for n in (name, *(f"{name}#{i}" for i in range(2, len(names) + 3))) if n not in names)


def plan_only(df: DataFrame) -> ExplainedNode:
    """Return the plan of an action that auto mode leaves alone."""
    return _shown(OptimizedPlan.of(df).root, {})


def decided(seen: Seen, number: int, df: DataFrame, *, returns_rows: bool) -> ExplainedNode:
    """Return the plan of an action with the places for recovery points in it.

    :param number: of the action
    """
    plan = OptimizedPlan.of(df)
    return _Deciding(seen, number, df.sparkSession, plan).decide(placements(plan.root, returns_rows=returns_rows))


def decided_whole(seen: Seen, number: int, df: DataFrame) -> ExplainedNode:
    """Return the plan of what the script keeps as a whole, with ``checkpoint()`` say."""
    return _Deciding(seen, number, df.sparkSession, OptimizedPlan.of(df)).decide_whole()


class _Deciding:
    def __init__(self, seen: Seen, number: int, spark: Any, plan: OptimizedPlan) -> None:
        self._seen = seen
        self._number = number
        self._spark = spark
        self._plan = plan
        self._model = seen.model(spark)
        self._placed: dict[Node, Placement] = {}
        self._refused: dict[Node, str] = {}
        self._points: dict[Node, ExplainedPoint] = {}
        self._inside: dict[Node, ExplainedNode] = {}
        self._notes: dict[Node, str] = {}

    def decide(self, found: list[Placement]) -> ExplainedNode:
        self._placed = {placement.node: placement for placement in found}
        self._refused = self._model.not_placed(self._plan.root, found)
        self._visit(self._plan.root)
        return _shown(self._plan.root, self._points, self._inside, self._notes)

    def decide_whole(self) -> ExplainedNode:
        return self.decide(placements_in_kept(self._plan.root))

    def _visit(self, node: Node) -> None:
        """Decide from the top, because below what is stored already nothing is looked at."""
        if node.name == CACHED:
            self._cache(node)
        if node in self._placed:
            point = self._points[node] = self._point(self._placed[node])
            if point.kept_by:
                return
        for child in node.children:
            self._visit(child)
        if node in self._points and not self._points[node].refused:
            self._points[node] = replace(self._points[node], shuffles=self._shuffles(node))

    def _shuffles(self, node: Node) -> tuple[str, ...]:
        """Return the names of the shuffles that are kept while *node* is computed, and that no other point has kept."""
        names = []
        for found in keepable(self._seen, self._model, map_stages(self._plan.frame(node, {}))):
            if found.identity.digest not in self._seen.kept:
                name = self._seen.unique_name(found.name)
                self._seen.kept[found.identity.digest] = (self._number, name)
                names.append(name)
        return tuple(names)

    def _cache(self, node: Node) -> None:
        relation = self._plan.cached(node)
        if relation.entry in self._seen.cached:
            self._notes[node] = f"cached by the script, computed by action {self._seen.cached[relation.entry]}"
            return
        self._seen.cached[relation.entry] = self._number
        optimized = relation.optimized()
        if optimized is None:
            self._notes[node] = "cached by the script"
            return
        self._notes[node] = "cached by the script, computed here"
        inside = OptimizedPlan(self._spark, optimized)
        self._inside[node] = _Deciding(self._seen, self._number, self._spark, inside).decide_whole()

    def _point(self, placement: Placement) -> ExplainedPoint:
        node, rule, seconds = placement.node, str(placement.rule), self._model.computing(placement.node)
        refused = self._refused.get(node, "")
        if refused:
            return ExplainedPoint(rule, placement.name, seconds, refused)
        raw = self._plan.frame(node, {})
        identity = fingerprint(raw, self._seen)
        refused = refusal(schema_of(raw)) or "; ".join(identity.opaque)
        if not refused and not node.holds_shuffle:
            refused = self._model.price(node).too_dear(0, 0)  # nothing will be measured before it is stored
        if refused:
            return ExplainedPoint(rule, placement.name, seconds, refused)
        if identity.digest in self._seen.kept:
            number, name = self._seen.kept[identity.digest]
            return ExplainedPoint(rule, name, seconds, kept_by=number)
        name = self._seen.unique_name(placement.name)
        self._seen.kept[identity.digest] = (self._number, name)
        return ExplainedPoint(rule, name, seconds, measured=node.holds_shuffle)


def _shown(
    node: Node,
    points: dict[Node, ExplainedPoint],
    inside: dict[Node, ExplainedNode] | None = None,
    notes: dict[Node, str] | None = None,
) -> ExplainedNode:
    inside, notes = inside or {}, notes or {}
    below = tuple(_shown(child, points, inside, notes) for child in node.children)
    return ExplainedNode(
        node.name,
        _label(node),
        node.size if node.size <= _leaves(node) else 0,
        (*below, inside[node]) if node in inside else below,
        points.get(node),
        notes.get(node, ""),
    )


def _leaves(node: Node) -> int:
    """Bytes of all leaves below; an estimate beyond that is a product of a join's inputs, and tells nothing."""
    return sum(_leaves(child) for child in node.children) if node.children else node.size


def _label(node: Node) -> str:
    """Return what tells a node from others of its kind."""
    if node.label:
        return node.label
    try:
        text = _told(node)
    except Exception:  # noqa: BLE001 - a label only helps to read; another version of Spark may name things otherwise
        return ""
    return " ".join(_EXPRESSION_ID.sub("", text).split())[:_LABEL_LENGTH]


def _told(node: Node) -> str:
    plan = node.plan
    match node.name:
        case "Filter":
            return str(plan.condition().toString())
        case "Project":
            return ", ".join(str(column.name()) for column in items(plan.output()))
        case "Sort":
            return ", ".join(str(key.toString()) for key in items(plan.order()))
        case "GlobalLimit" | "LocalLimit":
            return str(plan.limitExpr().toString())
        case "LogicalRelation":
            table = plan.catalogTable()
            if table.isDefined():
                return str(table.get().identifier().unquotedString())
            return ", ".join(str(path.toString()) for path in items(plan.relation().location().rootPaths()))
        case "LogicalRDD":
            return ", ".join(str(column.name()) for column in items(plan.output()))
        case "DataSourceV2Relation" | "DataSourceV2ScanRelation":
            return str(plan.name())
    return ""
