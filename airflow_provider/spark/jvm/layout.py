"""The layout of a physical plan: what each of its partitions covers.

Partitions of two attempts may be mixed only if partition *i* holds the same rows in both. That depends on how the last
stage is split: the files and ranges of each scan partition, or the reducers that each shuffle partition reads
(``AQEShuffleReadExec.partitionSpecs``). If it is unknown, or depends on chance (sampled range boundaries, round robin,
skew splits, locality), the vertex is kept whole or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider.core.digest import digest
from airflow_provider.core.partitions import WHOLE
from airflow_provider.spark.jvm.compiled import compiled, fetched
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.scala import items, to_seq

CUTTING_SETTINGS = (
    "spark.sql.adaptive.",
    "spark.sql.shuffle.partitions",
    "spark.sql.leafNodeDefaultParallelism",
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.maxPartitionNum",
    "spark.sql.files.minPartitionNum",
    "spark.sql.files.openCostInBytes",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.inMemoryColumnarStorage.",
)
"""Settings that change how rows are split into partitions, and nothing else about them."""

_COALESCED = re.compile(r"CoalescedPartitionSpec\((\d+),(\d+),")
_SPEC = re.compile(r"(\w+Spec)\((\d+),(\d+),(\d*)")
"""A part of a read, without the size of its data."""
_CERTAIN = {"HashPartitioning", "SinglePartition"}
_WRAPPERS = {
    "AdaptiveSparkPlanExec": "executedPlan",
    "ResultQueryStageExec": "plan",
    "TableCacheQueryStageExec": "plan",
    "WholeStageCodegenExec": "child",
    "InputAdapter": "child",
}
_EXCHANGES = {"ShuffleExchangeExec", "ShuffleQueryStageExec", "ReusedExchangeExec"}
_BROADCASTS = {"BroadcastExchangeExec", "BroadcastQueryStageExec", "SubqueryBroadcastExec", "ReusedSubqueryExec"}
_NAMED_LEAVES = {"EmptyRelationExec", "OneRowRelationExec"}
_SLICED_LEAVES = {"LocalTableScanExec", "RangeExec"}
_BY_CHANCE = {
    "CoalesceExec": "coalesce() groups partitions by where they lie",
    "InMemoryTableScanExec": "it reads a cached DataFrame",
    "CartesianProductExec": "it is a cartesian product",
}
_OWN_OBJECT = re.compile(r"\.e\d+\.t\d+\.r\d+\.c[0-9a-f]{8}\.ms\d+(?=\.parquet)")
"""The part of a name in which two objects of the same stored partition differ; vertex, layout and index stay."""
_IDS = re.compile(r"#\d+L?|plan_id=\d+")


@dataclass
class Layout:
    """How a vertex is split into partitions.

    :ivar text: description of what each partition covers
    :ivar whole_only: why single partitions must not be kept; empty if they may
    :ivar reads: reducer ranges ``[start, end)`` of each shuffle read, in the order of the plan, to pin on a retry
    :ivar order: index of a task → the index of its partition, if tasks come in an order of chance; else empty. For a
        plan that has as many tasks; any other one reads several partitions in a task.
    """

    text: list[str] = field(default_factory=list)
    whole_only: list[str] = field(default_factory=list)
    reads: list[list[tuple[int, int]]] = field(default_factory=list)
    order: tuple[int, ...] = ()

    def identity(self, parallelism: int) -> str:
        """Return the layout's name in keys and events."""
        if self.whole_only:
            return WHOLE
        return digest(str(parallelism), *self.text)[:16]


def describe_layout(spark: Any, plan: Any, *, maps: bool = False) -> Layout:
    """Return the layout of a physical plan without shuffles, or of an executed one whose shuffle stages have run.

    :param maps: whether it is the plan of map tasks. Partitions may then be told apart by the map tasks that have
        written their rows, too: where adaptive execution has split a read by them, and where they have dealt rows out,
        round robin. A row is certain to be where it was if these tasks are cut as they were, so their layout is a part
        of this one. Partitions of an Iceberg table, which it plans in an order of chance, are told apart by what they
        cover, and those of a cached frame by those of its plan, which has run.
    """
    words, _ = fetched(compiled(spark, "LayoutLook", _tables).look(plan, maps))
    layout, node, ranges, split = Layout(), "", None, ""
    lake, leaves = False, list[tuple[int, ...] | None]()  # the places of each one's tasks, if these are known
    said = iter(words)
    for word in said:
        if word == "node":
            node = next(said)
            layout.text.append(node)
            if node in _NAMED_LEAVES:
                leaves.append(None)
            if node in _BY_CHANCE:
                layout.whole_only.append(_BY_CHANCE[node])
        elif word == "files":
            layout.text.append(_OWN_OBJECT.sub("", next(said)))
            leaves.append((0,))
        elif word == "shown":
            layout.text.append(_IDS.sub("", next(said)))
        elif word == "sliced":
            layout.text.append(f"[{next(said)}] slices of {_IDS.sub('', next(said))}")
            leaves.append(None)
        elif word == "rows":
            layout.text.append(f"{next(said)} partitions of an RDD")
            leaves.append(None)
        elif word == "covered":
            covered = [digest(next(said)) for _ in range(int(next(said)))]
            layout.text += sorted(covered)
            leaves.append(_places(covered))
            lake = True
        elif word == "cached":
            layout.text.append(word)
        elif word == "leaf":
            layout.whole_only.append(f"the partitions of {node} cannot be told apart")
            leaves.append(None)
        elif word == "read":
            specs = next(said)
            ranges = [(int(start), int(end)) for start, end in _COALESCED.findall(specs)]
            if len(ranges) != int(next(said)):
                split = str(_SPEC.findall(specs))
                if not maps:
                    layout.whole_only.append("adaptive execution split a skewed or local shuffle read")
        else:
            kind, reducers = next(said).rstrip("$"), int(next(said))
            layout.text.append(f"{kind} {reducers} {_IDS.sub('', next(said))}")
            if split:
                layout.text.append(split)
            elif kind != "SinglePartition":
                layout.reads.append(ranges if ranges is not None else _one_each(reducers))
                layout.text.append(str(layout.reads[-1]))
            if kind not in _CERTAIN and not (maps and kind == "RoundRobinPartitioning"):
                layout.whole_only.append(f"rows are spread by {kind}, whose bounds vary from run to run")
            leaves.append(None)
            ranges, split = None, ""
    if lake:
        layout.order = _side_by_side(leaves)
        if not layout.order:
            layout.text += map(str, leaves)
    return layout


def _tables() -> str:
    """Return the lists of nodes, a line for each entry, as ``LayoutLook.java`` reads them."""
    lists = {
        "exchange": _EXCHANGES,
        "broadcast": _BROADCASTS,
        "shown": {"MapInArrowExec"},
        "sliced": _SLICED_LEAVES,
        "named": _NAMED_LEAVES | _BY_CHANCE.keys(),
    }
    lines = [f"{listed} {name}" for listed, names in lists.items() for name in names]
    return "\n".join([*lines, *(f"through {name} {member}" for name, member in _WRAPPERS.items())])


def _places(texts: Sequence[str]) -> tuple[int, ...]:
    """Return the place of each text when they are sorted; each place once."""
    places = {task: place for place, task in enumerate(sorted(range(len(texts)), key=texts.__getitem__))}
    return tuple(places[task] for task in range(len(texts)))


def _side_by_side(leaves: Sequence[tuple[int, ...] | None]) -> tuple[int, ...]:
    """Return the places of the tasks of a union, given those of each leaf; empty if those of one are not known."""
    places: list[int] = []
    for leaf in leaves:
        if leaf is None:
            return ()
        first = len(places)
        places += (first + place for place in leaf)
    return tuple(places)


def _one_each(reducers: int) -> list[tuple[int, int]]:
    return [(reducer, reducer + 1) for reducer in range(reducers)]


def pin_reads(spark: Any, plan: Any, reads: list[list[tuple[int, int]]]) -> Any:
    """Return *plan* with the reducer ranges of an earlier attempt, or ``None`` if they do not fit.

    Adaptive execution coalesces shuffle partitions by their sizes in bytes, which differ a little from run to run. Any
    contiguous cover of the same reducers is right, so the recorded one replaces the new one.
    """
    remaining = [list(ranges) for ranges in reads]
    execution = jvm_of(spark).org.apache.spark.sql.execution

    def read(shuffle: Any) -> Any:
        partitioning = shuffle.outputPartitioning()
        if partitioning.getClass().getSimpleName().startswith("SinglePartition"):
            return shuffle
        if not remaining:
            raise LookupError
        wanted, one_each = remaining.pop(0), _one_each(int(partitioning.numPartitions()))
        if [start for start, _ in wanted] + [len(one_each)] != [0] + [end for _, end in wanted]:
            raise LookupError
        if wanted == one_each:
            return shuffle
        pinned = [execution.CoalescedPartitionSpec.apply(start, end, 0) for start, end in wanted]
        return execution.adaptive.AQEShuffleReadExec(shuffle, to_seq(jvm_of(spark), pinned))

    def rebuild(node: Any) -> Any:
        name = node.getClass().getSimpleName()
        if name in ("AdaptiveSparkPlanExec", "ResultQueryStageExec"):
            return rebuild(getattr(node, _WRAPPERS[name])())
        if name == "AQEShuffleReadExec":
            return read(node.child())
        if name in _EXCHANGES:
            return read(node)
        if name in _BROADCASTS:
            return node
        children = [rebuild(child) for child in items(node.children())]
        return node.withNewChildren(to_seq(jvm_of(spark), children)) if children else node

    try:
        pinned_plan = rebuild(plan)
    except LookupError:
        return None
    return None if remaining else pinned_plan
