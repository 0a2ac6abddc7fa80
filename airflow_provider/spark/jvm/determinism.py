"""What makes a plan's rows, or their order within a partition, differ from one run to the next.

A vertex that contains one of these is reused whole or not at all, and what was derived from a lost incarnation of it is
computed again. docs/reuse.md shows the same table with a reason for each row; a test keeps the two equal.
"""

from __future__ import annotations

import re

CLOCK = "it reads the clock"
CHANCE = "it draws random numbers"
PLACE = "it depends on how rows are spread over partitions"
ORDER = "it depends on the order of rows, which a shuffle does not keep"

NOT_DETERMINISTIC: dict[str, str] = {
    "CurrentTimestamp": CLOCK,
    "CurrentTimestampLike": CLOCK,
    "CurrentDate": CLOCK,
    "CurrentTime": CLOCK,
    "LocalTimestamp": CLOCK,
    "Now": CLOCK,
    "CurrentBatchTimestamp": CLOCK,
    "SpecialDatetimeValues": CLOCK,
    "Rand": CHANCE,
    "Randn": CHANCE,
    "RandStr": CHANCE,
    "Uniform": CHANCE,
    "Uuid": CHANCE,
    "Shuffle": CHANCE,
    "AesEncrypt": CHANCE,
    "Sample": CHANCE,
    "MonotonicallyIncreasingID": PLACE,
    "SparkPartitionID": PLACE,
    "AttachDistributedSequence": PLACE,
    "InputFileName": PLACE,
    "InputFileBlockStart": PLACE,
    "InputFileBlockLength": PLACE,
    "Repartition": PLACE,
    "RebalancePartitions": PLACE,
    "First": ORDER,
    "Last": ORDER,
    "AnyValue": ORDER,
    "NthValue": ORDER,
    "CollectList": ORDER,
    "CollectSet": ORDER,
    "CollectTopK": ORDER,
    "ListAgg": ORDER,
    "Mode": ORDER,
    "MaxBy": ORDER,
    "MinBy": ORDER,
    "MaxMinByK": ORDER,
    "ApproximatePercentile": ORDER,
    "HistogramNumeric": ORDER,
    "ApproxTopK": ORDER,
    "ApproxTopKAccumulate": ORDER,
    "ApproxTopKCombine": ORDER,
    "HllSketchAgg": ORDER,
    "HllUnionAgg": ORDER,
    "KllSketchAggBigint": ORDER,
    "KllSketchAggDouble": ORDER,
    "KllSketchAggFloat": ORDER,
    "KllMergeAggBigint": ORDER,
    "KllMergeAggDouble": ORDER,
    "KllMergeAggFloat": ORDER,
    "ThetaSketchAgg": ORDER,
    "ThetaUnionAgg": ORDER,
    "ThetaIntersectionAgg": ORDER,
    "TupleSketchAggDouble": ORDER,
    "TupleSketchAggInteger": ORDER,
    "TupleUnionAggDouble": ORDER,
    "TupleUnionAggInteger": ORDER,
    "TupleIntersectionAggDouble": ORDER,
    "TupleIntersectionAggInteger": ORDER,
    "RowNumber": ORDER,
    "NTile": ORDER,
    "Lag": ORDER,
    "Lead": ORDER,
    "GlobalLimit": ORDER,
    "LocalLimit": ORDER,
    "LimitAll": ORDER,
    "Offset": ORDER,
    "Tail": ORDER,
    "Deduplicate": ORDER,
    "DeduplicateWithinWatermark": ORDER,
    "AsOfJoin": ORDER,
    "NearestByJoin": ORDER,
}
"""Short class names of expressions and plan nodes → why."""

OF_PHYSICAL_PLANS: dict[str, str] = {
    "RangePartitioning": "its bounds are sampled",
    "RoundRobinPartitioning": PLACE,
    "Coalesce": PLACE,
    "CollectLimit": ORDER,
    "CollectTail": ORDER,
    "TakeOrderedAndProject": ORDER,
}
"""The same for nodes and partitionings that only physical plans have; nodes without their suffix ``Exec``."""

IN_ORDER = f"SpecifiedWindowFrame: {ORDER}"
"""The reason for a window whose frame counts rows, for all functions but ranks."""

NO_ORDER = f"WindowSpecDefinition: no column orders its rows, and {ORDER}"
"""The reason for a window over rows that are all equal in its order."""

CLOCK_TEXT = re.compile(r"\s*(now|today|tomorrow|yesterday)(\s+\S{1,40})?\s*", re.IGNORECASE)
"""A text, perhaps with a time zone, that Spark casts to the time of the query, as in ``WHERE day >= 'today'``. A rule
of the optimizer (``SpecialDatetimeValues``) reads the clock; nothing else in an analyzed plan shows it.
"""
READS_CLOCK = f"SpecialDatetimeValues: {CLOCK}"

OF_FUNCTIONS = "function"
"""Prefix of the reason for a random Python function."""


_SPREADING = {"Repartition", "RebalancePartitions", "RoundRobinPartitioning", "Coalesce"}


def spreads(reason: str) -> bool:
    """Whether what a reason names only gives rows to other tasks: all of them together are the same."""
    return reason.split(":")[0] in _SPREADING


def varies(reason: str) -> bool:
    """Return whether what a reason names gives other rows in nearly every run, not just another order."""
    name = reason.split(":")[0]
    return NOT_DETERMINISTIC.get(name, ORDER) != ORDER or reason.startswith(OF_FUNCTIONS)


def chosen_by_order(reason: str) -> bool:
    """Return whether what a reason names depends on the order of rows alone, so that each query of Spark chooses anew.

    A window without an order does not count: scripts use it to number rows, and expect the same numbers in all outputs.
    """
    return reason.endswith(ORDER) and reason != NO_ORDER
