"""The vertices of an attempt: state and records for recovery points and kept shuffles, and the release of their
partitions.

A vertex counts as finished only when its events are confirmed. Unneeded objects are recorded as released before
``unneeded`` deletes them. Knows no Spark.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from typing import TypedDict

from airflow_provider.core import events as ev
from airflow_provider.core.classify import Need, classify
from airflow_provider.core.errors import RecoveryError
from airflow_provider.core.expendable import needed_no_more, room_for, shuffles_of_written_outputs
from airflow_provider.core.faults import (
    AFTER_PARTITION_EVENT,
    AFTER_VERTEX_FINISHED,
    BEFORE_VERTEX_FINISHED,
    fault_point,
)
from airflow_provider.core.graph import Vertex
from airflow_provider.core.partition_tracker import PartitionTracker
from airflow_provider.core.partitions import StoredPartition, finished_event
from airflow_provider.core.quantities import bytes_text
from airflow_provider.core.run_request import RunRequest
from airflow_provider.job.ownership import OwnedJob
from airflow_provider.job.survivors import Survivors
from airflow_provider.job.unneeded import Unneeded
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.partition_store import PartitionStore
from airflow_provider.storage.processes import Process

log = logging.getLogger(__name__)


class _Stamp(TypedDict):
    """The fields of all events: who, and when."""

    epoch: int
    at: float


class RecordedVertices(OwnedJob):
    """The vertices of a job that a driver owns. Constructed like :class:`OwnedJob`."""

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

    # -- state and records of recovery points -------------------------------------------------------------------------

    def vertex(self, identity: str) -> Vertex | None:
        """Return a vertex, ``None`` if it is unknown."""
        return self.graph.vertices.get(identity)

    def optional(self, identity: str) -> bool:
        """Whether all known readers of the vertex are finished, so that it is not computed for its own sake."""
        with self._record.lock:
            return classify(self.graph).get(identity) is Need.OPTIONAL

    def survivors(self, identity: str) -> dict[int, StoredPartition]:
        """Return the reusable stored partitions of a vertex by index."""
        vertex = self.graph.vertices.get(identity)
        if vertex is None:
            return {}
        init = vertex.initialized
        return self.survivors_of(identity, init.layout, init.parallelism, init.deterministic)

    def survivors_of(
        self, identity: str, layout: str, parallelism: int, deterministic: bool
    ) -> dict[int, StoredPartition]:
        """Like :meth:`survivors`, for a layout that the events may not contain."""
        return self._survivors.of(self.graph, identity, layout, parallelism, deterministic)

    def vertex_initialized(self, event: ev.VertexInitialized) -> None:
        """Record that a vertex with a known layout is about to run, and wait for confirmation.

        From then on the next attempt can place every stored partition, because it pins the same layout.
        """
        self._record.add(event)
        self._tracker.start(event.vertex, range(event.parallelism))
        self._record.flush()

    def partition_finished(self, partition: StoredPartition, *, again: bool = False) -> None:
        """Record a stored partition. Idempotent.

        A partition that arrives after the attempt's end is released at once: deleted if the job has succeeded; kept if
        it has failed, because the next attempt can use it; left alone if the attempt is fenced, because the new owner
        may have found and used it already, and sweeps what it does not need.

        :param again: Spark has run this task before, and the earlier run may have stored something without reporting it
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
        """Another object replaces a stored partition, now or soon: this one is deleted once the vertex is stored."""
        self._unneeded.replace(partition.vertex, [partition])

    def _release_late(self, partition: StoredPartition) -> None:
        if not self._succeeded or self.request.keep_partitions:
            return
        try:
            self._partitions.delete([partition])
        except RecoveryError as error:
            log.warning("A partition that came too late could not be released: %s", error)

    def partitions_reset(self, identity: str, indexes: tuple[int, ...], reason: str) -> None:
        """Record that partitions will be computed again, with the reason; no indexes means all."""
        self._record.add(ev.PartitionsReset(**self._now, vertex=identity, indexes=indexes, reason=reason))
        self._tracker.forget(identity, indexes)

    def partitions_recomputed(self, identity: str, indexes: tuple[int, ...], reason: str) -> None:
        """Record that partitions were computed again and their new objects are about to be stored."""
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
        """Seal the vertex; return ``True`` once the store has confirmed all its events (Flink's ``cutBlock``).

        :param storing_seconds: task time that went into storing
        :param finishing: wraps the event, but not the wait for the store; if it raises, the vertex is not sealed
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
        """Record that all of a vertex is reused."""
        layout = self.graph.vertices[identity].initialized.layout
        self._record.add(ev.VertexReused(**self._now, vertex=identity, layout=layout))

    def vertex_skipped(self, name: str, reason: str) -> None:
        """Record that a recovery point is not stored, and why."""
        self._record.add(ev.VertexSkipped(**self._now, name=name, reason=reason))

    # -- what is released while the job runs --------------------------------------------------------------------------

    def needed_no_more(self) -> list[str]:
        """Return the script's stored vertices that no known reader needs any more."""
        with self._record.lock:
            return [] if self.request.keep_partitions else needed_no_more(self.graph)

    def release(self, identity: str) -> bool:
        """Release a vertex that the script can no longer name; return whether that is still right."""
        with self._record.lock:
            right = identity in self.needed_no_more()
            if right:
                self._unneeded.add(self._released(identity))
            return right

    def release_shuffles(self) -> list[str]:
        """Release the kept shuffles that a retry does not need; return them."""
        with self._record.lock:
            found = [] if self.request.keep_partitions else shuffles_of_written_outputs(self.graph)
            for identity in found:
                self._unneeded.add(self._released(identity))
            return found

    def make_room(self, size: int, worth: float, needed: Collection[str]) -> list[str] | None:
        """Release kept shuffles so that *size* more bytes fit into the job's ``store_budget``; return them.

        Parameters and result are those of :func:`airflow_provider.core.expendable.room_for`.
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
        """Record that a vertex is released; return its objects."""
        vertex = self.graph.vertices[identity]
        if vertex.missing:
            self._tracker.forget(identity, vertex.missing)
        self._tracker.release(identity)
        self._record.add(ev.VertexReleased(**self._now, vertex=identity))
        log.info("%s: released, because all that reads it is stored", vertex.initialized.name)
        return self._survivors.forget(identity)

    def delete_unneeded(self) -> None:
        """Delete unneeded objects once the store has confirmed the records of their release.

        :raises Fenced: a newer attempt owns the job
        """
        self._unneeded.delete(self.owned_for())

    # -- what has become unusable -------------------------------------------------------------------------------------

    def give_up(self, key: str) -> str:
        """Give up a stored partition that cannot be read; return its vertex, or empty text if it does not belong to
        this job.

        :param key: key of the partition, or of the object that holds its content
        """
        partition = self._survivors.named(key)
        if partition is None:
            return ""
        self._survivors.discard(self.graph, partition.vertex, [partition])
        return partition.vertex if partition.vertex in self.graph.vertices else ""

    def start_over(self, identity: str, reason: str) -> list[StoredPartition]:
        """Give up all partitions of a vertex; return those in the store, of any layout."""
        stored = self._survivors.forget(identity)
        self.partitions_reset(identity, (), reason)
        return stored

    def delete_vertex(self, identity: str, reason: str) -> None:
        """Give up all partitions of a vertex, and delete those in the store.

        :raises StoreError: they cannot be deleted
        """
        self._partitions.delete(self.start_over(identity, reason))

    def mark_corrupt(self, key: str) -> None:
        """Mark a partition in the store as damaged, so that the next attempt computes it again; see :meth:`give_up`.
        :meth:`give_up`.
        """
        partition = self._survivors.named(key)
        if partition is not None:
            self._partitions.mark_corrupt(partition)
