"""The worker's view of a job: what became of the last attempt, following a living driver, taking notice of the end."""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable
from typing import Any

from airflow_provider.operators.progress import Progress
from airflow_provider.recovery.errors import ObjectNotFound, RecoveryError
from airflow_provider.recovery.graph import ExecutionGraph, JobState
from airflow_provider.recovery.job import JobId
from airflow_provider.recovery.options import RecoveryOptions
from airflow_provider.recovery.replay import replay
from airflow_provider.recovery.report import JobReport, build_report
from airflow_provider.recovery.takeover import LastAttempt
from airflow_provider.storage.claims import Claim, Claims, process_is_gone
from airflow_provider.storage.event_store import JobEventLog
from airflow_provider.storage.heartbeat import heartbeat_key, watch
from airflow_provider.storage.inspection import look_at_last
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.partition_store import PartitionStore

_POLL = 2.0
"""Seconds between two looks at a job that is followed."""


class Ending(enum.Enum):
    """How a driver that was followed came to its end."""

    FINISHED = "finished"
    FAILED = "failed"
    LOST = "lost"


class JobSupervisor:
    """Looks after one job from Airflow's side; never starts anything.

    :param log: the task's log
    """

    def __init__(self, store: ObjectStore, job: JobId, options: RecoveryOptions, log: logging.Logger) -> None:
        self._store = store
        self._job = job
        self._prefix = job.prefix
        self._options = options
        self._log = log
        self._claims = Claims(store, self._prefix)
        self._events = JobEventLog(store, self._prefix)

    def last_attempt(self) -> LastAttempt | None:
        """Return what became of the newest attempt, watching its heartbeat if it did not say; ``None`` without one.

        :raises StoreError: the store cannot be read
        """
        claim = self._claims.newest()
        if claim is None:
            return None
        return look_at_last(self._claims, claim, self.replay(), lives=lambda: self._lives(claim))

    def _lives(self, claim: Claim) -> bool:
        who = f"Attempt {claim.epoch} (process {claim.pid} on {claim.host or 'an unknown host'})"
        if process_is_gone(claim):
            self._log.info("%s is gone.", who)
            return False
        timeout = self._options.previous_worker_recovery_timeout
        self._log.info("%s did not say how it ended; watching its heartbeat for up to %g s.", who, timeout)
        return watch(self._store, self._prefix, claim.epoch, timeout)

    def replay(self) -> ExecutionGraph:
        """Return the job's execution graph as its events tell it."""
        logged = self._events.read()
        for problem in logged.problems:
            self._log.warning("Job event store: %s", problem)
        return replay(logged.events)

    def follow(self, epoch: int, cancelled: Callable[[], bool]) -> Ending:
        """Log the progress of a living driver until it ends or is lost.

        :param cancelled: asked between two looks; when it says so the driver counts as lost
        """
        progress = Progress(self._log)
        claim = self._claims.get(epoch)
        next_block = 1
        beat, beat_seen = b"", time.monotonic()
        while not cancelled():
            logged = self._events.read(next_block)
            next_block = logged.next_block
            for event in logged.events:
                progress.tell(event)
            state = progress.graph.attempts[epoch].state if epoch in progress.graph.attempts else JobState.CREATED
            if state.terminal:
                return Ending.FINISHED if state is JobState.FINISHED else Ending.FAILED
            newest = self._beat(epoch)
            if newest != beat:
                beat, beat_seen = newest, time.monotonic()
            silent = time.monotonic() - beat_seen > self._options.previous_worker_recovery_timeout
            if silent or (claim is not None and process_is_gone(claim) and not self._events.read(next_block).events):
                return Ending.LOST
            time.sleep(_POLL)
        return Ending.LOST

    def _beat(self, epoch: int) -> bytes:
        try:
            return self._store.get(heartbeat_key(self._prefix, epoch))
        except ObjectNotFound:
            return b""

    def claim(self, epoch: int) -> Claim | None:
        """Return the claim of an attempt."""
        return self._claims.get(epoch)

    def report(self) -> JobReport:
        """Return the report of the job as it stands."""
        return build_report(str(self._job), self.replay())

    def acknowledge(self, report: JobReport) -> None:
        """Take notice of the job's success, and release its partitions; a failing store is a warning only."""
        try:
            self._claims.acknowledge(report.attempts[-1].epoch, report.to_dict())
            PartitionStore(self._store, self._prefix).release()
        except RecoveryError as error:
            self._log.warning("The job succeeded, but its event store could not be tidied up: %s", error)


def kept(report: JobReport) -> dict[str, Any]:
    """Return, by vertex, how many of its partitions are stored for the next try."""
    return {
        vertex.name: f"{vertex.partitions - vertex.missing} of {vertex.partitions}"
        for vertex in report.vertices
        if vertex.reached
    }
