"""What the script has cached, as a part of plans that read it: such a frame is filled by whatever reads it first."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

from airflow_provider.spark.jvm.adaptive_plan import AdaptivePlan, static_shuffles
from airflow_provider.spark.jvm.compiled import compiled
from airflow_provider.spark.jvm.exchanges import ADAPTIVE, CACHED_SCAN, CACHED_STAGE, cached_plan, is_filled, kind
from airflow_provider.spark.jvm.reflection import private_field
from airflow_provider.spark.jvm.scala import items

_EXACT = ("Count", "Min", "Max", "BitAndAgg", "BitOrAgg", "BitXorAgg", "HyperLogLogPlusPlus", "Rank", "DenseRank")
"""Aggregates and window functions that give the same, to the last bit, in whatever order rows come. So do most sums,
and averages of decimals.
"""


def doubt_of_cached(spark: Any, plan: Any) -> str | None:
    """Return why cached frames that the tasks of a plan read may hold other rows when a retry fills them, though the
    shuffles and broadcasts below them hold the same; empty if they may not, ``None`` if the tasks read none.
    """
    found = _look(spark).doubt(plan)
    return None if found is None else str(found)


def doubt_of_bits(spark: Any, plan: Any) -> str:
    """Return why numbers in cached frames, anywhere below a plan, may differ in their last bits when a retry fills
    them; empty if they may not.
    """
    return str(_look(spark).doubtOfBits(plan))


def offer_stages(spark: Any, plan: AdaptivePlan) -> None:
    """Let adaptive execution find the stages made of a plan whose tasks read cached frames, before it fills these."""
    _look(spark).offer(plan.stages)


def _look(spark: Any) -> Any:
    return compiled(spark, "CachedRows", lambda: " ".join(_EXACT))


def rdds_of_cached(plan: Any) -> list[int]:
    """Return Spark's ids of the RDDs that hold cached frames which the tasks of a plan read, as far as they exist."""
    held = (private_field(relation.cacheBuilder(), "_cachedColumnBuffers") for relation in read_by_tasks(plan))
    return [int(rdd.id()) for rdd in held if rdd is not None]


def shuffles_over(plan: AdaptivePlan, relation: Any) -> Iterator[Any]:
    """Yield the shuffles of an initial plan whose tasks read a cached frame.

    :param relation: an ``InMemoryRelation``
    """
    number = cached_plan(relation)
    return (each for each in plan.shuffles() if number in map(cached_plan, read_by_tasks(each.child())))


def can_be_planned(relation: Any, complete: Set[int]) -> bool:
    """Whether a cached frame can be planned without running a task of a shuffle: all of these are there.

    :param relation: an ``InMemoryRelation``
    :param complete: the numbers of cached frames' plans whose stages are all there, see :func:`cached_plan`
    """
    plan = relation.cachedPlan()
    adaptive = kind(plan) == ADAPTIVE
    if adaptive and (plan.isFinalPlan() or cached_plan(relation) in complete):
        return True
    nodes = plan.initialPlan() if adaptive else plan
    if any(True for _ in static_shuffles(nodes)):
        return False
    read = read_by_tasks(nodes)
    if adaptive:  # planning it runs the stages of the frames that its last one reads
        return all(map(is_filled, read))
    return all(can_be_planned(below, complete) for below in read)


def read_by_tasks(plan: Any) -> Iterator[Any]:
    """Yield what tasks read of what the script has cached, each as an ``InMemoryRelation``."""
    if kind(plan) == CACHED_SCAN:
        yield plan.relation()
    elif kind(plan) == CACHED_STAGE:
        yield from read_by_tasks(plan.plan())
    elif not kind(plan).endswith("ExchangeExec"):
        for child in items(plan.children()):
            yield from read_by_tasks(child)
