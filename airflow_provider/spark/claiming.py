"""Before an attempt begins: whether there is anything to run, and whether the last driver is really gone.

Knows no Spark.
"""

from __future__ import annotations

import logging

from airflow_provider.recovery.graph import ExecutionGraph
from airflow_provider.recovery.run_request import RunRequest
from airflow_provider.recovery.takeover import Decision, StartAfresh, decide
from airflow_provider.storage.claims import Claim, Claims, process_is_gone
from airflow_provider.storage.event_store import JobEventLog
from airflow_provider.storage.heartbeat import watch
from airflow_provider.storage.inspection import look_at_last
from airflow_provider.storage.object_store import ObjectStore

log = logging.getLogger(__name__)


def read_graph(store: ObjectStore, prefix: str) -> ExecutionGraph:
    """Return the execution graph that the job event store tells.

    :raises StoreError: it cannot be read
    """
    return JobEventLog(store, prefix).replay().graph


def decide_alone(request: RunRequest, store: ObjectStore) -> Decision:
    """Decide what a driver without an operator does about the last attempt.

    Whether that one lives is not asked here: it is fenced by the new claim, and waited for after that.

    :raises StoreError: the store cannot be read
    """
    prefix = request.job.prefix
    newest = Claims(store, prefix).newest()
    if newest is None:
        return StartAfresh("first attempt")
    last = look_at_last(store, prefix, newest, read_graph(store, prefix), lives=lambda: False)
    return decide(last, request.options.resume)


def wait_for_previous(request: RunRequest, store: ObjectStore, claim: Claim) -> None:
    """Return when the previous attempt's driver is certainly not at work any more.

    A driver that lives notices the new claim at its next heartbeat, stops, and says so. One that was killed leaves a
    heartbeat that stands still.

    :raises StoreError: the store cannot be read
    """
    prefix = request.job.prefix
    previous = Claims(store, prefix).driver_before(claim.epoch)
    if previous is None or previous.epoch <= request.previous_lost or process_is_gone(previous):
        return
    newest = read_graph(store, prefix).newest
    if newest is not None and newest.epoch == previous.epoch and newest.state.terminal:
        return
    timeout = request.options.previous_worker_recovery_timeout
    log.info(
        "Attempt %d (process %d on %s) did not say how it ended; watching its heartbeat for up to %g s.",
        previous.epoch,
        previous.pid,
        previous.host,
        timeout,
    )
    while watch(store, prefix, previous.epoch, timeout):
        log.info("Attempt %d is still at work; waiting for it to notice that it is fenced.", previous.epoch)
