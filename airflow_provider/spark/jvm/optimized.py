"""Read a DataFrame's optimized plan as the tree that auto mode's rules look at, and build plans with parts replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.auto.rules import CACHED, Node
from airflow_provider.spark.jvm.cached import CachedRelation
from airflow_provider.spark.jvm.relation import dataset
from airflow_provider.spark.jvm.scala import has_member, items, to_seq
from airflow_provider.spark.recovery_point import READER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHUFFLES = frozenset(
    {
        "Aggregate",
        "Window",
        "WindowGroupLimit",
        "FlatMapGroupsInPandas",
        "FlatMapGroupsInArrow",
        "FlatMapCoGroupsInPandas",
        "FlatMapCoGroupsInArrow",
        "RepartitionByExpression",
        "RebalancePartitions",
        "Intersect",
        "Except",
    }
)
_LABELS = {
    "Aggregate": "groupingExpressions",
    "Window": "partitionSpec",
    "WindowGroupLimit": "partitionSpec",
    "FlatMapGroupsInPandas": "groupingAttributes",
    "FlatMapGroupsInArrow": "groupingAttributes",
}
_UNKNOWN_SIZE = 2**60
"""Spark gives sizes that it does not know as 8 EiB."""


def at_a_glance(df: DataFrame) -> Node | None:
    """Return a node that reads at least what *df*'s plan reads; ``None`` where that is not told so quickly.

    A few questions to the JVM, where reading the whole tree takes hundreds: most queries are short, and must stay so.
    """
    spark: Any = df.sparkSession
    plan = df._jdf.queryExecution().optimizedPlan()
    size = 0
    for leaf in items(plan.collectLeaves()):
        if leaf.getClass().getSimpleName() == CACHED:
            return None
        own = int(leaf.stats().sizeInBytes())
        size += own if own < _UNKNOWN_SIZE else 0
    python = spark._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()
    return Node("", size=size, python=bool(plan.containsPattern(python)))


class OptimizedPlan:
    """An optimized plan.

    :ivar root: the tree that the rules look at
    :param spark: the session
    :param plan: the plan's own root
    """

    def __init__(self, spark: Any, plan: Any) -> None:
        self._spark = spark
        conf = spark._jsparkSession.sessionState().conf()
        self._broadcast_threshold = int(conf.autoBroadcastJoinThreshold())
        self._python = spark._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()
        self.root = self._read(plan)

    @classmethod
    def of(cls, df: DataFrame) -> OptimizedPlan:
        """Return the plan of *df*."""
        return cls(df.sparkSession, df._jdf.queryExecution().optimizedPlan())

    def cached(self, node: Node) -> CachedRelation:
        """Return the cached DataFrame that a leaf reads."""
        return CachedRelation(self._spark, node.plan)

    def frame(self, node: Node, replaced: Mapping[Node, Any]) -> DataFrame:
        """Return a DataFrame over *node*'s plan.

        :param replaced: nodes below it to the plans that stand in their places, with the same columns and identities
        """
        return dataset(self._spark, self._rebuild(node, replaced))

    def _rebuild(self, node: Node, replaced: Mapping[Node, Any]) -> Any:
        if node in replaced:
            return replaced[node]
        children = [self._rebuild(child, replaced) for child in node.children]
        if all(new is child.plan for new, child in zip(children, node.children, strict=True)):
            return node.plan
        return node.plan.withNewChildren(to_seq(self._spark._jvm, children))

    def _read(self, plan: Any) -> Node:
        name = plan.getClass().getSimpleName()
        if name == CACHED:
            return self._cached(plan)
        if name == "MapInArrow" and str(plan.functionExpr().name()).startswith(READER):
            return Node(name, plan=plan)
        children = tuple(self._read(child) for child in items(plan.children()))
        size = int(plan.stats().sizeInBytes()) if len(children) < 2 else 0
        python = bool(plan.containsPattern(self._python)) and (
            "Python" in name or "Pandas" in name or "Arrow" in name or not any(child.holds_python for child in children)
        )
        broadcast = self._broadcast(plan, children) if name == "Join" else frozenset()
        return Node(
            name=name,
            children=children,
            label=self._label(plan, name),
            size=size if size < _UNKNOWN_SIZE else 0,
            shuffles=name in _SHUFFLES or (name == "Join" and not broadcast) or (name == "Sort" and _is_global(plan)),
            python=python,
            broadcast=broadcast,
            plan=plan,
        )

    def _cached(self, plan: Any) -> Node:
        """Return a leaf that costs what computing it costs, as long as nobody has."""
        relation = CachedRelation(self._spark, plan)
        optimized = None if relation.loaded else relation.optimized()
        if optimized is None:
            return Node(CACHED, plan=plan)
        inner = OptimizedPlan(self._spark, optimized).root
        return Node(CACHED, size=inner.reads, python=inner.holds_python, plan=plan)

    def _broadcast(self, join: Any, children: tuple[Node, ...]) -> frozenset[int]:
        """Guess which side Spark sends whole to the executors: by hints, else the smaller one if it is small."""
        hints = [join.hint().leftHint(), join.hint().rightHint()]
        hinted = [at for at, hint in enumerate(hints) if "broadcast" in hint.toString().lower()]
        if hinted:
            return frozenset(hinted[-1:])
        sizes = [int(child.plan.stats().sizeInBytes()) for child in children]
        smaller = min((0, 1), key=lambda at: sizes[at])
        return frozenset({smaller}) if sizes[smaller] <= self._broadcast_threshold else frozenset()

    def _label(self, plan: Any, name: str) -> str:
        member = _LABELS.get(name)
        if member is not None:
            return ", ".join(_names(getattr(plan, member)()))
        if name == "Join":
            return str(plan.joinType().toString()).lower()
        return ""


def _is_global(sort: Any) -> bool:
    return bool(getattr(sort, "global")())


def _names(expressions: Any) -> Iterable[str]:
    for expression in items(expressions):
        yield str(expression.name()) if has_member(expression, "name") else str(expression.prettyName())
