"""Run stages of a query before its action does, because what survived above them is only found once they are there.

Adaptive execution plans what stands above a stage when it knows the stage's rows and bytes: which join becomes a
broadcast, which partitions are coalesced. A shuffle that was too cheap to keep has to run again for that. The action
needs it in any case, and finds it in the plan's stage cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.jvm.exchanges import BROADCAST_STAGE, SHUFFLE_STAGE, kind

if TYPE_CHECKING:
    from threading import Condition

_SIDE_BY_SIDE = 64 * 2**20
"""Bytes, as Spark estimates them, up to which shuffles run together. Of larger ones only the smallest runs: what comes
above it may be there already, and need none of the others.
"""
_WAIT = 0.02
"""Seconds between two looks at stages that run."""


class StagesAhead:
    """The stages of one adaptive plan that run ahead of its action.

    :param told: lets the tasks of jobs that are started inside know what those of the action will know
    :param waits: is let go of while stages run, so that the actions of other threads can begin
    """

    def __init__(self, told: Callable[[], AbstractContextManager[None]], waits: Condition) -> None:
        self._told = told
        self._waits = waits
        self._running: dict[int, Any] = {}

    def run(self, stages: Sequence[Any]) -> dict[int, Any]:
        """Run some of the stages until at least one has ended; return by place in *stages* their results.

        Nothing if one fails, or none can run: the action will say why.
        """
        places = {int(stage.id()): place for place, stage in enumerate(stages)}
        if not self._running.keys() & places.keys():
            with self._told():
                self._running |= {int(stage.id()): stage.materialize() for stage in _first(stages)}
        running = {number: future for number, future in self._running.items() if number in places}
        while running and not (ended := [number for number, future in running.items() if future.isCompleted()]):
            self._waits.wait(_WAIT)
        if not running:
            return {}
        values = {number: self._running.pop(number).value().get() for number in ended}
        if not all(value.isSuccess() for value in values.values()):
            return {}
        return {places[number]: value.get() for number, value in values.items()}

    def runs(self, stage: Any) -> bool:
        """Whether a stage was begun and has not been seen to end."""
        return int(stage.id()) in self._running


def _first(stages: Sequence[Any]) -> list[Any]:
    """Return which stages run next: all broadcasts, and the small shuffles."""
    broadcasts = [stage for stage in stages if kind(stage) == BROADCAST_STAGE]
    sizes = [(_estimated_size(stage), stage) for stage in stages if kind(stage) == SHUFFLE_STAGE]
    most = max(_SIDE_BY_SIDE, min((size for size, _ in sizes), default=0))
    return [*broadcasts, *(stage for size, stage in sizes if size <= most)]


def _estimated_size(stage: Any) -> float:
    """Return the bytes that Spark believes a shuffle's rows to have."""
    node = stage.plan()
    while True:
        link = node.logicalLink()
        if link.isDefined():
            return float(str(link.get().stats().sizeInBytes()))
        children = node.children()
        if int(children.length()) != 1:
            return math.inf
        node = children.apply(0)
