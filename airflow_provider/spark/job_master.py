"""One attempt at a job, seen from the driver: claim, reconcile, record, end. Knows no Spark.

The name is Flink's: the part of a job that owns its execution graph and its recovery. The order of the steps carries
the safety: the claim fences all earlier attempts; the first block is written only when the previous driver is gone or
has stopped; a vertex counts as finished only when its events are confirmed; the end is recorded before anybody hears
of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from airflow_provider.recovery import events as ev
from airflow_provider.recovery.classify import Need, classify
from airflow_provider.recovery.errors import Fenced, RecoveryError, StoreError
from airflow_provider.recovery.faults import (
    AFTER_JOB_FINISHED,
    AFTER_PARTITION_EVENT,
    AFTER_VERTEX_FINISHED,
    BEFORE_JOB_FINISHED,
    BEFORE_VERTEX_FINISHED,
    DURING_RECONCILIATION,
    fault_point,
)
from airflow_provider.recovery.graph import ExecutionGraph, JobState, Vertex
from airflow_provider.recovery.partitions import StoredPartition, choose
from airflow_provider.recovery.replay import replay
from airflow_provider.recovery.report import build_report, format_report
from airflow_provider.recovery.run_request import RunRequest
from airflow_provider.recovery.takeover import LastAttempt, StartAfresh, Succeed, decide
from airflow_provider.storage.claims import Claim, Claims, process_is_gone
from airflow_provider.storage.event_store import JobEventLog, JobEventWriter
from airflow_provider.storage.heartbeat import Heartbeat, watch
from airflow_provider.storage.inspection import look_at_last
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.partition_store import PartitionStore
from airflow_provider.storage.verification import find_damaged

log = logging.getLogger(__name__)


class JobMaster:
    """The driver's hold on its job.

    :param request: what to run
    :param store: the object store that it names
    :param on_fenced: called once, from any thread, with the epoch that took over; should end the process
    """

    def __init__(self, request: RunRequest, store: ObjectStore, on_fenced: Callable[[int], None]) -> None:
        self.request = request
        self.store = store
        self.prefix = request.job.prefix
        self.graph = ExecutionGraph()
        self.epoch = 0
        self._on_fenced = on_fenced
        self._claims = Claims(store, self.prefix)
        self._partitions = PartitionStore(store, self.prefix)
        self._survivors: Mapping[str, list[StoredPartition]] = {}
        self._lock = threading.RLock()
        self._writer: JobEventWriter | None = None
        self._heartbeat: Heartbeat | None = None
        self._fenced = threading.Event()

    # -- beginning ------------------------------------------------------------------------------------------------

    def start(self) -> bool:
        """Claim the job and reconcile with what earlier attempts left.

        :returns: ``False`` if the job has already succeeded and nobody took notice; then there is nothing to run
        :raises RecoveryError: the store cannot be used, or another driver keeps the job
        """
        fresh = self.request.fresh
        if not self.request.supervised and not fresh:
            decision = decide(self._last_attempt(), self.request.options.resume)
            if isinstance(decision, Succeed):
                log.info("Attempt %d of job %s has already succeeded; nothing to do.", decision.epoch, self.request.job)
                self._load_finished(decision.epoch)
                return False
            if isinstance(decision, StartAfresh):
                fresh = decision.reason

        claim = self._claims.claim()
        self.epoch = claim.epoch
        log.info("Attempt %d of job %s: CREATED. Event store: %s", claim.epoch, self.request.job, self.store.uri)
        self._heartbeat = Heartbeat(
            self.store, self.prefix, claim, self.request.options.heartbeat_interval, self._fence
        )
        self._heartbeat.start()
        try:
            self._wait_for_previous(claim)
            self._begin(claim, fresh if claim.epoch > 1 else "")
            self._reconcile()
        except BaseException:
            self.stop_heartbeat("FAILED")
            raise
        return True

    def _last_attempt(self) -> LastAttempt | None:
        claim = self._claims.newest()
        if claim is None:
            return None
        # Whether it lives is not asked here: it is fenced by our claim, and waited for after that.
        return look_at_last(self._claims, claim, self._replay(), lives=lambda: False)

    def _replay(self) -> ExecutionGraph:
        return replay(JobEventLog(self.store, self.prefix).read().events)

    def _load_finished(self, epoch: int) -> None:
        self.epoch, self.graph = epoch, self._replay()

    def _wait_for_previous(self, claim: Claim) -> None:
        """Return when the previous attempt's driver is certainly not at work any more.

        A driver that lives notices the new claim at its next heartbeat, stops, and says so. One that was killed leaves
        a heartbeat that stands still.
        """
        previous = self._claims.get(claim.epoch - 1) if claim.epoch > 1 else None
        if previous is None or previous.epoch <= self.request.previous_lost or process_is_gone(previous):
            return
        newest = self._replay().newest
        if newest is not None and newest.epoch == previous.epoch and newest.state.terminal:
            return
        timeout = self.request.options.previous_worker_recovery_timeout
        log.info(
            "Attempt %d (process %d on %s) did not say how it ended; watching its heartbeat for up to %g s.",
            previous.epoch,
            previous.pid,
            previous.host,
            timeout,
        )
        while watch(self.store, self.prefix, previous.epoch, timeout):
            log.info("Attempt %d is still at work; waiting for it to notice that it is fenced.", previous.epoch)

    def _begin(self, claim: Claim, fresh: str) -> None:
        def first_event(graph: ExecutionGraph) -> ev.AttemptStarted:
            return ev.AttemptStarted(
                epoch=claim.epoch,
                at=time.time(),
                fresh=bool(fresh),
                reason=fresh,
                application=self.request.application.rsplit("/", 1)[-1],
                host=claim.host,
            )

        self._writer = JobEventWriter(
            self.store,
            self.prefix,
            claim,
            self.request.options,
            on_fenced=self._fence,
            on_broken=self._broken,
        )
        self.graph = self._writer.begin(first_event)
        for problem in self.graph.problems:
            log.warning("Job event store: %s", problem)
        if fresh:
            log.info("Attempt %d starts afresh: %s.", self.epoch, fresh)

    def _reconcile(self) -> None:
        self._record(ev.JobStateChanged(epoch=self.epoch, at=time.time(), state=JobState.RECONCILING))
        if self.epoch > 1:
            log.info("Attempt %d: RECONCILING", self.epoch)
            survivors = self._partitions.survivors()
            self._survivors = {
                vertex: [p for p in found if p.epoch >= self.graph.base_epoch] for vertex, found in survivors.items()
            }
            self._drop_lost()
            fault_point(DURING_RECONCILIATION)
            for identity, vertex in self.graph.vertices.items():
                log.info(
                    "  %s: %d of %d partitions survive",
                    vertex.initialized.name,
                    len(self.survivors(identity)),
                    vertex.initialized.parallelism,
                )
        self._record(ev.JobStateChanged(epoch=self.epoch, at=time.time(), state=JobState.RUNNING))
        log.info("Attempt %d: RUNNING", self.epoch)

    def _drop_lost(self) -> None:
        """Reset what the events call finished but the store does not hold (any more) with the recorded size."""
        for identity, vertex in self.graph.vertices.items():
            present = {p.key: p.bytes for p in self._survivors.get(identity, ())}
            lost = tuple(i for i, record in vertex.partitions.items() if present.get(record.key) != record.bytes)
            if lost:
                reason = "lost: not in the store with the recorded size"
                log.warning("%s: partitions %s %s", vertex.initialized.name, _some(lost), reason)
                self._record(
                    ev.PartitionsReset(epoch=self.epoch, at=time.time(), vertex=identity, indexes=lost, reason=reason)
                )

    # -- what the checkpoints ask and tell ----------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Whether the store still records; once it does not, jobs go on without recovery."""
        return self._writer is not None and self._writer.broken is None

    def check(self) -> None:
        """Raise :class:`Fenced` if a newer attempt is known to own the job."""
        if self._fenced.is_set():
            raise Fenced(f"A newer attempt owns job {self.request.job}; attempt {self.epoch} stops.")

    def check_now(self) -> None:
        """Ask the store whether a newer attempt owns the job; before something is committed outside of it."""
        self.check()
        if self._heartbeat is not None and self.usable:
            try:
                self._heartbeat.check()
            except Fenced as error:
                self._fence(int(str(error.ids["newer"])))
                raise
            except StoreError as error:
                log.warning("Cannot see whether a newer attempt owns the job: %s", error)

    def vertex(self, identity: str) -> Vertex | None:
        """Return what is known of a vertex."""
        return self.graph.vertices.get(identity)

    def optional(self, identity: str) -> bool:
        """Whether all that is known to read the vertex is finished, so that it is not computed for its own sake."""
        with self._lock:
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
        vertex = self.graph.vertices.get(identity)
        if not deterministic and not (vertex and vertex.finished):
            return {}
        while True:
            chosen = choose(
                self._survivors.get(identity, ()),
                layout=layout,
                parallelism=parallelism,
                recorded={i: record.key for i, record in vertex.partitions.items()} if vertex else {},
                deterministic=deterministic,
            )
            damaged = find_damaged(self.store, self.prefix, chosen.values())
            if not damaged:
                return chosen
            self._discard(identity, damaged)

    def _discard(self, identity: str, damaged: list[StoredPartition]) -> None:
        """Never use damaged partitions again, neither here nor in a later attempt."""
        keys = {partition.key for partition in damaged}
        self._survivors = {
            vertex: [p for p in found if p.key not in keys] if vertex == identity else found
            for vertex, found in self._survivors.items()
        }
        for partition in damaged:
            log.warning("The stored partition %s is damaged; it is computed again.", partition.key)
            self._partitions.mark_corrupt(partition)
        if identity in self.graph.vertices:
            self.partitions_reset(identity, tuple(p.index for p in damaged), "damaged: the checksum does not match")

    def application_started(self, application_id: str, ui_url: str, parallelism: int) -> None:
        """Record the Spark application of this attempt."""
        self._record(
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
        self._record(event)
        self._flush()

    def partition_finished(self, partition: StoredPartition) -> None:
        """Record a stored partition; saying it twice is harmless."""
        vertex = self.graph.vertices[partition.vertex]
        with self._lock:
            if partition.index in vertex.partitions:
                return
            self._record(
                ev.PartitionFinished(
                    epoch=self.epoch,
                    at=time.time(),
                    vertex=partition.vertex,
                    layout=partition.layout,
                    index=partition.index,
                    key=partition.key,
                    rows=partition.rows,
                    bytes=partition.bytes,
                    checksum=partition.checksum,
                    duration=partition.millis / 1000,
                    attempt=partition.epoch,
                )
            )
        fault_point(AFTER_PARTITION_EVENT)

    def partitions_reset(self, identity: str, indexes: tuple[int, ...], reason: str) -> None:
        """Record that partitions are computed again, with the reason; no indexes means all."""
        self._record(
            ev.PartitionsReset(epoch=self.epoch, at=time.time(), vertex=identity, indexes=indexes, reason=reason)
        )

    def vertex_finished(self, identity: str) -> bool:
        """Seal the vertex: ``True`` once all of its events are confirmed by the store (Flink's ``cutBlock``)."""
        fault_point(BEFORE_VERTEX_FINISHED)
        layout = self.graph.vertices[identity].initialized.layout
        self._record(ev.VertexFinished(epoch=self.epoch, at=time.time(), vertex=identity, layout=layout))
        confirmed = self._flush()
        fault_point(AFTER_VERTEX_FINISHED)
        return confirmed

    def vertex_reused(self, identity: str) -> None:
        """Record that all of a vertex was kept."""
        layout = self.graph.vertices[identity].initialized.layout
        self._record(ev.VertexReused(epoch=self.epoch, at=time.time(), vertex=identity, layout=layout))

    def vertex_skipped(self, name: str, reason: str) -> None:
        """Record that a recovery point stores nothing, and why."""
        self._record(ev.VertexSkipped(epoch=self.epoch, at=time.time(), name=name, reason=reason))

    # -- end --------------------------------------------------------------------------------------------------------

    def finished(self) -> None:
        """Record the success; without an operator also acknowledge it and release the partitions."""
        fault_point(BEFORE_JOB_FINISHED)
        self._record(ev.JobFinished(epoch=self.epoch, at=time.time()))
        confirmed = self._flush()
        fault_point(AFTER_JOB_FINISHED)
        self._end(JobState.FINISHED)
        if confirmed:
            log.info("Attempt %d: FINISHED", self.epoch)
        else:
            log.warning("Attempt %d finished, but the event store could not record it.", self.epoch)
        if confirmed and not self.request.supervised:
            self.acknowledge()

    def failed(self, error: str) -> None:
        """Record the failure; the partitions stay for the next attempt."""
        self._record(ev.JobFailed(epoch=self.epoch, at=time.time(), error=error))
        self._flush()
        self._end(JobState.FAILED)
        log.error("Attempt %d: FAILED: %s", self.epoch, error)

    def acknowledge(self) -> None:
        """Take notice of the success: log the report, keep it as a summary, release the partitions."""
        report = build_report(str(self.request.job), self.graph)
        log.info("%s", format_report(report))
        try:
            self._claims.acknowledge(self.epoch, report.to_dict())
            if not self.request.keep_partitions:
                self._partitions.release()
        except RecoveryError as error:
            log.warning("The job succeeded, but its event store could not be tidied up: %s", error)

    def mark_corrupt(self, key: str) -> None:
        """Note in the store that an object is damaged, so that the next attempt computes it again."""
        partition = StoredPartition.from_key(key, 0)
        if partition is not None:
            self._partitions.mark_corrupt(partition)

    def _end(self, state: JobState) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._heartbeat is not None:
            self._heartbeat.stop(state)

    def _flush(self) -> bool:
        confirmed = self._writer is not None and self._writer.flush()
        self.check()
        return confirmed

    def _record(self, event: ev.JobEvent) -> None:
        self.check()
        with self._lock:
            self.graph.apply(event)
        if self._writer is not None:
            self._writer.append(event)

    def _fence(self, newer: int) -> None:
        with self._lock:
            if self._fenced.is_set():
                return
            self._fenced.set()
        log.error(
            "Attempt %d is fenced: attempt %d owns job %s now. This driver stops and commits nothing.",
            self.epoch,
            newer,
            self.request.job,
        )
        self._on_fenced(newer)

    def stop_heartbeat(self, state: str) -> None:
        """Write the last heartbeat of a driver that stops in *state*; never raises."""
        if self._heartbeat is not None:
            try:
                self._heartbeat.stop(state)
            except RecoveryError as error:
                log.warning("The last heartbeat could not be written: %s", error)

    def _broken(self, error: StoreError) -> None:
        log.warning(
            "The event store failed for good: %s The job goes on without recording; "
            "what was recorded so far stays usable for a retry.",
            error,
        )


def _some(indexes: tuple[int, ...]) -> str:
    shown = ", ".join(str(index) for index in indexes[:10])
    return shown + (f" and {len(indexes) - 10} more" if len(indexes) > 10 else "")
