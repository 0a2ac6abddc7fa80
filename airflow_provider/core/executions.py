"""The execution of each vertex in one attempt: its state, its version, and which moves are legal.

    CREATED ─▶ SCHEDULED ─▶ DEPLOYING ─▶ RUNNING ─▶ FINISHED
       │           │            │            ├────▶ FAILED
       │           └────────────┴────────────┴────▶ CANCELING ─▶ CANCELED
       └─▶ FAILED, CANCELED

A restart makes a new execution with the next version. What still arrives for an older version was overtaken and is
ignored, so that a late report of a cancelled job is harmless. Threads may share this.

Source: Flink's ``ExecutionState`` and ``ExecutionVertexVersioner``. Its ``RECONCILING`` is not here: no task outlives
its driver, so there is nothing whose state a new driver would have to find out.
"""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass

from airflow_provider.core.errors import REPORT_IT, IllegalMove


class ExecutionState(enum.StrEnum):
    """See the module."""

    CREATED = "CREATED"
    SCHEDULED = "SCHEDULED"
    DEPLOYING = "DEPLOYING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FAILED = "FAILED"

    @property
    def terminal(self) -> bool:
        """Whether nothing comes after it but a restart."""
        return self in (ExecutionState.FINISHED, ExecutionState.CANCELED, ExecutionState.FAILED)


_S = ExecutionState
LEGAL_MOVES: dict[ExecutionState, frozenset[ExecutionState]] = {
    _S.CREATED: frozenset({_S.SCHEDULED, _S.CANCELED, _S.FAILED}),
    _S.SCHEDULED: frozenset({_S.DEPLOYING, _S.CANCELING, _S.CANCELED, _S.FAILED}),
    _S.DEPLOYING: frozenset({_S.RUNNING, _S.CANCELING, _S.FAILED}),
    _S.RUNNING: frozenset({_S.FINISHED, _S.CANCELING, _S.FAILED}),
    _S.CANCELING: frozenset({_S.CANCELED, _S.FAILED}),
    _S.FINISHED: frozenset(),
    _S.CANCELED: frozenset(),
    _S.FAILED: frozenset(),
}


@dataclass(frozen=True)
class ExecutionVersion:
    """One execution of a vertex: the first, or the one after so many restarts."""

    vertex: str
    number: int


class Executions:
    """Knows the newest execution of each vertex."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[str, ExecutionVersion] = {}
        self._states: dict[str, ExecutionState] = {}

    def begin(self, vertex: str) -> ExecutionVersion:
        """Return a new execution of a vertex, CREATED; every older one is overtaken."""
        with self._lock:
            last = self._newest.get(vertex)
            version = ExecutionVersion(vertex, last.number + 1 if last else 1)
            self._newest[vertex] = version
            self._states[vertex] = ExecutionState.CREATED
            return version

    def state(self, vertex: str) -> ExecutionState | None:
        """Return the state of the newest execution, ``None`` if there is none."""
        with self._lock:
            return self._states.get(vertex)

    def is_current(self, version: ExecutionVersion) -> bool:
        """Whether no restart has overtaken this execution."""
        with self._lock:
            return self._newest.get(version.vertex) == version

    def move(self, version: ExecutionVersion, state: ExecutionState) -> bool:
        """Put an execution into another state.

        :returns: ``False`` if it was overtaken, and nothing has changed
        :raises IllegalMove: the state it is in does not allow that
        """
        with self._lock:
            if self._newest.get(version.vertex) != version:
                return False
            now = self._states[version.vertex]
            if state not in LEGAL_MOVES[now]:
                raise IllegalMove(
                    f"Execution {version.number} of {version.vertex} cannot become {state}: it is {now}.",
                    remedy=REPORT_IT,
                    vertex=version.vertex,
                )
            self._states[version.vertex] = state
            return True

    def fail(self, version: ExecutionVersion) -> None:
        """An execution has failed; one that is being cancelled, or was, stays so: its job ends with an error, too."""
        with self._lock:
            state = self._states.get(version.vertex)
            if self._newest.get(version.vertex) != version or state is None or state.terminal:
                return
            if state is not ExecutionState.CANCELING:  # whoever cancels it says when it is cancelled
                self._states[version.vertex] = ExecutionState.FAILED

    def at_work(self, vertices: list[str]) -> list[ExecutionVersion]:
        """Return the newest executions of *vertices* that have not ended."""
        with self._lock:
            return [self._newest[v] for v in vertices if v in self._states and not self._states[v].terminal]
