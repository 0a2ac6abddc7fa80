"""The execution graph: the state of a job, folded from its events.

Plain state with one way to change it, :meth:`ExecutionGraph.apply`. The graph never touches a store and never guesses:
an event that does not fit is noted in :attr:`ExecutionGraph.problems` and changes nothing, because its information can
be found again by listing the partition store, or computed again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider.core import events as ev
from airflow_provider.core.loss import LOST, Loss, attempt_of_loss, first_start_lost, not_determined, state_of_loss
from airflow_provider.core.partition_record import PartitionRecord, Tally
from airflow_provider.core.unfinished_write import of_a_fresh_start

MOST_PROBLEMS = 100
"""One lost block can make thousands of later events unusable; so many of them are told."""


class JobState(enum.StrEnum):
    """Flink's ``JobStatus``, as far as a batch job needs it."""

    CREATED = "CREATED"
    RECONCILING = "RECONCILING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"

    @property
    def terminal(self) -> bool:
        """Whether an attempt in this state has ended and recorded it."""
        return self in (JobState.FINISHED, JobState.FAILED)


RESTART_STRATEGY = "restart-strategy"
"""The coordinator that counts failures."""

_START_LOST = "the job event store has lost the start of an attempt, which may have given up what is older"


@dataclass
class Vertex:
    """One recovery point and its finished partitions by index."""

    initialized: ev.VertexInitialized
    partitions: dict[int, PartitionRecord] = field(default_factory=dict)
    finished: bool = False
    has_finished: bool = False
    """It has finished at least once, whatever has been lost or reset since."""
    released: bool = False
    """Its partitions were deleted while the job ran, because all that reads it was committed."""
    reached_by: set[int] = field(default_factory=set)
    """Attempts whose script came to this recovery point."""
    storing_seconds: dict[int, float] = field(default_factory=dict)
    """By attempt, the task time that went into encoding and storing what it computed."""
    gone: Tally | None = None
    """What the attempt that released it has had of it."""
    shared: bool = field(default=False, compare=False, repr=False)
    """``partitions`` belongs to a copy of the graph, too, and is replaced before it is changed."""

    @property
    def complete(self) -> bool:
        """Whether every partition is recorded."""
        return len(self.partitions) == self.initialized.parallelism

    @property
    def bytes(self) -> int:
        """Stored bytes of all recorded partitions."""
        return sum(record.bytes for record in self.partitions.values())

    @property
    def rows(self) -> int | None:
        """Rows of all recorded partitions; ``None`` if they are not known."""
        return sum(r.rows for r in self.partitions.values()) if self.initialized.counts_rows else None

    @property
    def missing(self) -> list[int]:
        """Indexes without a recorded partition."""
        return [index for index in range(self.initialized.parallelism) if index not in self.partitions]

    def tally(self, attempt: int) -> Tally:
        """Return what an attempt that has reached it has had of it, whether it is still there or not."""
        gone = self.gone if self.gone is not None and self.gone.attempt == attempt else Tally(attempt)
        return gone.plus(self.partitions.values())

    def copy(self) -> Vertex:
        """Return an independent copy."""
        self.shared = True
        return replace(self, reached_by=set(self.reached_by), storing_seconds=dict(self.storing_seconds))

    def own_partitions(self) -> dict[int, PartitionRecord]:
        """Return the partitions for modification, copying them if they are shared."""
        if self.shared:
            self.partitions, self.shared = dict(self.partitions), False
        return self.partitions


@dataclass
class Attempt:
    """One driver's attempt at the job, according to its events. Times are seconds since the Unix epoch."""

    epoch: int
    started_at: float
    state: JobState = JobState.CREATED
    ended_at: float | None = None
    last_event_at: float = 0.0
    fresh: bool = False
    abandoned: bool = False
    """It started afresh because what earlier attempts left could not be trusted."""
    reason: str = ""
    error: str = ""
    application_id: str = ""
    ui_url: str = ""
    host: str = ""
    unrecoverable: bool = False
    """It failed in a way that no retry can help."""
    restarts: int = 0
    """Restarts inside the application."""
    store_retries: int = 0
    """Requests to the event store that the driver had to repeat."""
    skipped: list[ev.VertexSkipped] = field(default_factory=list)
    series: str = ""
    """The same for automatic retries of each other; empty text if nobody can say whether it is one."""


class ExecutionGraph:
    """The state of a job: its attempts, and its vertices in the order in which they were first reached."""

    def __init__(self) -> None:
        self.attempts: dict[int, Attempt] = {}
        self.vertices: dict[str, Vertex] = {}
        self.base_epoch = 1
        """Partitions of attempts before this one belong to a run that was given up; they are never reused."""
        self.problems: list[str] = []
        self.abandoned = ""
        """Why nothing known may be reused; the next attempt has to start afresh."""
        self.gap: int | None = None
        """The events end with a loss in which the start of this attempt, or of a later one, may be lost."""
        self.coordinators: dict[str, Any] = {}
        """What the driver alone knows, by the name of who knows it, as plain JSON; a snapshot keeps it."""
        self.claimed = 0
        """Partitions that the vertices have together, there or missing."""
        self.held = 0
        """Bytes of all partitions that are recorded now."""
        self.most_held = 0
        """The most bytes that were ever recorded at one time."""
        self.bounded = True
        """Vertices that claim too many partitions are ignored; a driver's own, which it really has, are not."""
        self._handlers: dict[type[ev.JobEvent], Callable[[Any], None]] = {
            ev.AttemptStarted: self._attempt_started,
            ev.JobStateChanged: self._job_state_changed,
            ev.SparkApplicationStarted: self._spark_application_started,
            ev.VertexInitialized: self._vertex_initialized,
            ev.PartitionFinished: self._partition_finished,
            ev.PartitionsReset: self._partitions_reset,
            ev.VertexFinished: self._vertex_finished,
            ev.VertexReused: self._vertex_reused,
            ev.VertexReleased: self._vertex_released,
            ev.VertexSkipped: self._vertex_skipped,
            ev.FailureHandled: self._failure_handled,
            ev.CoordinatorSnapshot: self._coordinator_snapshot,
            ev.JobFinished: self._job_finished,
            ev.JobFailed: self._job_failed,
        }

    @property
    def newest(self) -> Attempt | None:
        """The attempt with the highest epoch, if any has started."""
        return self.attempts[max(self.attempts)] if self.attempts else None

    def copy(self) -> ExecutionGraph:
        """Return a copy that later events do not change; immutable parts are shared."""
        twin = ExecutionGraph()
        twin.attempts = {epoch: replace(a, skipped=list(a.skipped)) for epoch, a in self.attempts.items()}
        twin.vertices = {identity: vertex.copy() for identity, vertex in self.vertices.items()}
        twin.base_epoch, twin.claimed = self.base_epoch, self.claimed
        twin.held, twin.most_held = self.held, self.most_held
        twin.abandoned, twin.gap = self.abandoned, self.gap
        twin.problems, twin.coordinators = list(self.problems), dict(self.coordinators)
        return twin

    def apply(self, event: ev.JobEvent) -> None:
        """Fold one event into the graph.

        Events of an attempt that is not the newest come from a fenced driver and are ignored.
        """
        self._close_gap(event)
        newest = self.newest
        if not isinstance(event, ev.AttemptStarted):
            if newest is None or event.epoch != newest.epoch:
                self.note(f"{type(event).__name__} of attempt {event.epoch} ignored: it is not the newest")
                return
            newest.last_event_at = max(newest.last_event_at, event.at)
        self._handlers[type(event)](event)

    def lose(self, loss: Loss) -> None:
        """Give up what the records lost here may have affected (see :mod:`airflow_provider.core.loss`)."""
        given_up = [
            vertex
            for identity in not_determined({i: vertex.initialized for i, vertex in self.vertices.items()})
            if (vertex := self.vertices[identity]).partitions
        ]
        for vertex in given_up:
            self._forget(vertex)
        if given_up:
            names = ", ".join(vertex.initialized.name for vertex in given_up)
            self.note(f"{names} given up: not deterministic, and block {loss.block} may have told of its recomputation")
        for vertex in self.vertices.values():
            vertex.has_finished = True  # its record may be among the lost ones
        newest = self.newest.epoch if self.newest is not None else 0
        self.coordinators[LOST] = state_of_loss(loss, newest)
        first = first_start_lost(loss, newest)
        if first is not None:
            self.gap = first if self.gap is None else min(self.gap, first)

    def only_retried_since(self, epoch: int) -> bool:
        """Whether every attempt after *epoch* is certainly an automatic retry of its predecessor.

        An attempt without records may have been ended by a user, so it does not count as one.
        """
        newest = self.newest
        series = {
            self.attempts[each].series if each in self.attempts else ""
            for each in range(epoch, newest.epoch + 1 if newest is not None else epoch)
        }
        return len(series) == 1 and "" not in series

    def must_start_afresh(self, epoch: int) -> str:
        """Return why attempt *epoch*, which follows all events, must not reuse anything; empty text if it may."""
        if not self.abandoned and self.gap is not None and self.gap < epoch:
            return _START_LOST
        return self.abandoned

    def note(self, problem: str) -> None:
        """Add a sentence about something that could not be used."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)
        elif len(self.problems) == MOST_PROBLEMS:
            self.problems.append("there are more such problems, which are not listed")

    def _close_gap(self, event: ev.JobEvent) -> None:
        """Use the first event after a loss to limit which attempts' starts may be lost."""
        if self.gap is None:
            return
        last = event.epoch - 1 if isinstance(event, ev.AttemptStarted) else event.epoch
        if self.gap <= last:
            self.abandoned = _START_LOST
            self._clear_vertices()
        self.gap = None

    def _attempt_started(self, event: ev.AttemptStarted) -> None:
        newest = self.newest
        if newest is not None and event.epoch <= newest.epoch:
            self.note(f"start of attempt {event.epoch} ignored: attempt {newest.epoch} has started already")
            return
        if event.fresh:
            restarts = self.coordinators.get(RESTART_STRATEGY, {})
            left = {} if event.another_run else self._left_in_sinks(event)
            self._clear_vertices()
            self.coordinators.clear()
            self.coordinators |= left
            if event.abandoned:  # counts as a restart
                self.coordinators[RESTART_STRATEGY] = {**restarts, "failures": restarts.get("failures", 0) + 1}
            self.abandoned = ""
            self.base_epoch = event.epoch
        self.attempts[event.epoch] = Attempt(
            event.epoch,
            started_at=event.at,
            last_event_at=event.at,
            fresh=event.fresh,
            abandoned=event.abandoned,
            reason=event.reason,
            host=event.host,
            series=event.series,
        )

    def _clear_vertices(self) -> None:
        self.vertices.clear()
        self.claimed = self.held = 0

    def _left_in_sinks(self, event: ev.AttemptStarted) -> dict[str, Any]:
        """Return the records of added rows, which are removed even if nothing is reused.

        Excludes those of an attempt whose success may be among the lost records: they are the job's result.
        """
        newest, lost = self.newest, attempt_of_loss(self.coordinators)
        finished = newest is None or newest.state is JobState.FINISHED
        left = {LOST: self.coordinators[LOST]} if lost and (event.abandoned or not finished) else {}
        if newest is None or finished or (newest.epoch <= lost and not newest.state.terminal):
            return left
        return {**of_a_fresh_start(self.coordinators, event.epoch), **left}

    def _job_state_changed(self, event: ev.JobStateChanged) -> None:
        try:
            self.attempts[event.epoch].state = JobState(event.state)
        except ValueError:
            self.note(f"unknown job state {event.state!r}")

    def _spark_application_started(self, event: ev.SparkApplicationStarted) -> None:
        attempt = self.attempts[event.epoch]
        attempt.application_id, attempt.ui_url = event.application_id, event.ui_url

    def _vertex_initialized(self, event: ev.VertexInitialized) -> None:
        vertex = self.vertices.get(event.vertex)
        claimed = self.claimed + event.parallelism - (vertex.initialized.parallelism if vertex is not None else 0)
        if self.bounded and claimed > ev.MOST_PARTITIONS_OF_JOB:
            most = ev.MOST_PARTITIONS_OF_JOB
            self.note(f"{event.vertex} ignored: the job's vertices claim more than {most} partitions")
            if vertex is not None:
                self._forget(vertex)
            return
        self.claimed = claimed
        if vertex is None:
            vertex = self.vertices[event.vertex] = Vertex(event, has_finished=self._finished_in_lost(event.vertex))
        elif (event.layout, event.parallelism) != (vertex.initialized.layout, vertex.initialized.parallelism):
            self._forget(vertex)
        vertex.initialized, vertex.released = event, False
        vertex.reached_by.add(event.epoch)

    def _finished_in_lost(self, identity: str) -> bool:
        """Whether a vertex seen for the first time must have finished before, because a reader of it is known."""
        readers = self.vertices.values() if LOST in self.coordinators else ()
        return any(identity in reader.initialized.upstream for reader in readers)

    def _partition_finished(self, event: ev.PartitionFinished) -> None:
        vertex = self.vertices.get(event.vertex)
        if vertex is None or event.layout != vertex.initialized.layout:
            self.note(f"partition {event.index} of {event.vertex} ignored: its vertex or layout is unknown")
        elif not 0 <= event.index < vertex.initialized.parallelism:
            self.note(f"partition {event.index} of {event.vertex} ignored: there is no such index")
        elif event.index not in vertex.partitions:
            vertex.own_partitions()[event.index] = PartitionRecord.of(
                event.key, event.rows, event.bytes, event.checksum, event.duration, event.attempt
            )
            self.held += event.bytes
            self.most_held = max(self.most_held, self.held)

    def _partitions_reset(self, event: ev.PartitionsReset) -> None:
        vertex = self.vertices.get(event.vertex)
        if vertex is None:
            return
        if not event.indexes:
            self._forget(vertex)
        for index in event.indexes:
            record = vertex.own_partitions().pop(index, None)
            self.held -= record.bytes if record is not None else 0
        vertex.finished = False

    def _forget(self, vertex: Vertex) -> None:
        """Forget all partitions of a vertex."""
        self.held -= vertex.bytes
        vertex.partitions, vertex.shared, vertex.finished = {}, False, False

    def _vertex_finished(self, event: ev.VertexFinished) -> None:
        vertex = self.vertices.get(event.vertex)
        if vertex is None or event.layout != vertex.initialized.layout or not vertex.complete:
            self.note(f"end of {event.vertex} ignored: not all of its partitions are recorded")
            return
        vertex.finished = vertex.has_finished = True
        if event.storing_seconds:
            vertex.storing_seconds[event.epoch] = event.storing_seconds

    def _vertex_reused(self, event: ev.VertexReused) -> None:
        vertex = self.vertices.get(event.vertex)
        if vertex is not None:
            vertex.reached_by.add(event.epoch)

    def _vertex_released(self, event: ev.VertexReleased) -> None:
        vertex = self.vertices.get(event.vertex)
        if vertex is not None:
            vertex.gone = vertex.tally(event.epoch) if event.epoch in vertex.reached_by else None
            self._forget(vertex)
            vertex.released = True

    def _vertex_skipped(self, event: ev.VertexSkipped) -> None:
        self.attempts[event.epoch].skipped.append(event)

    def _failure_handled(self, event: ev.FailureHandled) -> None:
        self.attempts[event.epoch].restarts += bool(event.restarted)
        self.coordinators[RESTART_STRATEGY] = event.memory

    def _coordinator_snapshot(self, event: ev.CoordinatorSnapshot) -> None:
        self.coordinators[event.coordinator] = event.state

    def _job_finished(self, event: ev.JobFinished) -> None:
        self._end(event, JobState.FINISHED, event.store_retries)

    def _job_failed(self, event: ev.JobFailed) -> None:
        self._end(event, JobState.FAILED, event.store_retries)
        self.attempts[event.epoch].error = event.error
        self.attempts[event.epoch].unrecoverable = event.unrecoverable

    def _end(self, event: ev.JobEvent, state: JobState, store_retries: int) -> None:
        attempt = self.attempts[event.epoch]
        attempt.state, attempt.ended_at, attempt.store_retries = state, event.at, store_retries
