"""Kept shuffles that have run for the action under way, and whose files are still on the executors.

A plan with several recovery points runs in as many goes, and two of them may stand on the same shuffle. Each thread of
a script has an action of its own. What is held here, Spark's cleaner leaves alone; so it is held no longer than that.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider.spark.kept_shuffle import KeptShuffle


class LiveShuffles(threading.local):
    """Those of this thread.

    :ivar by_vertex: by their identity
    """

    def __init__(self) -> None:
        self.by_vertex: dict[str, KeptShuffle] = {}

    def hold(self, kept: KeptShuffle) -> None:
        """Let the next plan of the action find it."""
        self.by_vertex[kept.vertex] = kept

    def get(self, vertex: str) -> KeptShuffle | None:
        """Return the shuffle if all of its files are there."""
        kept = self.by_vertex.get(vertex)
        return kept if kept is not None and kept.is_there else None

    @contextmanager
    def of_action(self) -> Iterator[None]:
        """Hold what runs inside until then."""
        try:
            yield
        finally:
            self.forget()

    def forget(self) -> None:
        """Give them back: the action is over, or one of its jobs has failed, and with it perhaps their stages."""
        self.by_vertex.clear()
