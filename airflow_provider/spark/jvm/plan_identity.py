"""The identity of a plan, read from the JVM's objects: two plans have one only if they mean the same.

A plan is walked node by node; plans inside of expressions are walked, too. What else a node holds is serialized by
Java, in one call for the whole plan, and read and digested here (:mod:`airflow_provider.spark.jvm.value_digest`), so
that everything that is data counts. What a leaf reads (:mod:`airflow_provider.spark.jvm.sources`) and what a Python
function does (:mod:`airflow_provider.spark.functions`) have identities of their own. A recovery point further down
stands for itself: below it nothing is looked at.

A plan may be given as it is, then expression ids are numbered in the order in which they appear; or canonical, as
adaptive execution keeps it, then ids are positions and count. The two are never equal. Nothing is computed, and the
session is not touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_provider.recovery.digest import digest
from airflow_provider.spark.functions import FunctionIdentity
from airflow_provider.spark.jvm.class_shapes import ClassShapes
from airflow_provider.spark.jvm.determinism import IN_ORDER, NOT_DETERMINISTIC, OF_PHYSICAL_PLANS
from airflow_provider.spark.jvm.java_stream import JavaObject, Unreadable, Value, read_stream
from airflow_provider.spark.jvm.known_classes import (
    KNOWN_PACKAGES,
    LEFT_OUT_OF,
    LEFT_OUT_OF_NODES,
    NUMBERED,
    OPAQUE,
    PLAN_SEQUENCES,
    PLAN_TYPES,
    SEEN_THROUGH,
    UNKNOWN_PACKAGES,
)
from airflow_provider.spark.jvm.relation import vertex_token
from airflow_provider.spark.jvm.scala import items, seed_of
from airflow_provider.spark.jvm.sources import Source, read_rows, read_scan, read_source
from airflow_provider.spark.jvm.value_digest import ValueDigest, seed_in

if TYPE_CHECKING:
    from airflow_provider.spark.fingerprint import Known

_TREE = "org.apache.spark.sql.catalyst.trees.TreeNode"
_PLAN = "org.apache.spark.sql.catalyst.plans.QueryPlan"
_NOT_SERIALIZABLE = re.compile(r"NotSerializableException: ([\w.$]+)")
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_SEEDS = {
    "Rand": "child",
    "Randn": "child",
    "RandStr": "seedExpression",
    "Uniform": "seedExpression",
    "Shuffle": "randomSeed",
    "Uuid": "randomSeed",
}
"""Expressions that draw → the field that holds their seed."""
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
class PythonFunction:
    """A Python function in a plan, under the name that Spark shows."""

    name: str
    identity: FunctionIdentity
    deterministic: bool


@dataclass
class PlanDescription:
    """What is known of a plan.

    :ivar plan: digest of its structure, without the following
    :ivar functions: its Python functions, in the order of the plan
    :ivar sources: what its leaves read, in the order of the plan
    :ivar upstream: tokens of the recovery points that it reads, in the order of the plan
    :ivar session: facts of the session that its expressions ask for, such as the current user
    :ivar opaque: reasons why nothing may be reused; empty if everything is described
    :ivar not_deterministic: what makes the plan's rows vary from run to run; empty if nothing does
    :ivar cached: whether it reads what the script has cached; what was cached is described, too
    """

    plan: str = ""
    functions: list[PythonFunction] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    upstream: list[str] = field(default_factory=list)
    session: dict[str, str] = field(default_factory=dict)
    opaque: list[str] = field(default_factory=list)
    not_deterministic: list[str] = field(default_factory=list)
    cached: bool = False


@dataclass(frozen=True)
class _Text:
    text: str


@dataclass(frozen=True)
class _Node:
    node: Any
    positional: bool


@dataclass(frozen=True)
class _Held:
    """Something that a node or an expression holds: values, expressions, and perhaps plans in these."""

    value: Any
    positional: bool


@dataclass(frozen=True)
class _Number:
    number: int


@dataclass(frozen=True)
class _Serialized:
    index: int
    positional: bool


_Item: TypeAlias = _Text | _Node | _Held | _Number | _Serialized


class PlanReader:
    """Reads plans of one session. Cheap to make.

    :param spark: the session
    :param known: what was learnt of the script
    """

    def __init__(self, spark: Any, known: Known) -> None:
        self._spark = spark
        self._known = known

    def read(self, plan: Any, *, name_draws: bool = False) -> PlanDescription:
        """Return the description of a logical or physical plan, as it is or canonical.

        The caller sees to it that the session is active in this thread.

        :param name_draws: whether a draw that the script left to Spark counts as which draw of the script it is, and
            not with its seed. Then plans have to be read in the order of the script.
        """
        return _Reading(self._spark, self._known, name_draws).read(plan)


class _Reading:
    """Reads one plan."""

    def __init__(self, spark: Any, known: Known, name_draws: bool) -> None:
        self._name_draws = name_draws
        self._spark = spark
        self._jvm = spark._jvm
        self._known = known
        self._shapes = ClassShapes(spark._jvm, known.watched.shapes)
        self._values = spark._jvm.java.util.ArrayList()
        self._count = 0
        self._nodes: set[str] = set()
        self._found = PlanDescription()
        self._values_digest = ValueDigest(self._shapes.of, self._draws)
        self._has_subqueries = False

    def read(self, plan: Any) -> PlanDescription:
        pattern = self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PLAN_EXPRESSION()
        self._has_subqueries = bool(plan.containsPattern(pattern))
        positional = bool(plan.isCanonicalizedPlan())
        written = list(self._walk(_Node(plan, positional)))
        found = self._found
        try:
            values = self._serialized()
            found.plan = digest(*(text for item in written for text in self._texts(item, values)))
        except Unreadable as error:
            found.opaque.append(str(error))
            found.plan = digest("opaque")
        self._judge()
        return found

    # -- the walk --------------------------------------------------------------------------------------------------

    def _walk(self, root: _Item) -> Iterator[_Item]:
        """Yield what makes the plan, from the top down; nodes and what holds plans are taken apart."""
        pending: list[_Item] = [root]
        while pending:
            item = pending.pop()
            if isinstance(item, _Node):
                pending += reversed(list(self._node(item.node, item.positional)))
            elif isinstance(item, _Held):
                pending += reversed(list(self._held(item.value, item.positional)))
            else:
                yield item

    def _node(self, node: Any, positional: bool) -> Iterator[_Item]:
        name = str(node.getClass().getName())
        short = name.rsplit(".", 1)[-1]
        if short in SEEN_THROUGH:
            yield _Node(getattr(node, SEEN_THROUGH[short])(), positional)
            return
        self._nodes.add(name)
        yield _Text(f"node {name}")
        token = vertex_token(node) if short == "Project" else None
        if token is not None:
            self._found.upstream.append(token)
            yield self._serialize(node.output(), positional)
        elif short == "EmptyRelationExec":
            yield self._serialize(node.output(), positional)
        elif short == "InMemoryTableScanExec":
            yield from self._parameters(node, name, short, positional)
            yield self._serialize(node.relation().output(), positional)
        else:
            yield from self._parameters(node, name, short, positional)
        yield _Text("end")

    def _parameters(self, node: Any, name: str, short: str, positional: bool) -> Iterator[_Item]:
        """Yield what a node is made of."""
        shape = self._shapes.of(name)
        left_out = LEFT_OUT_OF_NODES.get(short, {})
        values = node.productIterator().toList()
        count = int(node.productArity())
        parameters = shape.parameters
        unseen = [parameter for parameter in parameters[count:] if parameter not in left_out]
        if unseen:
            self._found.opaque.append(f"{short} has a {unseen[0]}, which recovery does not look at")
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
    ) -> list[_Item] | None:
        """Return what stands for a parameter that is not a plain value; ``None`` if it is."""
        key = (short, parameter)
        if kind.endswith(PLAN_TYPES):
            return [_Node(values.apply(index), positional)]
        if key in PLAN_SEQUENCES:
            return [_Node(plan, positional) for plan in items(values.apply(index))]
        if key in _SOURCES:
            return [self._source(_SOURCES[key](self._spark, values.apply(index), node, self._known.watched.local_data))]
        if key in _CACHED:
            self._found.cached = True
            builder = values.apply(index)
            plan = (builder.cacheBuilder() if short == "InMemoryTableScanExec" else builder).cachedPlan()
            return [_Text("cached"), _Node(plan.canonicalized() if positional else plan, positional)]
        if key in NUMBERED:
            return [_Number(int(values.apply(index)))]
        if key == ("Sample", "seed"):
            return [_Text(self._drawn(seed_of(values.apply(index))))]
        return None

    def _held(self, value: Any, positional: bool) -> Iterator[_Item]:
        """Take apart what holds a plan, down to the plan; what holds none is serialized whole."""
        is_a = self._is_a
        if is_a(value, _PLAN):
            yield _Node(value, positional)
        elif is_a(value, _TREE):
            pattern = self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PLAN_EXPRESSION()
            if not value.containsPattern(pattern):
                yield self._serialize(value, positional)
                return
            name = str(value.getClass().getName())
            short = name.rsplit(".", 1)[-1]
            self._nodes.add(name)
            shape = self._shapes.of(name)
            left_out = LEFT_OUT_OF.get(short, {})
            parts = value.productIterator().toList()
            count = int(value.productArity())
            yield _Text(f"expression {name}")
            for index, parameter in enumerate(shape.parameters[:count]):
                if parameter not in left_out:
                    yield _Held(parts.apply(index), positional)
            for parameter in shape.parameters[count:]:
                if parameter in _CURRIED.get(short, ()):
                    yield self._serialize(getattr(value, parameter)(), positional)
                elif short not in _CURRIED and parameter not in left_out:
                    self._found.opaque.append(f"{short} has a {parameter}, which recovery does not look at")
            yield _Text("end")
        elif is_a(value, "scala.collection.Seq") or is_a(value, "scala.Option"):
            yield _Text("several")
            for item in items(value):
                yield _Held(item, positional)
            yield _Text("end")
        else:
            yield self._serialize(value, positional)

    def _is_a(self, value: Any, name: str) -> bool:
        from py4j.java_gateway import JavaObject as Reference
        from py4j.java_gateway import is_instance_of

        return isinstance(value, Reference) and bool(is_instance_of(self._spark._sc._gateway, value, name))

    def _serialize(self, value: Any, positional: bool) -> _Item:
        self._values.add(value)
        self._count += 1
        return _Serialized(self._count - 1, positional)

    def _source(self, source: Source) -> _Item:
        self._found.sources.append(source)
        if source.opaque:
            self._found.opaque.append(source.opaque)
        return _Text("source")

    # -- the values ------------------------------------------------------------------------------------------------

    def _serialized(self) -> list[Value]:
        """Return what the plan's nodes hold, in the order in which it was put aside."""
        output = self._jvm.java.io.ByteArrayOutputStream()
        try:
            self._jvm.java.io.ObjectOutputStream(output).writeObject(self._values)
        except Exception as error:
            match = _NOT_SERIALIZABLE.search(str(error))
            what = f"it holds a {match[1]}" if match else "it is nested too deeply, or cannot be serialized"
            raise Unreadable(f"{what}, which recovery cannot look at") from error
        (read,) = read_stream(bytes(output.toByteArray()))
        if not isinstance(read, JavaObject) or len(read.parts[-1].extra) != self._count + 1:
            raise Unreadable("the plan's values cannot be read")
        return read.parts[-1].extra[1:]

    def _texts(self, item: _Item, values: list[Value]) -> tuple[str, ...]:
        if isinstance(item, _Serialized):
            return ("values", self._values_digest.digest(values[item.index], positional=item.positional).hex())
        if isinstance(item, _Number):
            return ("number", str(self._values_digest.number("counted", str(item.number).encode())))
        assert isinstance(item, _Text)  # noqa: S101 - the walk leaves nothing else
        return ("text", item.text)

    def _drawn(self, seed: int | None) -> str:
        """Return what stands for the seed of a sample."""
        draws = self._known.watched.draws
        if seed is None:
            return draws.unnamed()
        return draws.name(seed, left_open=False) if self._name_draws else f"seed {seed}"

    def _draws(self, value: JavaObject) -> dict[str, str]:
        """Return the field of an expression that holds a drawn seed, with what stands for it."""
        holder = _SEEDS.get(value.type.name.removeprefix(_EXPRESSIONS))
        if holder is None or not self._name_draws:
            return {}
        seed = seed_in(value.get(holder))
        hidden = any(name == "hideSeed" for _, name in value.type.fields)
        left_open = value.get("hideSeed") == b"\1" if hidden else True
        if seed is None:
            return {}
        return {holder: self._known.watched.draws.name(seed, left_open=left_open)}

    # -- what follows ----------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        """Say of every class in the plan whether it is known and deterministic."""
        found, noted = self._found, self._values_digest.noted
        found.opaque += noted.unknown
        names = set()
        for class_name in sorted(self._nodes):
            if not class_name.startswith(KNOWN_PACKAGES) or class_name.startswith(UNKNOWN_PACKAGES):
                found.opaque.append(f"{class_name} is not known to recovery")
        for class_name in sorted(self._nodes | noted.classes):
            name = class_name.rsplit(".", 1)[-1].rstrip("$")
            name = name.removesuffix("Exec")
            names.add(name)
            if name in OPAQUE:
                found.opaque.append(f"{OPAQUE[name]} ({name}) cannot be fingerprinted")
            why = NOT_DETERMINISTIC.get(name) or OF_PHYSICAL_PLANS.get(name)
            if why:
                found.not_deterministic.append(f"{name}: {why}")
        if noted.counts_rows:
            found.not_deterministic.append(IN_ORDER)
        if noted.varying:
            found.not_deterministic.append("Invoke: the method says that it is not deterministic")
        for name, command, deterministic in noted.functions:
            function = PythonFunction(name, self._known.functions.read(command), deterministic)
            found.functions.append(function)
            found.opaque += [f"function {name!r}: {reason}" for reason in function.identity.opaque]
            if not deterministic:
                found.not_deterministic.append(f"function {name!r} is marked as not deterministic")
        if "CurrentUser" in names:
            found.session["current user"] = str(self._jvm.org.apache.spark.util.Utils.getCurrentUserName())
        if names & {"CurrentDatabase", "CurrentCatalog", "CurrentNamespace", "CurrentPath"}:
            catalog = self._spark.catalog
            found.session["current database"] = f"{catalog.currentCatalog()}.{catalog.currentDatabase()}"
