"""Walk a plan of the JVM from the top down, and put aside what its nodes hold.

Nodes, and expressions that hold a plan, are taken apart here; every other value is handed on whole, to be serialized
together with all others. The lists of what is special stand in :mod:`airflow_provider.spark.jvm.known_classes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from airflow_provider.spark.jvm.class_shapes import ClassShapes
from airflow_provider.spark.jvm.known_classes import (
    COMMUTATIVE,
    LEFT_OUT_OF,
    LEFT_OUT_OF_NODES,
    MIRRORED,
    NUMBERED,
    PLAN_SEQUENCES,
    PLAN_TYPES,
    SEEN_THROUGH,
)
from airflow_provider.spark.jvm.relation import vertex_token
from airflow_provider.spark.jvm.scala import items, seed_of
from airflow_provider.spark.jvm.sources import Source, read_rows, read_scan, read_source

_TREE = "org.apache.spark.sql.catalyst.trees.TreeNode"
_PLAN = "org.apache.spark.sql.catalyst.plans.QueryPlan"
_SEVERAL = ("scala.collection.Seq", "scala.Option")
_CURRIED = {"Alias": ("exprId", "qualifier", "explicitMetadata"), "AttributeReference": ("exprId", "qualifier")}
_SOURCES = {
    ("LogicalRelation", "relation"): read_source,
    ("FileSourceScanExec", "relation"): read_source,
    ("DataSourceV2Relation", "table"): read_source,
    ("BatchScanExec", "scan"): read_scan,
    ("LogicalRDD", "rdd"): read_rows,
    ("RDDScanExec", "rdd"): read_rows,
}
_CACHED = {("InMemoryTableScanExec", "relation"), ("InMemoryRelation", "cacheBuilder")}
"""Parameters that hold what the script has cached."""


@dataclass(frozen=True)
class Text:
    """A text that counts."""

    text: str


@dataclass(frozen=True)
class Open:
    """What follows belongs together, until it is closed.

    :ivar order: ``sorted`` where the order of the parts means nothing, ``turned`` where the first two change places
    """

    text: str
    order: str = ""


class Close:
    """The end of what was opened last."""


CLOSE = Close()


@dataclass(frozen=True)
class Number:
    """A number that Spark counts up."""

    number: int


@dataclass(frozen=True)
class Serialized:
    """One of the values that were put aside.

    :ivar positional: whether expression ids in it are positions
    """

    index: int
    positional: bool


@dataclass(frozen=True)
class _Node:
    node: Any
    positional: bool


@dataclass(frozen=True)
class _Held:
    """Something that a node or an expression holds: values, expressions, and perhaps plans in these."""

    value: Any
    positional: bool
    order: str = ""


Item: TypeAlias = Text | Open | Close | Number | Serialized
_Pending: TypeAlias = Item | _Node | _Held


class PlanWalk:
    """Walks one plan.

    :param spark: the session
    :param shapes: what the JVM says of classes
    :param local_data: RDD id → digest of the rows that the script gave to ``createDataFrame``
    :param name_seed: the seed of a sample, ``None`` if there is none yet → what stands for it
    :ivar values: what was put aside, a Java list
    :ivar count: how many that are
    :ivar classes: names of all nodes, and of expressions that hold plans
    :ivar sources: what its leaves read, in the order of the plan
    :ivar upstream: tokens of the recovery points that it reads
    :ivar opaque: why it has no identity
    :ivar cached: whether it reads what the script has cached
    """

    def __init__(
        self,
        spark: Any,
        shapes: ClassShapes,
        local_data: dict[int, str],
        name_seed: Callable[[int | None], str],
    ) -> None:
        self._spark = spark
        self._jvm = spark._jvm
        self._shapes = shapes
        self._local_data = local_data
        self._name_seed = name_seed
        self._subqueries = spark._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PLAN_EXPRESSION()
        self._has_subqueries = False
        self._kinds: dict[str, str] = {}
        self.values = spark._jvm.java.util.ArrayList()
        self.count = 0
        self.classes: set[str] = set()
        self.sources: list[Source] = []
        self.upstream: list[str] = []
        self.opaque: list[str] = []
        self.cached = False

    def walk(self, root: Any) -> Iterator[Item]:
        """Yield what makes the plan, from the top down; nodes and what holds plans are taken apart."""
        self._has_subqueries = bool(root.containsPattern(self._subqueries))
        pending: list[_Pending] = [_Node(root, bool(root.isCanonicalizedPlan()))]
        while pending:
            item = pending.pop()
            if isinstance(item, _Node):
                pending += reversed(list(self._node(item.node, item.positional)))
            elif isinstance(item, _Held):
                pending += reversed(list(self._held(item.value, item.positional, item.order)))
            else:
                yield item

    def _node(self, node: Any, positional: bool) -> Iterator[_Pending]:
        name = str(node.getClass().getName())
        short = name.rsplit(".", 1)[-1]
        if short in SEEN_THROUGH:
            yield _Node(getattr(node, SEEN_THROUGH[short])(), positional)
            return
        self.classes.add(name)
        yield Open(f"node {name}")
        token = vertex_token(node) if short == "Project" else None
        if token is not None:
            self.upstream.append(token)
            yield self._serialize(node.output(), positional)
        elif short == "EmptyRelationExec":
            yield self._serialize(node.output(), positional)
        elif short == "InMemoryTableScanExec":
            yield from self._parameters(node, name, short, positional)
            yield self._serialize(node.relation().output(), positional)
        else:
            yield from self._parameters(node, name, short, positional)
        yield CLOSE

    def _parameters(self, node: Any, name: str, short: str, positional: bool) -> Iterator[_Pending]:
        """Yield what a node is made of."""
        shape = self._shapes.of(name)
        left_out = LEFT_OUT_OF_NODES.get(short, {})
        values = node.productIterator().toList()
        count = int(node.productArity())
        parameters = shape.parameters
        unseen = [parameter for parameter in parameters[count:] if parameter not in left_out]
        if unseen:
            self.opaque.append(f"{short} has a {unseen[0]}, which recovery does not look at")
        subqueries = self._has_subqueries and not node.subqueries().isEmpty()
        run = 0
        for index, parameter in enumerate(parameters[:count]):
            special = self._special(node, short, parameter, shape.fields[parameter].type, values, index, positional)
            if parameter in left_out:
                special = []
            elif special is None and subqueries:
                special = [_Held(values.apply(index), positional)]
            if special is None:
                continue
            if run < index:
                yield self._serialize(values.slice(run, index), positional)
            run = index + 1
            yield from special
        if run < count:
            yield self._serialize(values.slice(run, count), positional)

    def _special(
        self, node: Any, short: str, parameter: str, kind: str, values: Any, index: int, positional: bool
    ) -> list[_Pending] | None:
        """Return what stands for a parameter that is not a plain value; ``None`` if it is."""
        key = (short, parameter)
        if kind.endswith(PLAN_TYPES):
            return [_Node(values.apply(index), positional)]
        if kind.endswith(".CaseInsensitiveStringMap"):  # Java cannot serialize it, but what it is made of
            options = self._jvm.java.util.TreeMap(values.apply(index).asCaseSensitiveMap())
            return [self._serialize(options, positional)]
        if key in PLAN_SEQUENCES:
            return [_Node(plan, positional) for plan in items(values.apply(index))]
        if key in _SOURCES:
            return [self._source(_SOURCES[key](self._spark, values.apply(index), node, self._local_data))]
        if key in _CACHED:
            self.cached = True
            builder = values.apply(index)
            plan = (builder.cacheBuilder() if short == "InMemoryTableScanExec" else builder).cachedPlan()
            return [Text("cached"), _Node(plan.canonicalized() if positional else plan, positional)]
        if key in NUMBERED:
            return [Number(int(values.apply(index)))]
        if key == ("Sample", "seed"):
            return [Text(self._name_seed(seed_of(values.apply(index))))]
        return None

    def _held(self, value: Any, positional: bool, order: str) -> Iterator[_Pending]:
        """Take apart what holds a plan, down to the plan; what holds none is serialized whole."""
        kind = self._kind_of(value)
        if kind == _PLAN:
            yield _Node(value, positional)
        elif kind == _TREE:
            if not value.containsPattern(self._subqueries):
                yield self._serialize(value, positional)
                return
            name = str(value.getClass().getName())
            short = name.rsplit(".", 1)[-1]
            self.classes.add(name)
            shape = self._shapes.of(name)
            left_out = LEFT_OUT_OF.get(short, {})
            parts = value.productIterator().toList()
            count = int(value.productArity())
            yield Open(
                f"expression {_mirrored(name, short) if positional else name}", _order(short) if positional else ""
            )
            for index, parameter in enumerate(shape.parameters[:count]):
                if parameter not in left_out:
                    several = short == "MultiCommutativeOp" and parameter == "operands" and positional
                    yield _Held(parts.apply(index), positional, "sorted" if several else "")
            for parameter in shape.parameters[count:]:
                if parameter in _CURRIED.get(short, ()):
                    yield self._serialize(getattr(value, parameter)(), positional)
                elif short not in _CURRIED and parameter not in left_out:
                    self.opaque.append(f"{short} has a {parameter}, which recovery does not look at")
            yield CLOSE
        elif kind in _SEVERAL:
            yield Open("several", order)
            for item in items(value.toList()):
                yield _Held(item, positional)
            yield CLOSE
        else:
            yield self._serialize(value, positional)

    def _kind_of(self, value: Any) -> str:
        """Return what a value is, of those that are taken apart; empty text for any other."""
        from py4j.java_gateway import JavaObject as Reference
        from py4j.java_gateway import is_instance_of

        if not isinstance(value, Reference):
            return ""
        name = str(value.getClass().getName())
        if name not in self._kinds:
            gateway = self._spark._sc._gateway
            kinds = (_PLAN, _TREE, *_SEVERAL)
            self._kinds[name] = next((kind for kind in kinds if is_instance_of(gateway, value, kind)), "")
        return self._kinds[name]

    def _serialize(self, value: Any, positional: bool) -> _Pending:
        self.values.add(value)
        self.count += 1
        return Serialized(self.count - 1, positional)

    def _source(self, source: Source) -> _Pending:
        self.sources.append(source)
        if source.opaque:
            self.opaque.append(source.opaque)
        return Text("source")


def _order(short: str) -> str:
    if short in MIRRORED:
        return "turned"
    return "sorted" if short in COMMUTATIVE and short != "MultiCommutativeOp" else ""


def _mirrored(name: str, short: str) -> str:
    return name.removesuffix(short) + MIRRORED.get(short, short)
