"""A driver's progress as lines of the task log, made from its events."""

from __future__ import annotations

import logging
import time

from airflow_provider.recovery import events as ev
from airflow_provider.recovery.graph import ExecutionGraph

_PAUSE = 5.0
"""Least seconds between two lines that count partitions."""


class Progress:
    """Folds events and says what is new. Of many partitions that finish it tells every few seconds only."""

    def __init__(self, log: logging.Logger) -> None:
        self.graph = ExecutionGraph()
        self._log = log
        self._counted_at = 0.0

    def tell(self, event: ev.JobEvent) -> None:
        """Take one event; log it if a person would want to know."""
        self.graph.apply(event)
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
        vertex = self.graph.vertices.get(event.vertex)
        if vertex is None or time.monotonic() - self._counted_at < _PAUSE:
            return
        self._counted_at = time.monotonic()
        done, all_of_them = len(vertex.partitions), vertex.initialized.parallelism
        self._log.info("checkpoint %r: %d of %d partitions stored", vertex.initialized.name, done, all_of_them)

    def _name(self, identity: str) -> str:
        vertex = self.graph.vertices.get(identity)
        return vertex.initialized.name if vertex is not None else identity
