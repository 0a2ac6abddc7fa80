"""Look at a job from outside, changing nothing."""

from __future__ import annotations

from airflow_provider.recovery.errors import ConfigurationError
from airflow_provider.recovery.graph import ExecutionGraph
from airflow_provider.recovery.job import JobId
from airflow_provider.recovery.replay import replay
from airflow_provider.storage.event_store import JobEventLog
from airflow_provider.storage.object_store import ObjectStore


def inspect_job(store: ObjectStore, job: JobId) -> ExecutionGraph:
    """Return the replayed graph of *job*, with the problems of its event store.

    :raises ConfigurationError: nothing is recorded under that job id
    :raises StoreError: the store cannot be read
    """
    logged = JobEventLog(store, job.prefix).read()
    if not logged.events and not logged.problems:
        raise ConfigurationError(
            f"There is no job {str(job)!r} in {store.uri}.", remedy="Check --job-id and --event-store."
        )
    graph = replay(logged.events)
    graph.problems[:0] = logged.problems
    return graph
