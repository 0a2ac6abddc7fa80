"""One attempt at a job, seen from the driver: claim, reconcile, record, end. Knows no Spark.

The name is Flink's: the component that owns a job's execution graph and its recovery. Safety depends on the order of
the steps: the claim fences all earlier attempts; the first block is written only after the previous driver is gone or
has stopped; a vertex counts as finished only when its events are confirmed; the end is recorded before it is reported.
Each step is explained in ``claiming``, ``ownership``, ``reconciling``, ``recording``, ``recorded_vertices`` and
``survivors``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from typing import Any

from airflow_provider.core import events as ev
from airflow_provider.core.errors import OwnershipUnconfirmed
from airflow_provider.core.failover import FailureHandlingResult, handle_failure, kept_shuffles
from airflow_provider.core.failure import Cause
from airflow_provider.core.faults import (
    AFTER_COORDINATOR_SNAPSHOT,
    AFTER_FAILURE_HANDLED,
    AFTER_JOB_FINISHED,
    BEFORE_JOB_FINISHED,
    fault_point,
)
from airflow_provider.core.graph import RESTART_STRATEGY, JobState
from airflow_provider.core.overhead import OVERHEAD
from airflow_provider.core.report import build_report, format_report
from airflow_provider.core.restart_strategy import RestartMemory, restart_strategy
from airflow_provider.core.takeover import StartAfresh, Succeed
from airflow_provider.job.claiming import decide_alone, read_graph, wait_for_previous
from airflow_provider.job.reconciling import reconcile
from airflow_provider.job.recorded_vertices import RecordedVertices
from airflow_provider.storage.cancelling import refuse_cancelled
from airflow_provider.storage.discarding import take_notice
from airflow_provider.storage.object_store import requests_repeated

log = logging.getLogger(__name__)


class JobMaster(RecordedVertices):
    """A driver's interface to its job. Constructed like :class:`OwnedJob`."""

    # -- beginning ----------------------------------------------------------------------------------------------------

    def start(self) -> bool:
        """Claim the job and reconcile it with what earlier attempts left.

        :returns: ``False`` if the job has already succeeded without acknowledgement; then there is nothing to run
        :raises RecoveryError: the store is unusable, or another driver keeps the job
        """
        fresh = self.request.fresh
        if not self.request.supervised and not fresh:
            decision = decide_alone(self.request, self.store)
            if isinstance(decision, Succeed):
                log.info("Attempt %d of job %s has already succeeded; nothing to do.", decision.epoch, self.request.job)
                self._record.epoch, self._record.graph = decision.epoch, read_graph(self.store, self.prefix)
                return False
            if isinstance(decision, StartAfresh):
                fresh = decision.reason

        claim = self._claim()
        try:
            if self.request.supervised:
                refuse_cancelled(self.store, self.prefix, claim, self.request.previous_lost)
            wait_for_previous(self.request, self.store, claim)
            self._record.begin(claim, fresh if claim.epoch > 1 else "")
            self._reconcile()
        except BaseException:
            self.stop_heartbeat("FAILED")
            raise
        return True

    def _reconcile(self) -> None:
        self._record.add(ev.JobStateChanged(**self._now, state=JobState.RECONCILING))
        if self.epoch > 1:
            log.info("Attempt %d: RECONCILING", self.epoch)
            reconcile(self.graph, self.epoch, self._survivors, self._tracker, self.partitions_reset)
            self.release_shuffles()
        self._record.add(ev.JobStateChanged(**self._now, state=JobState.RUNNING))
        log.info("Attempt %d: RUNNING", self.epoch)

    # -- attempts -----------------------------------------------------------------------------------------------------

    @property
    def series(self) -> str:
        """The series that this attempt shares with its automatic retries; empty text if a later attempt could not tell
        that it is one.
        """
        return self.graph.attempts[self.epoch].series

    @property
    def moment(self) -> str:
        """Identifies the state of everything that functions read by themselves: the series, else this attempt.

        A person who runs a job again by hand continues it (``--fresh`` starts over), so all runs by hand share one
        moment.
        """
        return "by hand" if self.request.by_hand else self.series or f"attempt {self.epoch}"

    def only_retried_since(self, epoch: int) -> bool:
        """Whether this attempt is certainly an automatic retry of *epoch*, directly or through other retries."""
        return self.graph.only_retried_since(epoch)

    def application_started(self, application_id: str, ui_url: str) -> None:
        """Record the Spark application of this attempt."""
        self._record.add(ev.SparkApplicationStarted(**self._now, application_id=application_id, ui_url=ui_url))

    # -- failures -----------------------------------------------------------------------------------------------------

    def failed_vertex(
        self, identity: str, error: str, causes: Collection[Cause], lost: Collection[str], reached: Collection[str]
    ) -> FailureHandlingResult:
        """Decide what to restart after a failure; first store the restart strategy's counters.

        :param identity: what failed: a vertex, or an action
        :param error: the error in one line
        :param lost: vertices with unreadable stored partitions
        :param reached: recovery points that this attempt has reached, in that order
        """
        with self._record.lock:
            result = handle_failure(
                self.graph,
                identity,
                error,
                causes,
                lost=lost,
                reached=(*reached, *kept_shuffles(self.graph, self.epoch)),
                failover_strategy=self.request.options.failover_strategy,
                restart_strategy=restart_strategy(self.request.options),
                memory=RestartMemory.from_json(self.graph.coordinators.get(RESTART_STRATEGY, {})),
                now=time.time(),
            )
            self._record.add(
                ev.FailureHandled(
                    **self._now,
                    vertex=identity,
                    error=error,
                    restarted=result.vertices_to_restart,
                    refused=result.refused,
                    delay=result.delay,
                    memory=result.memory.to_json(),
                )
            )
        self._record.flush()
        fault_point(AFTER_FAILURE_HANDLED)
        return result

    # -- state that only the driver knows -----------------------------------------------------------------------------

    def coordinator(self, name: str) -> dict[str, Any] | None:
        """Return a coordinator's state."""
        state = self.graph.coordinators.get(name)
        return dict(state) if state is not None else None

    def remember(self, name: str, state: dict[str, Any]) -> bool:
        """Record a coordinator's state; return whether the store has confirmed it."""
        self.note(name, state)
        confirmed = self._record.flush()
        fault_point(AFTER_COORDINATOR_SNAPSHOT)
        return confirmed

    def remember_first(self, name: str, state: dict[str, Any]) -> None:
        """Record what a retry must know about an operation before it runs, and wait until the store has confirmed the
        record.

        If recording has ended for good, nothing is recorded and there is no wait.

        :raises Fenced: a newer attempt owns the job
        :raises OwnershipUnconfirmed: the store did not answer within ``ownership_timeout``
        """
        patience = self.request.options.ownership_timeout
        self.note(name, state)
        if not self._record.flush(patience) and self._record.outage:
            raise OwnershipUnconfirmed(
                f"The event store {self.store.uri} has not recorded within {patience:g} s what attempt {self.epoch} "
                "is about to write. Nothing was written.",
                remedy="Make the event store reachable for the driver, and retry: the job resumes.",
                epoch=self.epoch,
            )
        fault_point(AFTER_COORDINATOR_SNAPSHOT)

    def note(self, name: str, state: dict[str, Any]) -> None:
        """Record a coordinator's state without waiting for the store."""
        self._record.add(ev.CoordinatorSnapshot(**self._now, coordinator=name, state=state))

    def note_overhead(self) -> None:
        """Record the overhead of this attempt so far."""
        self.note(OVERHEAD, self.overhead.state(self.epoch))

    # -- end ----------------------------------------------------------------------------------------------------------

    def finished(self) -> None:
        """Record the success; without an operator, also acknowledge it and release the partitions."""
        fault_point(BEFORE_JOB_FINISHED)
        self.note_overhead()
        self._record.add(ev.JobFinished(**self._now, store_retries=requests_repeated()))
        confirmed = self._record.flush(self.request.options.ownership_timeout)
        fault_point(AFTER_JOB_FINISHED)
        self._succeeded = confirmed
        self._end(JobState.FINISHED)
        if confirmed:
            log.info("Attempt %d: FINISHED", self.epoch)
        else:
            log.warning("Attempt %d finished, but the event store could not record it.", self.epoch)
        if confirmed and not self.request.supervised:
            self.acknowledge()

    def failed(self, error: str, unrecoverable: bool = False) -> None:
        """Record the failure; the partitions stay for the next attempt.

        :param unrecoverable: a retry cannot help until something is changed
        """
        self.note_overhead()
        self._record.add(
            ev.JobFailed(**self._now, error=error, unrecoverable=unrecoverable, store_retries=requests_repeated())
        )
        self._record.flush()
        self._end(JobState.FAILED)
        log.error("Attempt %d: FAILED: %s", self.epoch, self.graph.attempts[self.epoch].error)  # without secrets

    def acknowledge(self) -> None:
        """Acknowledge the success: log the report, release the partitions, keep the report as a summary."""
        report = build_report(str(self.request.job), self.graph)
        log.info("%s", format_report(report))
        take_notice(self.store, self.prefix, report, log, keep=self.request.keep_partitions)

    def _end(self, state: JobState) -> None:
        self._tracker.deactivate()
        self._record.close()
        if self._heartbeat is not None:
            self._heartbeat.stop(state)
