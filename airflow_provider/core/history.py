"""A job's history for people: the newest events as sentences, and the partitions that were lost.

A fold beside the graph, which sees each event before the graph does. Pure; its size is bounded for any job.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider.core import events as ev
from airflow_provider.core.failover import ACTION
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.unfinished_write import (
    ON_THIS_MACHINE,
    REPEATED,
    RETURNED,
    SINK,
    TAKEN_BACK,
    UNKNOWN,
    UNKNOWN_SINK,
    WRITTEN,
)

KEPT_EVENTS = 60
KEPT_RESETS = 20
"""Resets that are kept of each vertex."""
_OUTPUTS = (SINK, UNKNOWN_SINK, ev.CHECKPOINT)
_RESULTS = (ev.STEP, ev.STREAMING, ev.SOURCE)
_ENDS = (WRITTEN, ON_THIS_MACHINE, REPEATED, UNKNOWN, TAKEN_BACK, RETURNED)
"""Statuses of writes that are over."""


def sentence(event: ev.JobEvent, name: Callable[[str], str]) -> tuple[int, str] | None:
    """Return the level (of :mod:`logging`) and the text of *event*; ``None`` for events that are not shown on their
    own.

    :param name: returns a vertex's display name for its identity
    """
    match event:
        case ev.AttemptStarted():
            return logging.INFO, f"Attempt {event.epoch} has started on {event.host or 'an unknown host'}"
        case ev.JobStateChanged():
            return logging.INFO, f"Attempt {event.epoch}: {event.state}"
        case ev.SparkApplicationStarted():
            return logging.INFO, f"Spark application {event.application_id} {event.ui_url}".rstrip()
        case ev.VertexInitialized():
            return (
                logging.INFO,
                f"recovery point {event.name!r}: {event.parallelism} partition{'s' * (event.parallelism != 1)}",
            )
        case ev.VertexFinished():
            return logging.INFO, f"recovery point {name(event.vertex)!r}: finished"
        case ev.VertexReused():
            return logging.INFO, f"recovery point {name(event.vertex)!r}: reused as a whole"
        case ev.VertexReleased():
            return logging.INFO, f"recovery point {name(event.vertex)!r}: released, because all that reads it is stored"
        case ev.VertexSkipped():
            return logging.WARNING, f"recovery point {event.name!r} skipped because {event.reason}"
        case ev.FailureHandled():
            answer = f"vertices restarted: {len(event.restarted)}" if event.restarted else event.refused
            action = event.vertex.removeprefix(ACTION)
            failed = action if event.vertex.startswith(ACTION) else f"recovery point {name(event.vertex)!r}"
            return logging.WARNING, f"{failed} failed: {event.error}; {answer}"
        case ev.CoordinatorSnapshot(coordinator=source, state={"reason": str(reason)}) if source.startswith(ev.SOURCE):
            return logging.WARNING, f"{source}: pinned anew within the attempt: {reason}"
        case ev.CoordinatorSnapshot():
            return _of_output(event.state) if event.coordinator.startswith(_OUTPUTS) else _of_result(event)
        case ev.JobFinished():
            return logging.INFO, f"Attempt {event.epoch}: FINISHED"
        case ev.JobFailed():
            return logging.ERROR, f"Attempt {event.epoch}: FAILED: {event.error}"
    return None


def _of_output(state: Any) -> tuple[int, str] | None:
    """Return the sentence about a write: once it has returned, or is taken back."""
    title, status = (state.get("title"), state.get("status")) if isinstance(state, Mapping) else (None, None)
    if not title or status not in _ENDS:
        return None
    return logging.INFO, f"output {title}: {'taken back' if status == TAKEN_BACK else 'written'}"


def _of_result(event: ev.CoordinatorSnapshot) -> tuple[int, str] | None:
    """Return the sentence about what runs once per job; ``None`` for what recovery remembers for itself."""
    begun = isinstance(event.state, Mapping) and event.state.get("status") == "RUNNING"
    shown = event.coordinator.startswith(_RESULTS) and not begun
    return (logging.INFO, f"{event.coordinator}: kept") if shown else None


@dataclass(frozen=True)
class Told:
    """One entry of a job's history.

    :ivar at: seconds since the Unix epoch, of the first event that it covers
    :ivar until: the same, of the last one
    :ivar level: a level of :mod:`logging`
    :ivar counted: identity of the vertex whose partitions this entry counts; empty text otherwise
    """

    at: float
    until: float
    epoch: int
    level: int
    text: str
    counted: str = ""
    count: int = 1


@dataclass(frozen=True)
class Reset:
    """Stored partitions that had to be given up."""

    at: float
    epoch: int
    partitions: int
    reason: str


class JobHistory:
    """The history of one job, as far as its events still exist; a snapshot does not contain it."""

    def __init__(self) -> None:
        self.events: deque[Told] = deque(maxlen=KEPT_EVENTS)
        self.resets: dict[str, deque[Reset]] = {}
        self.lost: dict[str, set[int]] = {}
        """By vertex, indexes that were stored once and were given up; those that are stored again are still in it."""

    def clear(self) -> None:
        """Forget everything."""
        self.events.clear()
        self._forget()

    def _forget(self) -> None:
        self.resets.clear()
        self.lost.clear()

    def observe(self, event: ev.JobEvent, graph: ExecutionGraph) -> None:
        """Add *event*; *graph* is the job's graph before it."""
        newest = graph.newest
        if isinstance(event, ev.AttemptStarted):
            if newest is not None and event.epoch <= newest.epoch:
                return
            if event.fresh:
                self._forget()
        elif newest is None or event.epoch != newest.epoch:
            return  # from a fenced driver; the graph ignores it

        def name(identity: str) -> str:
            vertex = graph.vertices.get(identity)
            return vertex.initialized.name if vertex is not None else identity

        if isinstance(event, ev.PartitionFinished):
            self._count(event, name(event.vertex))
            return
        if isinstance(event, ev.PartitionsReset):
            self._reset(event, graph)
            gone = "all partitions" if not event.indexes else f"{len(event.indexes):,} partitions"
            self._tell(
                event, logging.WARNING, f"recovery point {name(event.vertex)!r}: {gone} given up: {event.reason}"
            )
            return
        if isinstance(event, ev.VertexInitialized):
            known = graph.vertices.get(event.vertex)
            if known is not None and known.initialized.layout != event.layout:
                self.lost.pop(event.vertex, None)
        told = sentence(event, name)
        if told is not None:
            self._tell(event, *told)

    def _tell(self, event: ev.JobEvent, level: int, text: str) -> None:
        self.events.append(Told(event.at, event.at, event.epoch, level, text))

    def _count(self, event: ev.PartitionFinished, name: str) -> None:
        last = self.events[-1] if self.events else None
        if last is not None and (last.counted, last.epoch) == (event.vertex, event.epoch):
            count = last.count + 1
            self.events[-1] = replace(
                last, until=event.at, count=count, text=f"recovery point {name!r}: {count:,} partitions stored"
            )
            return
        text = f"recovery point {name!r}: 1 partition stored"
        self.events.append(Told(event.at, event.at, event.epoch, logging.INFO, text, counted=event.vertex))

    def _reset(self, event: ev.PartitionsReset, graph: ExecutionGraph) -> None:
        vertex = graph.vertices.get(event.vertex)
        if vertex is None:
            return
        gone = set(event.indexes or vertex.partitions) & vertex.partitions.keys()
        self.lost.setdefault(event.vertex, set()).update(gone)
        kept = self.resets.setdefault(event.vertex, deque(maxlen=KEPT_RESETS))
        kept.append(Reset(event.at, event.epoch, len(gone), event.reason))
