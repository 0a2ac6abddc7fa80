"""One attempt at a job, seen from the driver: claim, reconcile, record, end. Knows no Spark.

The name is Flink's: the part of a job that owns its execution graph and its recovery. The order of the steps carries
the safety: the claim fences all earlier attempts; the first block is written only when the previous driver is gone or
has stopped; a vertex counts as finished only when its events are confirmed; the end is recorded before anybody hears
of it. How each step is done is told in ``claiming``, ``reconciling``, ``recording`` and ``survivors``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from airflow_provider.core import events as ev
from airflow_provider.core.classify import Need, classify
from airflow_provider.core.errors import Fenced, OwnershipUnconfirmed, RecoveryError, StoreError
from airflow_provider.core.failover import FailureHandlingResult, handle_failure
from airflow_provider.core.failure import Cause
from airflow_provider.core.faults import (
    AFTER_COORDINATOR_SNAPSHOT,
    AFTER_FAILURE_HANDLED,
    AFTER_JOB_FINISHED,
    AFTER_PARTITION_EVENT,
    AFTER_VERTEX_FINISHED,
    BEFORE_JOB_FINISHED,
    BEFORE_VERTEX_FINISHED,
    fault_point,
)
from airflow_provider.core.graph import RESTART_STRATEGY, ExecutionGraph, JobState, Vertex
from airflow_provider.core.partition_tracker import PartitionTracker
from airflow_provider.core.partitions import StoredPartition, finished_event
from airflow_provider.core.report import build_report, format_report
from airflow_provider.core.restart_strategy import RestartMemory, restart_strategy
from airflow_provider.core.run_request import RunRequest
from airflow_provider.core.takeover import StartAfresh, Succeed
from airflow_provider.job.claiming import decide_alone, read_graph, wait_for_previous
from airflow_provider.job.reconciling import reconcile
from airflow_provider.job.recording import JobRecord
from airflow_provider.job.survivors import Survivors
from airflow_provider.storage.acknowledgement import take_notice
from airflow_provider.storage.cancelling import refuse_cancelled
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.heartbeat import Heartbeat
from airflow_provider.storage.object_store import ObjectStore, requests_repeated
from airflow_provider.storage.partition_store import PartitionStore
from airflow_provider.storage.processes import Process

log = logging.getLogger(__name__)


class JobMaster:
    """The driver's hold on its job.

    :param request: what to run
    :param store: the object store that it names
    :param on_fenced: called once, from any thread, with the epoch that took over; should end the process
    :param jvm: the driver's JVM, as far as there is one
    """

    def __init__(
        self,
        request: RunRequest,
        store: ObjectStore,
        on_fenced: Callable[[int], None],
        jvm: Callable[[], Process | None] = lambda: None,
    ) -> None:
        self.request = request
        self.store = store
        self.prefix = request.job.prefix
        self._tracker = PartitionTracker()

        def fenced(newer: int) -> None:
            self._tracker.deactivate()
            on_fenced(newer)

        self._record = JobRecord(request, store, fenced)
        self._partitions = PartitionStore(store, self.prefix)
        self._survivors = Survivors(store, self.prefix, self.partitions_reset)
        self._succeeded = False
        self._waited_for = 0
        """The outage that a write has waited for to its patience's end."""
        self._jvm = jvm
        self._heartbeat: Heartbeat | None = None

    @property
    def graph(self) -> ExecutionGraph:
        """Everything known of the job."""
        return self._record.graph

    @property
    def epoch(self) -> int:
        """The number of this attempt."""
        return self._record.epoch

    def keep_secret(self, conf: Mapping[str, str]) -> None:
        """Leave the secrets among Spark's properties out of all that is recorded from now on."""
        self._record.keep_secret(conf)

    # -- beginning ------------------------------------------------------------------------------------------------

    def start(self) -> bool:
        """Claim the job and reconcile with what earlier attempts left.

        :returns: ``False`` if the job has already succeeded and nobody took notice; then there is nothing to run
        :raises RecoveryError: the store cannot be used, or another driver keeps the job
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

        lease = self.request.options.lease
        claim = Claims(self.store, self.prefix).claim(lease, self.request.run, self.request.options.deployment)
        self._record.epoch = claim.epoch
        log.info("Attempt %d of job %s: CREATED. Event store: %s", claim.epoch, self.request.job, self.store.uri)
        self._heartbeat = Heartbeat(
            self.store,
            self.prefix,
            claim,
            lease.interval,
            self._record.fence,
            patience=self.request.options.ownership_timeout,
            jvm=self._jvm,
        )
        self._heartbeat.start()
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
        self._record.add(ev.JobStateChanged(epoch=self.epoch, at=time.time(), state=JobState.RECONCILING))
        if self.epoch > 1:
            log.info("Attempt %d: RECONCILING", self.epoch)
            reconcile(self.graph, self.epoch, self._survivors, self._tracker, self.partitions_reset)
        self._record.add(ev.JobStateChanged(epoch=self.epoch, at=time.time(), state=JobState.RUNNING))
        log.info("Attempt %d: RUNNING", self.epoch)

    # -- what the checkpoints ask and tell ----------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Whether the store records; while it does not, the job goes on without recovery."""
        return self._record.usable

    def check(self) -> None:
        """Raise :class:`Fenced` if a newer attempt is known to own the job."""
        self._record.check()

    def check_now(self) -> None:
        """Make sure that this attempt owns the job, before something is committed outside of the store.

        Costs no request while the lease lasts; after that it waits for the store. What was to be recorded before is
        waited for in any case, once in an outage, so that a retry knows of all that this attempt writes.

        :raises Fenced: a newer attempt owns the job
        :raises OwnershipUnconfirmed: the store did not say so within ``ownership_timeout``
        """
        self.check()
        if self._heartbeat is not None:
            self._ask(self._heartbeat.confirm)
        outage = self._record.outage
        if outage and outage != self._waited_for and not self._record.flush(self.request.options.ownership_timeout):
            self._waited_for = outage

    def owned_for(self) -> float:
        """Return for how many seconds this attempt certainly owns the job; not positive if that is not certain now."""
        return self._heartbeat.left if self._heartbeat is not None else 0.0

    def check_after(self) -> None:
        """Find out, if the lease ran out while something was written, whether a newer attempt has begun meanwhile. Asks
        the store once; that it does not answer says nothing.

        :raises Fenced: a newer attempt owns the job
        """
        self.check()
        if self._heartbeat is not None and self._heartbeat.lapsed:
            with suppress(StoreError):
                self._ask(self._heartbeat.check)

    def _ask(self, whose_job: Callable[[], None]) -> None:
        """Ask who owns the job, and record that it is a newer attempt."""
        try:
            whose_job()
        except Fenced as error:
            self._record.fence(int(str(error.ids["newer"])))
            raise

    def vertex(self, identity: str) -> Vertex | None:
        """Return what is known of a vertex."""
        return self.graph.vertices.get(identity)

    def optional(self, identity: str) -> bool:
        """Whether all that is known to read the vertex is finished, so that it is not computed for its own sake."""
        with self._record.lock:
            return classify(self.graph).get(identity) is Need.OPTIONAL

    def survivors(self, identity: str) -> dict[int, StoredPartition]:
        """Return the stored partitions of a vertex that may be reused, by index."""
        vertex = self.graph.vertices.get(identity)
        if vertex is None:
            return {}
        init = vertex.initialized
        return self.survivors_of(identity, init.layout, init.parallelism, init.deterministic)

    def survivors_of(
        self, identity: str, layout: str, parallelism: int, deterministic: bool
    ) -> dict[int, StoredPartition]:
        """Like :meth:`survivors`, for a layout that the events need not know."""
        return self._survivors.of(self.graph, identity, layout, parallelism, deterministic)

    def application_started(self, application_id: str, ui_url: str, parallelism: int) -> None:
        """Record the Spark application of this attempt."""
        self._record.add(
            ev.SparkApplicationStarted(
                epoch=self.epoch,
                at=time.time(),
                application_id=application_id,
                ui_url=ui_url,
                default_parallelism=parallelism,
            )
        )

    def vertex_initialized(self, event: ev.VertexInitialized) -> None:
        """Record that a vertex with a known layout is about to run, and have that confirmed.

        From then on every partition that is stored can be placed by the next attempt, which pins the same layout.
        """
        self._record.add(event)
        self._tracker.start(event.vertex, range(event.parallelism))
        self._record.flush()

    def partition_finished(self, partition: StoredPartition) -> None:
        """Record a stored partition; saying it twice is harmless.

        One that arrives when the attempt is over is released at once: deleted if the job has succeeded; kept if it has
        failed, because the next attempt can use it; left alone if the attempt is fenced, because its owner may have
        found and used it already, and sweeps what it does not need.
        """
        vertex = self.graph.vertices[partition.vertex]
        with self._record.lock:
            if partition.epoch < self.epoch:
                self._tracker.adopt(partition.vertex, partition.index)
            elif not self._tracker.finish(partition.vertex, partition.index):
                self._record.check()
                self._release_late(partition)
                return
            if partition.index in vertex.partitions:
                return
            if partition.epoch == self.epoch:
                self._survivors.add(partition)
            self._record.add(finished_event(partition, self.epoch, time.time()))
        fault_point(AFTER_PARTITION_EVENT)

    def _release_late(self, partition: StoredPartition) -> None:
        if not self._succeeded or self.request.keep_partitions:
            return
        try:
            self._partitions.delete([partition])
        except RecoveryError as error:
            log.warning("A partition that came too late could not be released: %s", error)

    def partitions_reset(self, identity: str, indexes: tuple[int, ...], reason: str) -> None:
        """Record that partitions are computed again, with the reason; no indexes means all."""
        self._record.add(
            ev.PartitionsReset(epoch=self.epoch, at=time.time(), vertex=identity, indexes=indexes, reason=reason)
        )
        self._tracker.forget(identity, indexes)

    def partitions_recomputed(self, identity: str, indexes: tuple[int, ...], reason: str) -> None:
        """Record that partitions were computed again, whose new objects are about to be stored."""
        self.partitions_reset(identity, indexes, reason)
        self._tracker.start(identity, indexes)

    def vertex_finished(
        self,
        identity: str,
        upstream_seconds: float = 0.0,
        storing_seconds: float = 0.0,
        finishing: AbstractContextManager[None] | None = None,
    ) -> bool:
        """Seal the vertex: ``True`` once all of its events are confirmed by the store (Flink's ``cutBlock``).

        :param upstream_seconds: wall time that the shuffles below took
        :param storing_seconds: task time that went into storing
        :param finishing: around the event, but not around the wait for the store; it may raise, then nothing is sealed
        """
        fault_point(BEFORE_VERTEX_FINISHED)
        with finishing or nullcontext():
            self._record.add(
                ev.VertexFinished(
                    epoch=self.epoch,
                    at=time.time(),
                    vertex=identity,
                    layout=self.graph.vertices[identity].initialized.layout,
                    upstream_seconds=round(upstream_seconds, 3),
                    storing_seconds=round(storing_seconds, 3),
                )
            )
        confirmed = self._record.flush(self.request.options.ownership_timeout)
        fault_point(AFTER_VERTEX_FINISHED)
        return confirmed

    def vertex_reused(self, identity: str) -> None:
        """Record that all of a vertex was kept."""
        layout = self.graph.vertices[identity].initialized.layout
        self._record.add(ev.VertexReused(epoch=self.epoch, at=time.time(), vertex=identity, layout=layout))

    def vertex_skipped(self, name: str, reason: str) -> None:
        """Record that a recovery point stores nothing, and why."""
        self._record.add(ev.VertexSkipped(epoch=self.epoch, at=time.time(), name=name, reason=reason))

    # -- failures ---------------------------------------------------------------------------------------------------

    def give_up(self, partition: StoredPartition) -> bool:
        """Never use a stored partition again that cannot be read; return whether it was one of this job's vertices."""
        self._survivors.discard(self.graph, partition.vertex, [partition])
        return partition.vertex in self.graph.vertices

    def start_over(self, identity: str, reason: str) -> None:
        """Give up all partitions of a vertex."""
        self._survivors.forget(identity)
        self.partitions_reset(identity, (), reason)

    def failed_vertex(
        self, identity: str, error: str, causes: Collection[Cause], lost: Collection[str], reached: Collection[str]
    ) -> FailureHandlingResult:
        """Decide what is restarted after a failure; what the restart strategy counts is in the store before that.

        :param error: it, in one line
        :param lost: vertices of which stored partitions cannot be read any more
        :param reached: vertices that this attempt has come to, in that order
        """
        with self._record.lock:
            result = handle_failure(
                self.graph,
                identity,
                error,
                causes,
                lost=lost,
                reached=reached,
                failover_strategy=self.request.options.failover_strategy,
                restart_strategy=restart_strategy(self.request.options),
                memory=RestartMemory.from_json(self.graph.coordinators.get(RESTART_STRATEGY, {})),
                now=time.time(),
            )
            self._record.add(
                ev.FailureHandled(
                    epoch=self.epoch,
                    at=time.time(),
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

    # -- what the driver alone knows ----------------------------------------------------------------------------------

    def coordinator(self, name: str) -> dict[str, Any] | None:
        """Return what is remembered under a coordinator's name."""
        state = self.graph.coordinators.get(name)
        return dict(state) if state is not None else None

    def remember(self, name: str, state: dict[str, Any]) -> bool:
        """Record what the driver alone knows; whether the store has confirmed it."""
        self.note(name, state)
        confirmed = self._record.flush()
        fault_point(AFTER_COORDINATOR_SNAPSHOT)
        return confirmed

    def remember_first(self, name: str, state: dict[str, Any]) -> None:
        """Record what a retry has to know of something before it is done, and wait until the store has confirmed that.

        A store that has failed for good records nothing, and then nothing is waited for.

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
        """Record what the driver alone knows, without waiting for the store."""
        self._record.add(ev.CoordinatorSnapshot(epoch=self.epoch, at=time.time(), coordinator=name, state=state))

    # -- end --------------------------------------------------------------------------------------------------------

    def finished(self) -> None:
        """Record the success; without an operator also acknowledge it and release the partitions."""
        fault_point(BEFORE_JOB_FINISHED)
        self._record.add(ev.JobFinished(epoch=self.epoch, at=time.time(), store_retries=requests_repeated()))
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

        :param unrecoverable: no retry can help until somebody changes something
        """
        self._record.add(
            ev.JobFailed(
                epoch=self.epoch,
                at=time.time(),
                error=error,
                unrecoverable=unrecoverable,
                store_retries=requests_repeated(),
            )
        )
        self._record.flush()
        self._end(JobState.FAILED)
        log.error("Attempt %d: FAILED: %s", self.epoch, self.graph.attempts[self.epoch].error)  # without secrets

    def acknowledge(self) -> None:
        """Take notice of the success: log the report, release the partitions, keep the report as a summary."""
        report = build_report(str(self.request.job), self.graph)
        log.info("%s", format_report(report))
        take_notice(self.store, self.prefix, report, log, keep=self.request.keep_partitions)

    def mark_corrupt(self, key: str) -> None:
        """Note in the store that an object is damaged, so that the next attempt computes it again."""
        partition = StoredPartition.from_key(key, 0)
        if partition is not None:
            self._partitions.mark_corrupt(partition)

    def _end(self, state: JobState) -> None:
        self._tracker.deactivate()
        self._record.close()
        if self._heartbeat is not None:
            self._heartbeat.stop(state)

    def stop_heartbeat(self, state: str) -> None:
        """Write the last heartbeat of a driver that stops in *state*; never raises."""
        if self._heartbeat is not None:
            try:
                self._heartbeat.stop(state)
            except RecoveryError as error:
                log.warning("The last heartbeat could not be written: %s", error)
