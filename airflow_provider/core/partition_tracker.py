"""The states of a job's partitions in one attempt, and the moves between them that are legal.

    (none) ──start──▶ IN_PROGRESS ──finish──▶ FINISHED ──release──▶ RELEASED ◀── finish, once the attempt is over
      ▲ └─────────────────adopt─────────────────▲ │                    │
      └──────fail, reset───────────┴──────────────┘      start again ──┘

A partition is in progress from the moment its vertex is initialised; one that an earlier attempt stored is adopted.
What fails or is reset is forgotten. Anything else is an error of ours, never repaired silently. Once the attempt is
inactive, because it ended or is fenced, what still arrives is released at once. Threads may share a tracker: partitions
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
    """See the module."""

    IN_PROGRESS = "IN_PROGRESS"
    FINISHED = "FINISHED"
    RELEASED = "RELEASED"


class PartitionTracker:
    """Knows each partition's state, by vertex and index."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[str, dict[int, PartitionState]] = {}
        self._active = True

    @property
    def active(self) -> bool:
        """Whether the attempt is at work."""
        return self._active

    def state(self, vertex: str, index: int) -> PartitionState | None:
        """Return a partition's state, ``None`` if nothing is known of it."""
        with self._lock:
            return self._states.get(vertex, {}).get(index)

    def start(self, vertex: str, indexes: Iterable[int]) -> None:
        """The vertex is initialised: those of its partitions that are not finished are in progress now."""
        with self._lock:
            states = self._states.setdefault(vertex, {})
            for index in indexes:
                if states.get(index) is not PartitionState.FINISHED:
                    states[index] = PartitionState.IN_PROGRESS

    def adopt(self, vertex: str, index: int) -> None:
        """An earlier attempt's partition is used.

        :raises IllegalMove: it has been released
        """
        with self._lock:
            states = self._states.setdefault(vertex, {})
            if states.get(index) is PartitionState.RELEASED:
                raise _illegal("adopted", vertex, index, PartitionState.RELEASED)
            states[index] = PartitionState.FINISHED

    def finish(self, vertex: str, index: int) -> bool:
        """A partition of this attempt is stored; saying it twice is harmless.

        :returns: whether it counts; ``False`` if the attempt is inactive, or the vertex is released: then this is, too
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
        """Partitions have failed or are reset: nothing is known of them any more; no indexes means all."""
        with self._lock:
            states = self._states.get(vertex, {})
            for index in tuple(indexes) or tuple(states):
                states.pop(index, None)

    def release(self, vertex: str) -> None:
        """The partitions of a vertex are needed no longer.

        :raises IllegalMove: one of them is still in progress
        """
        with self._lock:
            states = self._states.get(vertex, {})
            for index, state in states.items():
                if state is PartitionState.IN_PROGRESS:
                    raise _illegal("released", vertex, index, state)
            states.update(dict.fromkeys(states, PartitionState.RELEASED))

    def deactivate(self) -> None:
        """The attempt has ended or is fenced: from now on whatever arrives is released."""
        with self._lock:
            self._active = False


def _illegal(move: str, vertex: str, index: int, state: PartitionState | None) -> IllegalMove:
    return IllegalMove(
        f"Partition {index} of {vertex} cannot be {move}: it is {state or 'unknown'}.",
        remedy=REPORT_IT,
        vertex=vertex,
        index=index,
    )
