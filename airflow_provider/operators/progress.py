"""A driver's progress as lines of the task log, made from its events."""

from __future__ import annotations

import logging
import time

from airflow_provider.recovery import events as ev
from airflow_provider.recovery.graph import ExecutionGraph, JobState
from airflow_provider.storage.event_log import JobEventLog, LoggedEvents

_PAUSE = 5.0
"""Least seconds between two lines that count partitions."""
_IDLE_LOOKS = 15
"""After how many looks that found nothing new the whole store is looked at."""


class Progress:
    """Reads events as they come and says what is new. Of partitions that finish it tells every few seconds only.

    :param after: attempts up to this one are history: known, but not told
    """

    def __init__(self, events: JobEventLog, log: logging.Logger, after: int = 0) -> None:
        self._events = events
        self._log = log
        self._after = after
        self._next_block = 0
        self._idle = 0
        self._graph = ExecutionGraph()
        self._counted_at = 0.0

    def read(self) -> None:
        """Take what has been written since the last time.

        :raises StoreError: the store cannot be read; nothing is lost, the next call takes it
        """
        if self._next_block == 0:
            logged = self._events.load()
            self._graph = logged.base()
        else:
            logged = self._events.read(self._next_block)
            if not logged.events:
                logged = self._look_beyond(logged)
        self._next_block = logged.next_block
        for event in logged.events:
            self._graph.apply(event)
            if event.epoch > self._after:
                self._tell(event)

    def _look_beyond(self, nothing: LoggedEvents) -> LoggedEvents:
        """Now and then look whether the next block is only missing because a snapshot has replaced it already."""
        self._idle += 1
        if self._idle % _IDLE_LOOKS:
            return nothing
        logged = self._events.load()
        if logged.snapshot is None or logged.snapshot.number <= self._next_block:
            return nothing
        self._graph = logged.base()
        return logged

    def state(self, epoch: int) -> JobState:
        """Return how far an attempt has come; ``CREATED`` if it has recorded nothing."""
        attempt = self._graph.attempts.get(epoch)
        return attempt.state if attempt is not None else JobState.CREATED

    def _tell(self, event: ev.JobEvent) -> None:
        match event:
            case ev.AttemptStarted():
                self._log.info("Attempt %d has started on %s", event.epoch, event.host or "an unknown host")
            case ev.JobStateChanged():
                self._log.info("Attempt %d: %s", event.epoch, event.state)
            case ev.SparkApplicationStarted():
                self._log.info("Spark application %s %s", event.application_id, event.ui_url)
            case ev.VertexInitialized():
                self._log.info("checkpoint %r: %d partitions", event.name, event.parallelism)
            case ev.PartitionFinished():
                self._count(event)
            case ev.VertexFinished():
                self._log.info("checkpoint %r: finished", self._name(event.vertex))
            case ev.VertexReused():
                self._log.info("checkpoint %r: reused as a whole", self._name(event.vertex))
            case ev.VertexSkipped():
                self._log.warning("checkpoint %r is not stored: %s", event.name, event.reason)
            case ev.FailureHandled():
                answer = f"vertices restarted: {len(event.restarted)}" if event.restarted else event.refused
                self._log.warning("checkpoint %r failed: %s; %s", self._name(event.vertex), event.error, answer)
            case ev.CoordinatorSnapshot():
                self._log.info("%s: kept", event.coordinator)
            case ev.JobFinished():
                self._log.info("Attempt %d: FINISHED", event.epoch)
            case ev.JobFailed():
                self._log.error("Attempt %d: FAILED: %s", event.epoch, event.error)

    def _count(self, event: ev.PartitionFinished) -> None:
        vertex = self._graph.vertices.get(event.vertex)
        if vertex is None or time.monotonic() - self._counted_at < _PAUSE:
            return
        self._counted_at = time.monotonic()
        done, all_of_them = len(vertex.partitions), vertex.initialized.parallelism
        self._log.info("checkpoint %r: %d of %d partitions stored", vertex.initialized.name, done, all_of_them)

    def _name(self, identity: str) -> str:
        vertex = self._graph.vertices.get(identity)
        return vertex.initialized.name if vertex is not None else identity
