"""Walk a plan of the JVM from the top down: its nodes in pieces, everything that they hold serialized.

``PlanWalk.java`` takes apart nodes, and expressions that hold a plan; it returns every other value serialized, all of
them together. Special cases are listed in :mod:`airflow_provider.spark.jvm.known_classes`; this module defines what
the words of the answer mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from airflow_provider.core.vertex_token import VERTEX_ALIAS
from airflow_provider.spark.jvm.compiled import compiled, fetched
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
from airflow_provider.spark.jvm.sources import (
    LocalRows,
    Source,
    read_files,
    read_hive_table,
    read_lake,
    read_rows,
    read_scan,
    read_table,
)

_CURRIED = {"Alias": ("exprId", "qualifier", "explicitMetadata"), "AttributeReference": ("exprId", "qualifier")}
_SOURCES = {
    ("LogicalRelation", "relation"): read_table,
    ("FileSourceScanExec", "relation"): read_table,
    ("RowDataSourceScanExec", "relation"): read_table,
    ("DataSourceV2Relation", "table"): read_table,
    ("HiveTableRelation", "tableMeta"): read_hive_table,
    ("BatchScanExec", "scan"): read_scan,
    ("LogicalRDD", "rdd"): read_rows,
    ("RDDScanExec", "rdd"): read_rows,
}
_READERS = {node: read for (node, _), read in _SOURCES.items()}
_CACHED = {("InMemoryTableScanExec", "relation"), ("InMemoryRelation", "cacheBuilder")}
"""Parameters that hold what the script has cached."""


def _tables() -> str:
    """Return the lists of special cases, a line for each entry, as ``PlanWalk.java`` reads them."""
    pairs = {
        "plans": PLAN_SEQUENCES,
        "source": _SOURCES,
        "cached": _CACHED,
        "numbered": NUMBERED,
        "seed": [("Sample", "seed")],
        "sorted": [("MultiCommutativeOp", "operands")],
        "curried": [(name, field) for name, fields in _CURRIED.items() for field in fields],
        "left-out-of": [(name, field) for name, fields in LEFT_OUT_OF.items() for field in fields],
        "left-out-of-node": [(name, field) for name, fields in LEFT_OUT_OF_NODES.items() for field in fields],
        "through": SEEN_THROUGH.items(),
    }
    lines = [f"{kind} {first} {second}" for kind, listed in pairs.items() for first, second in listed]
    lines += [f"curries {name}" for name in _CURRIED]
    lines += [f"plan-type {name}" for name in PLAN_TYPES]
    return "\n".join([*lines, f"vertex {VERTEX_ALIAS}"])


@dataclass(frozen=True)
class Open:
    """The following items belong together, until closed.

    :ivar order: ``sorted`` if the order of the parts means nothing, ``turned`` if the first two are swapped
    """

    text: str
    order: str = ""


@dataclass(frozen=True)
class Number:
    """A number that Spark counts up."""

    number: int


@dataclass(frozen=True)
class Serialized:
    """One of the values that were set aside.

    :ivar positional: whether expression ids in it are positions
    """

    index: int
    positional: bool


Item: TypeAlias = str | Open | Number | Serialized | None
"""A text that counts, or one of these; ``None`` closes what was opened last."""


class PlanWalk:
    """The parts of one plan.

    :param spark: the session
    :param local_data: RDD id → rows that the script gave to ``createDataFrame``
    :param name_seed: the seed of a sample (``None`` if there is none yet) → what represents it
    :param described: a source → the same; if it is opaque, perhaps with an identity that holds in some attempts
    :ivar serialized: the values that were set aside: a Java list, serialized
    :ivar count: their number
    :ivar classes: names of all nodes, and of expressions that hold plans
    :ivar sources: what its leaves read, in the order of the plan
    :ivar upstream: tokens of the recovery points that it reads
    :ivar opaque: why it has no identity, besides what its sources say
    :ivar cached: whether it reads what the script has cached
    """

    def __init__(
        self,
        spark: Any,
        local_data: dict[int, LocalRows],
        name_seed: Callable[[int | None], str],
        described: Callable[[Source], Source],
    ) -> None:
        self._walk = walk_of(spark)
        self._local_data = local_data
        self._name_seed = name_seed
        self._described = described
        self.serialized = b""
        self.count = 0
        self.classes: set[str] = set()
        self.sources: list[Source] = []
        self.upstream: list[str] = []
        self.opaque: list[str] = []
        self.cached = False

    def walk(self, root: Any, *, tasks: bool = False) -> list[Item]:
        """Return the plan's items from the top down; nodes, and values that hold plans, are taken apart.

        :param tasks: whether only what the tasks of an exchange run counts, see :func:`.plan_identity.read_plan`
        :raises Py4JJavaError: something in it cannot be serialized
        """
        walked = self._walk.walk(root, tasks)
        words, self.serialized = fetched(walked.answer())
        return list(self._items(iter(words), walked))

    def _items(self, words: Iterator[str], walked: Any) -> Iterator[Item]:
        looked_at = 0
        for word in words:
            if word == "node":
                node = next(words)
                self.classes.add(node)
                yield Open(f"node {node}")
            elif word == "expression":
                name, positional = next(words), next(words) == "1"
                short = name.rsplit(".", 1)[-1]
                self.classes.add(name)
                shown = name.removesuffix(short) + MIRRORED.get(short, short)
                yield Open(f"expression {shown if positional else name}", _order(short) if positional else "")
            elif word == "several":
                yield Open("several", next(words))
            elif word == "close":
                yield None
            elif word == "value":
                yield Serialized(self.count, next(words) == "1")
                self.count += 1
            elif word == "number":
                yield Number(int(next(words)))
            elif word == "seed":
                seed = next(words)
                yield self._name_seed(int(seed) if seed else None)
            elif word == "vertex":
                self.upstream.append(next(words).removeprefix(VERTEX_ALIAS))
            elif word == "cached":
                self.cached = True
                yield "cached"
            elif word == "unseen":
                self.opaque.append(f"{next(words)} has a {next(words)}, which recovery does not look at")
            elif word == "files":
                self.sources.append(read_files(words))
                yield "source"
            elif word == "lake":
                self.sources.append(read_lake([next(words) for _ in range(int(next(words)))]))
                yield "source"
            elif word == "source":
                value, holder = walked.source(looked_at)
                looked_at += 1
                self.sources.append(self._described(_READERS[next(words)](value, holder, self._local_data)))
                yield "source"


def walk_of(spark: Any) -> Any:
    """Return the ``PlanWalk`` of a JVM."""
    return compiled(spark, "PlanWalk", _tables)


def vertex_token(spark: Any, node: Any) -> str | None:
    """Return the token of the vertex that a node of a logical plan represents; ``None`` if none."""
    alias = walk_of(spark).vertexBelow(node)
    return None if alias is None else str(alias).removeprefix(VERTEX_ALIAS)


def vertices_read_by(df: Any) -> set[str]:
    """Return the tokens of all vertices that the plan of a frame reads, directly or not."""
    found = str(walk_of(df.sparkSession).vertices(df._jdf.queryExecution().analyzed()))
    return {alias.removeprefix(VERTEX_ALIAS) for alias in found.splitlines()}


def _order(short: str) -> str:
    if short in MIRRORED:
        return "turned"
    return "sorted" if short in COMMUTATIVE and short != "MultiCommutativeOp" else ""


@dataclass(frozen=True)
class ClassShape:
    """One class of the JVM.

    :ivar name: with its package
    :ivar lazy: the fields that only cache what was computed from others
    :ivar lost: the fields that are set once and that Java's serialization leaves out
    """

    name: str
    lazy: frozenset[str]
    lost: frozenset[str]
    _walk: Any

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of its constructor, in order; the first ones are the elements of a case class."""
        return tuple(str(self._walk.parameters(self.name)).split())


def shapes_of(spark: Any, names: Sequence[str]) -> dict[str, ClassShape]:
    """Return the shapes of classes by name, in one request; classes that the JVM does not find are left out."""
    walk = walk_of(spark)
    told = (line.split("|") for line in str(walk.shapes("\n".join(names))).splitlines())
    return {name: ClassShape(name, frozenset(lazy.split()), frozenset(lost.split()), walk) for name, lazy, lost in told}
