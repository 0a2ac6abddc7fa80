"""One attempt at a job, seen from the driver: claim, reconcile, record, end. Knows no Spark.

The name is Flink's: the part of a job that owns its execution graph and its recovery. The order of the steps carries
the safety: the claim fences all earlier attempts; the first block is written only when the previous driver is gone or
has stopped; a vertex counts as finished only when its events are confirmed; the end is recorded before anybody hears
of it. How each step is done is told in ``claiming``, ``ownership``, ``reconciling``, ``recording`` and ``survivors``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypedDict

from airflow_provider.core import events as ev
from airflow_provider.core.classify import Need, classify
from airflow_provider.core.errors import OwnershipUnconfirmed, RecoveryError
from airflow_provider.core.failover import FailureHandlingResult, handle_failure, kept_shuffles
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
from airflow_provider.core.graph import RESTART_STRATEGY, JobState, Vertex
from airflow_provider.core.overhead import OVERHEAD
from airflow_provider.core.partition_tracker import PartitionTracker
from airflow_provider.core.partitions import StoredPartition, finished_event
from airflow_provider.core.quantities import bytes_text
from airflow_provider.core.readers import needed_no_more, shuffles_of_written_outputs
from airflow_provider.core.report import build_report, format_report
from airflow_provider.core.restart_strategy import RestartMemory, restart_strategy
from airflow_provider.core.run_request import RunRequest
from airflow_provider.core.store_budget import room_for
from airflow_provider.core.takeover import StartAfresh, Succeed
from airflow_provider.job.claiming import decide_alone, read_graph, wait_for_previous
from airflow_provider.job.ownership import OwnedJob
from airflow_provider.job.reconciling import reconcile
from airflow_provider.job.survivors import Survivors
from airflow_provider.job.unneeded import Unneeded
from airflow_provider.storage.acknowledgement import take_notice
from airflow_provider.storage.cancelling import refuse_cancelled
from airflow_provider.storage.object_store import ObjectStore, requests_repeated
from airflow_provider.storage.partition_store import PartitionStore
from airflow_provider.storage.processes import Process

log = logging.getLogger(__name__)


class _Stamp(TypedDict):
    """What all events say: who, and when."""

    epoch: int
    at: float


class JobMaster(OwnedJob):
    """What a driver asks of its job, and tells of it. It is made as :class:`OwnedJob` is."""

    def __init__(
        self,
        request: RunRequest,
        store: ObjectStore,
        on_fenced: Callable[[int], None],
        jvm: Callable[[], Process | None] = lambda: None,
    ) -> None:
        self._tracker = PartitionTracker()

        def fenced(newer: int) -> None:
            self._tracker.deactivate()
            on_fenced(newer)

        super().__init__(request, store, fenced, jvm)
        self._partitions = PartitionStore(store, self.prefix)
        self._survivors = Survivors(store, self.prefix, self.partitions_reset)
        self._unneeded = Unneeded(self._partitions, self._record)
        self._succeeded = False

    @property
    def _now(self) -> _Stamp:
        return {"epoch": self.epoch, "at": time.time()}

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

    # -- what the checkpoints ask and tell ----------------------------------------------------------------------

    def vertex(self, identity: str) -> Vertex | None:
        """Return what is known of a vertex."""
        return self.graph.vertices.get(identity)

    @property
    def tells_retries(self) -> bool:
        """Whether a later attempt can tell that it is an automatic retry of this one."""
        return bool(self.graph.attempts[self.epoch].series)

    def only_retried_since(self, epoch: int) -> bool:
        """Whether this attempt certainly is an automatic retry of *epoch*, or of one that was."""
        return self.graph.only_retried_since(epoch)

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

    def application_started(self, application_id: str, ui_url: str) -> None:
        """Record the Spark application of this attempt."""
        self._record.add(ev.SparkApplicationStarted(**self._now, application_id=application_id, ui_url=ui_url))

    def vertex_initialized(self, event: ev.VertexInitialized) -> None:
        """Record that a vertex with a known layout is about to run, and have that confirmed.

        From then on every partition that is stored can be placed by the next attempt, which pins the same layout.
        """
        self._record.add(event)
        self._tracker.start(event.vertex, range(event.parallelism))
        self._record.flush()

    def partition_finished(self, partition: StoredPartition, *, again: bool = False) -> None:
        """Record a stored partition; saying it twice is harmless.

        One that arrives when the attempt is over is released at once: deleted if the job has succeeded; kept if it has
        failed, because the next attempt can use it; left alone if the attempt is fenced, because its owner may have
        found and used it already, and sweeps what it does not need.

        :param again: Spark has run this task before, which may have stored something without saying so
        """
        vertex = self.graph.vertices[partition.vertex]
        with self._record.lock:
            if again:
                self._unneeded.ran_again(partition.vertex)
            if partition.epoch < self.epoch:
                self._tracker.adopt(partition.vertex, partition.index)
            elif not self._tracker.finish(partition.vertex, partition.index):
                self._record.check()
                self._release_late(partition)
                return
            if partition.index in vertex.partitions:
                if vertex.partitions[partition.index].key != partition.key:
                    self.partition_replaced(partition)
                return
            if partition.epoch == self.epoch:
                self._survivors.add(partition)
            self._record.add(finished_event(partition, self.epoch, time.time()))
        fault_point(AFTER_PARTITION_EVENT)

    def partition_replaced(self, partition: StoredPartition) -> None:
        """Another object counts for a stored partition, or will: this one goes when the vertex is stored."""
        self._unneeded.replace(partition.vertex, [partition])

    def _release_late(self, partition: StoredPartition) -> None:
        if not self._succeeded or self.request.keep_partitions:
            return
        try:
            self._partitions.delete([partition])
        except RecoveryError as error:
            log.warning("A partition that came too late could not be released: %s", error)

    def partitions_reset(self, identity: str, indexes: tuple[int, ...], reason: str) -> None:
        """Record that partitions are computed again, with the reason; no indexes means all."""
        self._record.add(ev.PartitionsReset(**self._now, vertex=identity, indexes=indexes, reason=reason))
        self._tracker.forget(identity, indexes)

    def partitions_recomputed(self, identity: str, indexes: tuple[int, ...], reason: str) -> None:
        """Record that partitions were computed again, whose new objects are about to be stored."""
        with self._record.lock:
            self._unneeded.replace(identity, self._survivors.forget(identity, indexes))
        self.partitions_reset(identity, indexes, reason)
        self._tracker.start(identity, indexes)

    def vertex_finished(
        self,
        identity: str,
        storing_seconds: float = 0.0,
        finishing: AbstractContextManager[None] | None = None,
    ) -> bool:
        """Seal the vertex: ``True`` once all of its events are confirmed by the store (Flink's ``cutBlock``).

        :param storing_seconds: task time that went into storing
        :param finishing: around the event, but not around the wait for the store; it may raise, then nothing is sealed
        """
        fault_point(BEFORE_VERTEX_FINISHED)
        with finishing or nullcontext():
            self._record.add(
                ev.VertexFinished(
                    **self._now,
                    vertex=identity,
                    layout=self.graph.vertices[identity].initialized.layout,
                    storing_seconds=round(storing_seconds, 3),
                )
            )
        confirmed = self._record.flush(self.request.options.ownership_timeout)
        fault_point(AFTER_VERTEX_FINISHED)
        with self._record.lock:
            kept = {record.key for record in self.graph.vertices[identity].partitions.values()}
            self._unneeded.stored(identity, kept)
        return confirmed

    def vertex_reused(self, identity: str) -> None:
        """Record that all of a vertex was kept."""
        layout = self.graph.vertices[identity].initialized.layout
        self._record.add(ev.VertexReused(**self._now, vertex=identity, layout=layout))

    def vertex_skipped(self, name: str, reason: str) -> None:
        """Record that a recovery point stores nothing, and why."""
        self._record.add(ev.VertexSkipped(**self._now, name=name, reason=reason))

    # -- what goes while the job runs ---------------------------------------------------------------------------------

    def needed_no_more(self) -> list[str]:
        """Return the stored vertices of the script that all known readers need no more."""
        with self._record.lock:
            return [] if self.request.keep_partitions else needed_no_more(self.graph)

    def release(self, identity: str) -> bool:
        """Let a vertex go that the script can name no more; return whether that is still right."""
        with self._record.lock:
            right = identity in self.needed_no_more()
            if right:
                self._unneeded.add(self._released(identity))
            return right

    def release_shuffles(self) -> list[str]:
        """Let the kept shuffles go that a retry needs no more; return which ones these are."""
        with self._record.lock:
            found = [] if self.request.keep_partitions else shuffles_of_written_outputs(self.graph)
            for identity in found:
                self._unneeded.add(self._released(identity))
            return found

    def make_room(self, size: int, worth: float, needed: Collection[str]) -> list[str] | None:
        """Let kept shuffles go, so that *size* bytes more are within the job's ``store_budget``; return which.

        The parameters and the result are those of :func:`airflow_provider.core.store_budget.room_for`.
        """
        budget = self.request.options.store_budget
        with self._record.lock:
            going = room_for(self.graph, self.epoch, budget, size, worth, needed)
            for identity in going or ():
                reason = f"given up for a shuffle that saves more (store_budget={bytes_text(budget)})"
                self._unneeded.add(self.start_over(identity, reason))
                log.info("%s: %s", self.graph.vertices[identity].initialized.name, reason)
            return going

    def _released(self, identity: str) -> list[StoredPartition]:
        """Record that nothing needs a vertex any more; return its objects."""
        vertex = self.graph.vertices[identity]
        if vertex.missing:
            self._tracker.forget(identity, vertex.missing)
        self._tracker.release(identity)
        self._record.add(ev.VertexReleased(**self._now, vertex=identity))
        log.info("%s: released, because all that reads it is stored", vertex.initialized.name)
        return self._survivors.forget(identity)

    def delete_unneeded(self) -> None:
        """Delete what nothing needs any more, once the store has confirmed that this is recorded.

        :raises Fenced: a newer attempt owns the job
        """
        self._unneeded.delete(self.owned_for())

    # -- failures ---------------------------------------------------------------------------------------------------

    def give_up(self, key: str) -> str:
        """Never use a stored partition again that cannot be read; return its vertex, empty text if it is none of this
        job's.

        :param key: of the partition or of the object that holds its content
        """
        partition = self._survivors.named(key)
        if partition is None:
            return ""
        self._survivors.discard(self.graph, partition.vertex, [partition])
        return partition.vertex if partition.vertex in self.graph.vertices else ""

    def start_over(self, identity: str, reason: str) -> list[StoredPartition]:
        """Give up all partitions of a vertex; return what of them is in the store, under whichever layout."""
        stored = self._survivors.forget(identity)
        self.partitions_reset(identity, (), reason)
        return stored

    def delete_vertex(self, identity: str, reason: str) -> None:
        """Give up all partitions of a vertex, and delete what of them is in the store.

        :raises StoreError: they cannot be deleted
        """
        self._partitions.delete(self.start_over(identity, reason))

    def failed_vertex(
        self, identity: str, error: str, causes: Collection[Cause], lost: Collection[str], reached: Collection[str]
    ) -> FailureHandlingResult:
        """Decide what is restarted after a failure; what the restart strategy counts is in the store before that.

        :param identity: what has failed: a vertex, or an action
        :param error: it, in one line
        :param lost: vertices of which stored partitions cannot be read any more
        :param reached: recovery points that this attempt has come to, in that order
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
        self._record.add(ev.CoordinatorSnapshot(**self._now, coordinator=name, state=state))

    def note_overhead(self) -> None:
        """Record what recovery has cost this attempt so far."""
        self.note(OVERHEAD, self.overhead.state(self.epoch))

    # -- end --------------------------------------------------------------------------------------------------------

    def finished(self) -> None:
        """Record the success; without an operator also acknowledge it and release the partitions."""
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

        :param unrecoverable: no retry can help until somebody changes something
        """
        self.note_overhead()
        self._record.add(
            ev.JobFailed(**self._now, error=error, unrecoverable=unrecoverable, store_retries=requests_repeated())
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
        """Note in the store that a partition is damaged, so that the next attempt computes it again; see
        :meth:`give_up`.
        """
        partition = self._survivors.named(key)
        if partition is not None:
            self._partitions.mark_corrupt(partition)

    def _end(self, state: JobState) -> None:
        self._tracker.deactivate()
        self._record.close()
        if self._heartbeat is not None:
            self._heartbeat.stop(state)
