"""Track the states of a job's partitions in one attempt, and the legal transitions.

    (none) ──start──▶ IN_PROGRESS ──finish──▶ FINISHED ──release──▶ RELEASED ◀── finish, once the attempt is over
      ▲ └─────────────────adopt─────────────────▲ │                    │
      └──────fail, reset───────────┴──────────────┘      start again ──┘

A partition is in progress as soon as its vertex is initialised; one stored by an earlier attempt is adopted. A failed
or reset partition is forgotten. Any other transition is a bug and is never repaired silently. Once the attempt is
inactive, because it ended or is fenced, partitions that still arrive are released at once. Thread-safe: partitions
arrive on the thread of Spark's accumulators.

Source: FLINK-12612's ``ResultPartitionTable``: in progress, finished, released; failing removes; partitions that finish
after their job was cancelled are released.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Iterable

from airflow_provider.core.errors import REPORT_IT, IllegalMove


class PartitionState(enum.StrEnum):
    """The states of a partition; see the module."""

    IN_PROGRESS = "IN_PROGRESS"
    FINISHED = "FINISHED"
    RELEASED = "RELEASED"


class PartitionTracker:
    """Tracks each partition's state by vertex and index."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[str, dict[int, PartitionState]] = {}
        self._active = True

    @property
    def active(self) -> bool:
        """Whether the attempt is active."""
        return self._active

    def state(self, vertex: str, index: int) -> PartitionState | None:
        """Return a partition's state, ``None`` if it is unknown."""
        with self._lock:
            return self._states.get(vertex, {}).get(index)

    def start(self, vertex: str, indexes: Iterable[int]) -> None:
        """Initialise a vertex: its unfinished partitions are now in progress."""
        with self._lock:
            states = self._states.setdefault(vertex, {})
            for index in indexes:
                if states.get(index) is not PartitionState.FINISHED:
                    states[index] = PartitionState.IN_PROGRESS

    def adopt(self, vertex: str, index: int) -> None:
        """Adopt a partition of an earlier attempt.

        :raises IllegalMove: it has been released
        """
        with self._lock:
            states = self._states.setdefault(vertex, {})
            if states.get(index) is PartitionState.RELEASED:
                raise _illegal("adopted", vertex, index, PartitionState.RELEASED)
            states[index] = PartitionState.FINISHED

    def finish(self, vertex: str, index: int) -> bool:
        """Record that a partition of this attempt is stored. Idempotent.

        :returns: whether it counts; ``False`` if the attempt is inactive or the vertex released, and so the partition
            is released
        :raises IllegalMove: it was not in progress
        """
        with self._lock:
            states = self._states.get(vertex, {})
            state = states.get(index)
            if state is PartitionState.RELEASED:
                return False
            if state not in (PartitionState.IN_PROGRESS, PartitionState.FINISHED):
                raise _illegal("finished", vertex, index, state)
            states[index] = PartitionState.FINISHED if self._active else PartitionState.RELEASED
            return self._active

    def forget(self, vertex: str, indexes: Iterable[int] = ()) -> None:
        """Forget partitions that have failed or are reset; no indexes means all."""
        with self._lock:
            states = self._states.get(vertex, {})
            for index in tuple(indexes) or tuple(states):
                states.pop(index, None)

    def release(self, vertex: str) -> None:
        """Release the partitions of a vertex.

        :raises IllegalMove: one of them is still in progress
        """
        with self._lock:
            states = self._states.get(vertex, {})
            for index, state in states.items():
                if state is PartitionState.IN_PROGRESS:
                    raise _illegal("released", vertex, index, state)
            states.update(dict.fromkeys(states, PartitionState.RELEASED))

    def deactivate(self) -> None:
        """Mark the attempt as ended or fenced: partitions that arrive from now on are released."""
        with self._lock:
            self._active = False


def _illegal(move: str, vertex: str, index: int, state: PartitionState | None) -> IllegalMove:
    return IllegalMove(
        f"Partition {index} of {vertex} cannot be {move}: it is {state or 'unknown'}.",
        remedy=REPORT_IT,
        vertex=vertex,
        index=index,
    )
