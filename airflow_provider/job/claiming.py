"""Decide before an attempt whether there is anything to run, and make sure that the last driver has stopped.

Knows no Spark.
"""

from __future__ import annotations

import logging

from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.run_request import RunRequest
from airflow_provider.core.takeover import Decision, StartAfresh, decide
from airflow_provider.storage.claims import Claim, Claims
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.inspection import look_at_last
from airflow_provider.storage.liveness import Life, Liveness, wait_for_end
from airflow_provider.storage.object_store import ObjectStore

log = logging.getLogger(__name__)


def read_graph(store: ObjectStore, prefix: str) -> ExecutionGraph:
    """Return the execution graph, replayed from the job event store.

    :raises StoreError: it cannot be read
    """
    return JobEventLog(store, prefix).replay().graph


def decide_alone(request: RunRequest, store: ObjectStore) -> Decision:
    """Decide, without an operator, what to do about the last attempt.

    Does not check whether the last driver is alive: the new claim fences it, and :func:`wait_for_previous` waits for
    it.

    :raises JobOfAnotherDeployment: the job belongs to another deployment
    :raises StoreError: the store cannot be read
    """
    prefix, claims = request.job.prefix, Claims(store, request.job.prefix)
    newest = claims.newest()
    if newest is None:
        return StartAfresh("first attempt")
    claims.require_own(range(1, newest.epoch + 1), request.options.deployment)
    last = look_at_last(store, prefix, newest, read_graph(store, prefix), lives=lambda: False)
    return decide(last, request.options.resume)


def wait_for_previous(request: RunRequest, store: ObjectStore, claim: Claim) -> None:
    """Wait until no earlier attempt's driver is running.

    An attempt that recorded its start had waited for all before it; later claimants may have died while they waited, so
    each of them is checked. A driver that the operator found lost is not watched again if its heartbeat is unchanged
    *after* our claim: a beat sent later can no longer be confirmed (``storage.heartbeat``).

    :raises StoreError: the store cannot be read
    """
    prefix = request.job.prefix
    newest = read_graph(store, prefix).newest
    began = newest.epoch if newest is not None else 0
    watched = []
    for previous in Claims(store, prefix).drivers_before(claim.epoch, down_to=max(began, 1)):
        if newest is not None and newest.epoch == previous.epoch and newest.state.terminal:
            continue
        if previous.epoch <= request.previous_lost and request.previous_beat < 0:
            continue
        liveness = Liveness(store, prefix, previous, request.options.previous_worker_recovery_timeout)
        life = liveness.look()
        if life is Life.STOPPED:
            continue
        known = previous.epoch == request.previous_lost and liveness.beat.number == request.previous_beat
        if life is Life.GONE or known:
            liveness.end_what_is_left(log)
            continue
        watched.append(liveness)
    wait_for_end(watched, log)
