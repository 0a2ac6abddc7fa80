"""A driver's progress as lines of the task log, made from its events."""

from __future__ import annotations

import logging
import time

from airflow_provider.recovery import events as ev
from airflow_provider.recovery.graph import ExecutionGraph, JobState
from airflow_provider.storage.event_log import JobEventLog

_PAUSE = 5.0
"""Least seconds between two lines that count partitions."""


class Progress:
    """Reads events as they come and says what is new. Of partitions that finish it tells every few seconds only.

    :param after: attempts up to this one are history: known, but not told
    """

    def __init__(self, events: JobEventLog, log: logging.Logger, after: int = 0) -> None:
        self._events = events
        self._log = log
        self._after = after
        self._next_block = 1
        self._graph = ExecutionGraph()
        self._counted_at = 0.0

    def read(self) -> None:
        """Take what has been written since the last time.

        :raises StoreError: the store cannot be read; nothing is lost, the next call takes it
        """
        logged = self._events.read(self._next_block)
        self._next_block = logged.next_block
        for event in logged.events:
            self._graph.apply(event)
            if event.epoch > self._after:
                self._tell(event)

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
