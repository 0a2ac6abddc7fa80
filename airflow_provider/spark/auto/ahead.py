"""Run stages of a query ahead of its action, because survivors above them can be found only once these have run.

Adaptive execution plans what is above a stage when the stage's rows and bytes are known: which join becomes a
broadcast, which partitions are coalesced. So a shuffle that was too cheap to keep must run again first. The action
needs it in any case, and finds it in the plan's stage cache. So it is with a cached frame that is to be filled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.jvm.exchanges import BROADCAST_STAGE, CACHED_STAGE, REUSED_EXCHANGE, SHUFFLE_STAGE, kind

if TYPE_CHECKING:
    from threading import Condition

_SIDE_BY_SIDE = 64 * 2**20
"""Bytes, as Spark estimates them, up to which shuffles run together. Of larger ones only the smallest runs: a survivor
above it may make the others unnecessary.
"""
_WAIT = 0.02
"""Seconds between two checks of running stages."""


class StagesAhead:
    """The stages of one adaptive plan that run ahead of its action.

    :param told: gives the tasks of jobs that start inside the same settings as the action's tasks
    :param waits: is released while stages run, so that actions of other threads can start
    """

    def __init__(self, told: Callable[[], AbstractContextManager[None]], waits: Condition) -> None:
        self._told = told
        self._waits = waits
        self._running: dict[int, Any] = {}
        self._started: set[int] = set()

    def run(self, stages: Sequence[Any]) -> dict[int, Any]:
        """Run some of the stages until at least one has ended; return their results by position in *stages*.

        Empty if one fails, or none can run: the action will report why.
        """
        places = {int(stage.id()): place for place, stage in enumerate(stages)}
        if not self._running.keys() & places.keys():
            with self._told():
                self._running |= {int(stage.id()): stage.materialize() for stage in _first(stages)}
            self._started |= self._running.keys()
        running = {number: future for number, future in self._running.items() if number in places}
        while running and not (ended := [number for number, future in running.items() if future.isCompleted()]):
            self._waits.wait(_WAIT)
        if not running:
            return {}
        values = {number: self._running.pop(number).value().get() for number in ended}
        if not all(value.isSuccess() for value in values.values()):
            return {}
        return {places[number]: value.get() for number, value in values.items()}

    def needs(self, stage: Any) -> bool:
        """Whether a stage without a result must stay in the plan's stage cache.

        That is one that runs, and one that has failed: the action reports that, and does not run it again. An exchange
        that the plan has twice is in the cache as the first of its stages.
        """
        if kind(stage) not in (SHUFFLE_STAGE, BROADCAST_STAGE) or kind(stage.plan()) == REUSED_EXCHANGE:
            return True
        return int(stage.id()) in self._started


def _first(stages: Sequence[Any]) -> list[Any]:
    """Return the stages to run next: all broadcasts, the small shuffles, and what fills cached frames.

    No ranges: nothing above a range shuffle is kept, and Spark does not coalesce the partitions of one that comes from
    the stage cache (``ValidateRequirements``, if the columns of the order have a qualifier).
    """
    others = [stage for stage in stages if kind(stage) in (BROADCAST_STAGE, CACHED_STAGE)]
    shuffles = [stage for stage in stages if kind(stage) == SHUFFLE_STAGE and not _ranged(stage)]
    sizes = [(_estimated_size(stage), stage) for stage in shuffles]
    most = max(_SIDE_BY_SIDE, min((size for size, _ in sizes), default=0))
    return [*others, *(stage for size, stage in sizes if size <= most)]


def _ranged(stage: Any) -> bool:
    return kind(stage.plan().outputPartitioning()) == "RangePartitioning"


def _estimated_size(stage: Any) -> float:
    """Return Spark's estimate of a shuffle's bytes."""
    node = stage.plan()
    while True:
        link = node.logicalLink()
        if link.isDefined():
            return float(str(link.get().stats().sizeInBytes()))
        children = node.children()
        if int(children.length()) != 1:
            return math.inf
        node = children.apply(0)
