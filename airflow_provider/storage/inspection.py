"""Inspect a job from outside, without changing anything."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.graph import ExecutionGraph, JobState
from airflow_provider.core.job import JobId
from airflow_provider.core.takeover import LastAttempt
from airflow_provider.storage.claims import Claim, Claims
from airflow_provider.storage.discarding import discard_in_force
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.object_store import ObjectStore


def look_at_last(
    store: ObjectStore, prefix: str, claim: Claim, graph: ExecutionGraph, lives: Callable[[], bool]
) -> LastAttempt:
    """Return the state of the newest attempt.

    An attempt that died before its first event is judged by the one before it: if that one's success was acknowledged,
    the dead attempt was to start afresh, and so must the next.

    :param claim: the newest claim
    :param graph: the replayed events
    :param lives: called only if the attempt did not record its end
    """
    claims = Claims(store, prefix)
    recorded = graph.newest
    own = recorded if recorded is not None and recorded.epoch == claim.epoch else None
    state, series = (own.state, own.series) if own is not None else (JobState.CREATED, "")
    if state.terminal:
        acknowledged, found = claims.acknowledged(claim.epoch), _discarded(store, prefix, claim, graph)
        return LastAttempt(claim.epoch, state, acknowledged=acknowledged, discarded=found, series=series)
    if lives():
        return LastAttempt(claim.epoch, state, alive=True, series=series)
    before = recorded if own is None else None
    if before is not None and before.state is JobState.FINISHED and claims.acknowledged(before.epoch) is not None:
        return LastAttempt(claim.epoch, JobState.FINISHED, acknowledged=0)
    found = _discarded(store, prefix, claim, graph)
    return LastAttempt(claim.epoch, state, discarded=found, cancelled=claim.cancels, series=series)


def _discarded(store: ObjectStore, prefix: str, claim: Claim, graph: ExecutionGraph) -> str:
    found = discard_in_force(store, prefix, graph, before=claim.epoch + 1)
    return found.reason if found is not None else ""


def inspect_job(store: ObjectStore, job: JobId) -> ExecutionGraph:
    """Return the replayed graph of *job*, with the problems of its event store.

    :raises ConfigurationError: the job has no records
    :raises StoreError: the store cannot be read
    """
    replayed = JobEventLog(store, job.prefix).replay()
    if replayed.empty:
        raise ConfigurationError(
            f"There is no job {str(job)!r} in {store.uri}.",
            remedy="Check --job-id and --event-store; 'spark-recovery gc' lists the jobs that are there.",
        )
    return replayed.graph
