"""Kept shuffles that have run for the action under way, and whose files are still on the executors.

A plan with several recovery points runs in as many goes, and two of them may stand on the same shuffle. Each thread of
a script has an action of its own. What is held here, Spark's cleaner leaves alone; so it is held no longer than that.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider.spark.jvm.map_stage import MapStage
    from airflow_provider.spark.kept_shuffle import KeptShuffle


class LiveShuffles(threading.local):
    """Those of this thread.

    :ivar held: in the order in which they were first needed
    """

    def __init__(self) -> None:
        self.held: list[KeptShuffle] = []

    def hold(self, kept: KeptShuffle) -> None:
        """Let the next plan of the action find it."""
        self.held.append(kept)

    def find(self, stage: MapStage) -> KeptShuffle | None:
        """Return the shuffle that *stage*, of another plan, would run once more; ``None`` if it has to run.

        They are the same where Spark would run one of them if they stood in one plan.
        """
        return next((kept for kept in self.held if kept.stage.does_the_same_as(stage) and kept.is_there), None)

    def all_there(self, shuffles: Collection[int]) -> bool:
        """Whether all of these, Spark's numbers for them, are held and their files there."""
        return {kept.stage.shuffle for kept in self.held if kept.is_there}.issuperset(shuffles)

    def all_found(self, shuffles: Collection[int], stages: Collection[MapStage]) -> bool:
        """Whether a plan of *stages* would find all of these."""
        found = (self.find(stage) for stage in stages)
        return {kept.stage.shuffle for kept in found if kept is not None}.issuperset(shuffles)

    @contextmanager
    def of_action(self) -> Iterator[None]:
        """Hold what runs inside until then."""
        try:
            yield
        finally:
            self.forget()

    def forget(self) -> None:
        """Give them back: the action is over, or one of its jobs has failed, and with it perhaps their stages."""
        self.held.clear()
