"""What each partition of a physical plan covers.

Partitions of two attempts may be mixed only if partition *i* holds the same rows in both. That follows from how the
last stage is cut: the files and ranges of each scan partition, or the reducers that each shuffle partition reads
(``AQEShuffleReadExec.partitionSpecs``). Where it cannot be told, or depends on chance (sampled range boundaries, round
robin, skew splits, locality), the vertex is kept whole or not at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from airflow_provider.core.digest import digest
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
"""Settings that change how rows are cut into partitions, and nothing else about them."""

WHOLE = "whole"
"""The name of a layout whose partitions are kept all or none."""
_COALESCED = re.compile(r"CoalescedPartitionSpec\((\d+),(\d+),")
_WRAPPERS = {
    "AdaptiveSparkPlanExec": "executedPlan",
    "ResultQueryStageExec": "plan",
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
    "TableCacheQueryStageExec": "it reads a cached DataFrame",
    "CartesianProductExec": "it is a cartesian product",
}
_OWN_OBJECT = re.compile(r"\.e\d+\.t\d+\.r\d+\.c[0-9a-f]{8}\.ms\d+(?=\.parquet)")
"""What differs between two objects that hold the same stored partition; its vertex, layout and index stay."""
_IDS = re.compile(r"#\d+L?|plan_id=\d+")


@dataclass
class Layout:
    """How a vertex is cut into partitions.

    :ivar text: description of every partition's cover
    :ivar whole_only: why single partitions must not be kept; empty if they may
    :ivar reads: reducer ranges ``[start, end)`` of each shuffle read, in the order of the plan, to pin on a retry
    """

    text: list[str] = field(default_factory=list)
    whole_only: list[str] = field(default_factory=list)
    reads: list[list[tuple[int, int]]] = field(default_factory=list)

    def identity(self, parallelism: int) -> str:
        """Return the layout's name in keys and events."""
        if self.whole_only:
            return WHOLE
        return digest(str(parallelism), *self.text)[:16]


def describe_layout(spark: Any, plan: Any) -> Layout:
    """Return the layout of a physical plan without shuffles, or of an executed one whose shuffle stages have run."""
    layout = Layout()
    _describe(spark, plan, layout)
    return layout


def _describe(spark: Any, node: Any, layout: Layout) -> None:
    name = node.getClass().getSimpleName()
    if name in _WRAPPERS:
        _describe(spark, getattr(node, _WRAPPERS[name])(), layout)
        return
    if name == "AQEShuffleReadExec":
        _shuffle_read(node, layout)
        return
    # What several parts of a plan broadcast is one of the parts' own, and a reference to it in the others.
    if name == "ReusedExchangeExec" and node.child().getClass().getSimpleName() in _BROADCASTS:
        _describe(spark, node.child(), layout)
        return
    if name in _EXCHANGES:
        _shuffle(node, layout)
        return
    layout.text.append(name)
    if name in _BROADCASTS:
        return
    if name in _BY_CHANCE:
        layout.whole_only.append(_BY_CHANCE[name])
    elif name == "FileSourceScanExec":
        _scan(spark, node, layout)
    elif name == "MapInArrowExec":
        layout.text.append(_IDS.sub("", node.simpleString(1000)))
    elif name in _SLICED_LEAVES:
        slices = [rdd.getNumPartitions() for rdd in items(node.inputRDDs())]
        layout.text.append(f"{slices} slices of {_IDS.sub('', node.simpleString(1000))}")
    elif name == "RDDScanExec":
        layout.text.append(f"{node.rdd().getNumPartitions()} partitions of an RDD")
    elif node.children().isEmpty() and name not in _NAMED_LEAVES:
        layout.whole_only.append(f"the partitions of {name} cannot be told apart")
    for child in items(node.children()):
        _describe(spark, child, layout)


def _shuffle_read(node: Any, layout: Layout) -> None:
    specs = node.partitionSpecs().mkString(";")
    ranges = [(int(start), int(end)) for start, end in _COALESCED.findall(specs)]
    if len(ranges) != node.partitionSpecs().size():
        layout.whole_only.append("adaptive execution split a skewed or local shuffle read")
    _shuffle(node.child(), layout, ranges)


def _shuffle(node: Any, layout: Layout, ranges: list[tuple[int, int]] | None = None) -> None:
    """Describe a shuffle and the reducers each partition reads; without *ranges* one each."""
    partitioning = node.outputPartitioning()
    kind = partitioning.getClass().getSimpleName().rstrip("$")
    layout.text.append(f"{kind} {partitioning.numPartitions()} {_IDS.sub('', partitioning.toString())}")
    if kind == "SinglePartition":
        return
    layout.reads.append(ranges if ranges is not None else _one_each(partitioning))
    layout.text.append(str(layout.reads[-1]))
    if kind != "HashPartitioning":
        layout.whole_only.append(f"rows are spread by {kind}, whose bounds vary from run to run")


def _one_each(partitioning: Any) -> list[tuple[int, int]]:
    return [(reducer, reducer + 1) for reducer in range(int(partitioning.numPartitions()))]


def _scan(spark: Any, node: Any, layout: Layout) -> None:
    to_string = spark._jvm.scala.runtime.ScalaRunTime.stringOf
    for rdd in items(node.inputRDDs()):
        for partition in items(rdd.partitions()):
            layout.text.append(_OWN_OBJECT.sub("", to_string(partition.files())))


def pin_reads(spark: Any, plan: Any, reads: list[list[tuple[int, int]]]) -> Any:
    """Return *plan* with the reducer ranges of an earlier attempt, or ``None`` if they do not fit.

    Adaptive execution coalesces shuffle partitions by their sizes in bytes, which differ a little from run to run. Any
    contiguous cover of the same reducers is right, so the recorded one is put in place of the new one.
    """
    remaining = [list(ranges) for ranges in reads]
    execution = spark._jvm.org.apache.spark.sql.execution

    def read(shuffle: Any) -> Any:
        partitioning = shuffle.outputPartitioning()
        if partitioning.getClass().getSimpleName().startswith("SinglePartition"):
            return shuffle
        if not remaining:
            raise LookupError
        wanted, one_each = remaining.pop(0), _one_each(partitioning)
        if [start for start, _ in wanted] + [len(one_each)] != [0] + [end for _, end in wanted]:
            raise LookupError
        if wanted == one_each:
            return shuffle
        pinned = [execution.CoalescedPartitionSpec.apply(start, end, 0) for start, end in wanted]
        return execution.adaptive.AQEShuffleReadExec(shuffle, to_seq(spark._jvm, pinned))

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
        return node.withNewChildren(to_seq(spark._jvm, children)) if children else node

    try:
        pinned_plan = rebuild(plan)
    except LookupError:
        return None
    return None if remaining else pinned_plan
