"""Track the execution of each vertex in one attempt: its state, its version, and the legal transitions.

    CREATED ─▶ SCHEDULED ─▶ DEPLOYING ─▶ RUNNING ─▶ FINISHED
       │           │            │            ├────▶ FAILED
       │           └────────────┴────────────┴────▶ CANCELING ─▶ CANCELED
       └─▶ FAILED, CANCELED

A vertex has one running execution at a time: a restart cancels it, waits until its thread reports the end, and creates
a new one with the next version. Reports of a cancelled or superseded execution are ignored. Thread-safe.

Source: Flink's ``ExecutionState`` and ``ExecutionVertexVersioner``. Its ``RECONCILING`` does not exist here: no task
outlives its driver, so a new driver has no task state to find out.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from airflow_provider.core.errors import REPORT_IT, IllegalMove


class ExecutionState(enum.StrEnum):
    """The states of an execution; see the module."""

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
        """Whether only a restart can follow."""
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
    """One execution of a vertex: the first one, or the one after *n* restarts."""

    vertex: str
    number: int


class Executions:
    """Tracks the newest execution of each vertex."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._newest: dict[str, ExecutionVersion] = {}
        self._states: dict[str, ExecutionState] = {}

    def begin(self, vertex: str) -> ExecutionVersion:
        """Return a new execution of a vertex, CREATED; it supersedes all older ones.

        :raises IllegalMove: the last one has not ended
        """
        with self._changed:
            last = self._newest.get(vertex)
            if last is not None and not self._states[vertex].terminal:
                raise self._illegal(last, ExecutionState.CREATED)
            version = ExecutionVersion(vertex, last.number + 1 if last else 1)
            self._newest[vertex] = version
            self._states[vertex] = ExecutionState.CREATED
            return version

    def state(self, vertex: str) -> ExecutionState | None:
        """Return the state of the newest execution, ``None`` if there is none."""
        with self._changed:
            return self._states.get(vertex)

    def is_current(self, version: ExecutionVersion) -> bool:
        """Whether this execution is the newest one and is not being cancelled."""
        with self._changed:
            cancelled = self._states.get(version.vertex) in (ExecutionState.CANCELING, ExecutionState.CANCELED)
            return self._newest.get(version.vertex) == version and not cancelled

    @contextmanager
    def reporting(self, version: ExecutionVersion) -> Iterator[bool]:
        """Yield whether reports of an execution count; no restart can intervene within the block."""
        with self._changed:
            yield self.is_current(version)

    @contextmanager
    def finishing(self, version: ExecutionVersion) -> Iterator[None]:
        """Set an execution to FINISHED at the end of the block; no restart can intervene within it.

        :raises IllegalMove: it is cancelled; the block does not run
        """
        with self._changed:
            self._check(version, ExecutionState.FINISHED)
            yield
            self.move(version, ExecutionState.FINISHED)

    def move(self, version: ExecutionVersion, state: ExecutionState) -> bool:
        """Move an execution to another state.

        :returns: ``False`` if it was superseded; then nothing changes
        :raises IllegalMove: its state does not allow the transition
        """
        with self._changed:
            if self._newest.get(version.vertex) != version:
                return False
            self._check(version, state)
            self._states[version.vertex] = state
            self._changed.notify_all()
            return True

    def fail(self, version: ExecutionVersion) -> bool:
        """Record that an execution ended with an error. If a restart is cancelling it, it is now CANCELED, as intended.

        :returns: whether it is a failure that no restart handles yet
        """
        with self._changed:
            state = self._states.get(version.vertex)
            if self._newest.get(version.vertex) != version or state is None or state.terminal:
                return False
            cancelled = state is ExecutionState.CANCELING
            self.move(version, ExecutionState.CANCELED if cancelled else ExecutionState.FAILED)
            return not cancelled

    def cancel(self, vertices: Collection[str]) -> list[ExecutionVersion]:
        """Cancel running executions; return those that have not ended yet. Those about to end anyway do not count."""
        with self._changed:
            at_work = [self._newest[v] for v in vertices if v in self._states and not self._states[v].terminal]
            for version in at_work:
                if self._states[version.vertex] is not ExecutionState.CANCELING:
                    self.move(version, ExecutionState.CANCELING)
            return at_work

    def wait_until_ended(self, vertices: Collection[str], seconds: float | None = None) -> bool:
        """Wait up to *seconds* until no execution of *vertices* is running; return whether none is."""
        with self._changed:
            return self._changed.wait_for(
                lambda: all(self._states[v].terminal for v in vertices if v in self._states), seconds
            )

    def _check(self, version: ExecutionVersion, state: ExecutionState) -> None:
        if state not in LEGAL_MOVES[self._states[version.vertex]]:
            raise self._illegal(version, state)

    def _illegal(self, version: ExecutionVersion, state: ExecutionState) -> IllegalMove:
        return IllegalMove(
            f"Execution {version.number} of {version.vertex} cannot become {state}: it is "
            f"{self._states[version.vertex]}.",
            remedy=REPORT_IT,
            vertex=version.vertex,
        )
