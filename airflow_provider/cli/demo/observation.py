"""Watch a job from outside, through the event store alone, and kill its driver."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from airflow_provider.cli.demo.demo_processes import DemoError, command_of, send
from airflow_provider.core.graph import ExecutionGraph, Vertex
from airflow_provider.core.job import JobId
from airflow_provider.core.partitions import StoredPartition
from airflow_provider.storage.claims import Claim, Claims
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.follower import JobFollower
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.partition_store import PartitionStore
from airflow_provider.storage.processes import ancestors, process, process_tree


class JobObserver:
    """Follows one job: its events as they are flushed, and every object that ever appears in its partition store.

    Objects are counted while they exist, because a job's success releases them.
    """

    def __init__(self, store: ObjectStore, job: JobId) -> None:
        self._events = JobFollower(JobEventLog(store, job.prefix))
        self._partitions = PartitionStore(store, job.prefix)
        self._claims = Claims(store, job.prefix)
        self._objects: dict[str, StoredPartition] = {}

    @property
    def graph(self) -> ExecutionGraph:
        """The graph at the last look."""
        return self._events.graph

    def look(self) -> None:
        """Read new events and objects."""
        self._events.read()
        for survivors in self._partitions.survivors().values():
            for partition in survivors:
                self._objects[partition.key] = partition

    def claim(self) -> Claim | None:
        """Return the newest attempt's claim."""
        return self._claims.newest()

    def vertex(self, name: str) -> Vertex | None:
        """Return the vertex with this name, if an attempt has reached it."""
        named = [vertex for vertex in self.graph.vertices.values() if vertex.initialized.name == name]
        return named[-1] if named else None

    def objects(self, vertex: Vertex, epoch: int) -> list[StoredPartition]:
        """Return the objects that attempt *epoch* stored for *vertex*, ordered by index."""
        wanted = vertex.initialized.vertex
        found = [p for p in self._objects.values() if p.vertex == wanted and p.epoch == epoch]
        return sorted(found, key=lambda partition: partition.index)


def kill_driver(claim: Claim) -> Sequence[int]:
    """Kill a driver and its ``spark-submit`` with SIGKILL, as a lost machine would, and return their pids.

    Their Python workers end when their sockets close; this waits for them, so that nothing is stored afterwards.
    """
    driver, submit = claim.pid, (*ancestors(claim.pid), 0)[1]
    if "org.apache.spark.deploy.SparkSubmit" not in command_of(submit):
        raise DemoError(f"Process {driver}, which claimed the job, is no child of spark-submit.")
    family = [found for pid in process_tree(submit) if (found := process(pid)) is not None]
    send(signal.SIGKILL, [submit, driver])
    for each in family:
        if not each.wait(5) and not each.kill(5):
            raise DemoError(f"Process {each.pid}, which the killed driver had started, does not end.")
    return [driver, submit]
