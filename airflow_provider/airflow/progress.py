"""Turn a driver's events into progress lines of the task log."""

from __future__ import annotations

import logging
import time

from airflow_provider.core import events as ev
from airflow_provider.core.graph import ExecutionGraph, JobState
from airflow_provider.core.history import sentence
from airflow_provider.core.savings import not_reusable, retry_savings, savings_text, work_so_far
from airflow_provider.core.task_time import TASK_TIME
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.follower import JobFollower

_PAUSE = 5.0
"""Least seconds between two lines that count partitions."""
_SHARE_PAUSE = 300.0
"""Least seconds between two lines that say which share of the work a retry would keep."""


class Progress:
    """Reads events as they come and logs what is new. Logs counts of finished partitions only every few seconds.

    :param after: attempts up to this one are history: read, but not logged
    :param peek_every: see :class:`airflow_provider.storage.follower.JobFollower`
    """

    def __init__(self, events: JobEventLog, log: logging.Logger, after: int = 0, peek_every: int = 0) -> None:
        self._follower = JobFollower(events, after=self._tell, begin=self._catch_up, peek_every=peek_every)
        self._ended: set[str] = set()
        self._log = log
        self._first = after + 1
        self._counted_at = 0.0
        self._share_at = time.monotonic()

    def read(self) -> None:
        """Read and log the events written since the last call.

        :raises StoreError: the store cannot be read; nothing is lost, the next call continues
        """
        self._follower.read()

    def state(self, epoch: int) -> JobState:
        """Return the state of an attempt; ``CREATED`` if it has recorded nothing."""
        attempt = self._follower.graph.attempts.get(epoch)
        return attempt.state if attempt is not None else JobState.CREATED

    def application_id(self, epoch: int) -> str:
        """Return Spark's id of the attempt's application; empty text before its first recovery point."""
        attempt = self._follower.graph.attempts.get(epoch)
        return attempt.application_id if attempt is not None else ""

    def _tell(self, event: ev.JobEvent) -> None:
        if event.epoch < self._first:
            return
        if isinstance(event, ev.VertexFinished | ev.VertexReused):
            self._ended.add(event.vertex)
        if isinstance(event, ev.PartitionFinished):
            self._count(event)
        elif isinstance(event, ev.CoordinatorSnapshot) and event.coordinator == TASK_TIME:
            self._tell_share()
        elif (told := sentence(event, self._name)) is not None:
            self._log.log(told[0], "%s", told[1])

    def _catch_up(self, graph: ExecutionGraph) -> None:
        """Log the vertices of a snapshot that has replaced their events between two looks."""
        for identity, vertex in graph.vertices.items():
            if identity not in self._ended and vertex.finished and max(vertex.reached_by, default=0) >= self._first:
                self._ended.add(identity)
                self._log.info("recovery point %r: finished", vertex.initialized.name)

    def _count(self, event: ev.PartitionFinished) -> None:
        vertex = self._follower.graph.vertices.get(event.vertex)
        if vertex is None or time.monotonic() - self._counted_at < _PAUSE:
            return
        self._counted_at = time.monotonic()
        done, all_of_them = len(vertex.partitions), vertex.initialized.parallelism
        self._log.info("recovery point %r: %d of %d partitions stored", vertex.initialized.name, done, all_of_them)

    def _tell_share(self) -> None:
        graph = self._follower.graph
        if time.monotonic() - self._share_at < _SHARE_PAUSE or graph.newest is None:
            return
        self._share_at = time.monotonic()
        because = not_reusable(graph)
        retry = retry_savings(graph, because, work_so_far(graph, because))
        if retry.work is not None:
            self._log.info("%s", savings_text(retry, graph.newest.state))

    def _name(self, identity: str) -> str:
        vertex = self._follower.graph.vertices.get(identity)
        return vertex.initialized.name if vertex is not None else identity
