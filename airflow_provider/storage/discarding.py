"""Discard a job's stored state on a person's request, or release it once its success is acknowledged.

After a discard, the next attempt starts afresh.

A discard is a create-only object that names the newest attempt at that moment: nothing that it and earlier attempts
stored is reused. It never harms a running driver. Nothing is rewritten, and no case is missed:

* The discarding process **first** writes the object and **then** looks for a newer claim. A driver **first** claims and
  **then** looks for the discard of the attempt before it. So one of the two sees the other, in any order: if no newer
  claim is seen, every later driver sees the discard; if one is seen, that is reported, and nothing is promised or
  deleted.
* Partitions are deleted only after this check, and only those of the discarded attempts, which no later attempt reuses.

All discards of one epoch are equivalent, so a second one is harmless.

:mod:`airflow_provider.job.unneeded` deletes objects while the job runs, through the same partition store.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider.core.errors import (
    ConfigurationError,
    CorruptObject,
    JobAlreadyRunning,
    ObjectExists,
    ObjectNotFound,
    RecoveryError,
)
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.report import JobReport
from airflow_provider.storage.claims import Claim, Claims
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.keys import numbers_in
from airflow_provider.storage.liveness import Life, Liveness
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.partition_store import PartitionStore
from airflow_provider.storage.state_files import StateFiles

FOLDER = "discards"


@dataclass(frozen=True)
class Discard:
    """A person's decision to discard a job's state.

    :ivar epoch: newest attempt that is discarded, with all earlier ones
    :ivar by: who decided it; empty text if unknown
    :ivar at: seconds since the Unix epoch on that machine's clock; for people only
    """

    epoch: int
    by: str = ""
    at: float = 0.0

    @property
    def reason(self) -> str:
        """Why the next attempt starts afresh."""
        return f"what attempt {self.epoch} and earlier ones stored was discarded" + (
            f" by {self.by}" if self.by else ""
        )


def find_discard(store: ObjectStore, prefix: str, epoch: int) -> Discard | None:
    """Return the discard of attempt *epoch*, ``None`` if there is none. One small request.

    :raises StoreError: the store cannot be read
    """
    try:
        body = store.get(_key(prefix, epoch))
        told = json.loads(body)
        return Discard(epoch, by=str(told["by"]), at=float(told["at"]))
    except ObjectNotFound:
        return None
    except (CorruptObject, ValueError, KeyError, TypeError):
        return Discard(epoch)  # its existence is what matters


def discard_in_force(store: ObjectStore, prefix: str, graph: ExecutionGraph, before: int) -> Discard | None:
    """Return the discard that applies to everything in *graph*, ``None`` if there is none.

    An attempt that recorded its start has dealt with the discards of earlier ones. One that died before that has not,
    so they still apply to its successor.

    :param before: epoch of the asking attempt; usually costs one small request
    :raises StoreError: the store cannot be read
    """
    recorded = max(graph.newest.epoch if graph.newest is not None else 0, 1)
    if recorded == before - 1:
        return find_discard(store, prefix, recorded)
    # Epochs may have gaps of any size, so they are listed, not asked for one by one.
    epochs = [epoch for epoch in numbers_in(store, f"{prefix}/{FOLDER}/") if recorded <= epoch < before]
    return find_discard(store, prefix, max(epochs)) if epochs else None


def discard(
    store: ObjectStore,
    prefix: str,
    *,
    by: str,
    timeout: float,
    delete: bool = False,
    life: Callable[[Claim], Life] | None = None,
) -> tuple[Discard, int]:
    """Make the next attempt start afresh; return the discard and the number of partitions deleted.

    Idempotent: the first discard stays. If the newest attempt recorded no end, the call waits as long as its claim
    allows the driver to be silent.

    :param by: who discards, for people
    :param timeout: minimum seconds without a heartbeat change before the driver counts as lost
    :param delete: also delete the stored partitions and files at once. The job's events and attempts stay until they
        are garbage-collected
    :param life: judges the newest attempt, for a caller that has watched it and does not want to wait
    :raises ConfigurationError: the job was never claimed
    :raises JobAlreadyRunning: a driver is or may be running, or has just started; nothing that it needs was touched
    :raises StoreError: the store failed; repeating the call is safe
    """
    claims = Claims(store, prefix)
    newest = claims.newest()
    if newest is None:
        raise ConfigurationError("The job has stored nothing yet.", remedy="There is nothing to discard.")
    attempt = JobEventLog(store, prefix).replay().graph.newest
    ended = attempt is not None and attempt.epoch == newest.epoch and attempt.state.terminal
    found = Life.STOPPED if ended else life(newest) if life else Liveness(store, prefix, newest, timeout).wait()
    if found is Life.WATCHING:
        raise JobAlreadyRunning(
            f"Attempt {newest.epoch} on {newest.host or 'an unknown host'} did not say how it ended, and its heartbeat "
            f"has not stood still for {max(newest.terms.silence, timeout):g} s yet.",
            remedy="Try again then.",
            epoch=newest.epoch,
        )
    if found is Life.ALIVE:
        raise JobAlreadyRunning(
            f"Attempt {newest.epoch} is at work on {newest.host or 'an unknown host'}: its heartbeat moves.",
            remedy="End it first (mark the task failed in Airflow), then try again.",
            epoch=newest.epoch,
        )
    made = Discard(newest.epoch, by=by, at=time.time())
    try:
        store.put_new(_key(prefix, newest.epoch), json.dumps({"by": made.by, "at": made.at}, sort_keys=True).encode())
    except ObjectExists:
        made = find_discard(store, prefix, newest.epoch) or made
    if claims.taken(newest.epoch + 1):
        raise JobAlreadyRunning(
            f"Attempt {newest.epoch + 1} has begun at the same moment.",
            remedy="See in its log whether it starts afresh; if it does not, end it and try again.",
            epoch=newest.epoch + 1,
        )
    return made, release_all(store, prefix, up_to=made.epoch) if delete else 0


def _key(prefix: str, epoch: int) -> str:
    return f"{prefix}/{FOLDER}/{epoch:08d}.json"


def release_all(store: ObjectStore, prefix: str, up_to: int) -> int:
    """Delete what attempt *up_to* and earlier ones stored; return the number of partitions deleted.

    Later attempts may be running and are left alone. Idempotent.

    :raises StoreError: the store failed
    """
    partitions = PartitionStore(store, prefix).release(up_to=up_to)
    StateFiles(store, prefix).release(up_to=up_to)
    return partitions


def take_notice(
    store: ObjectStore,
    prefix: str,
    report: JobReport,
    log: logging.Logger,
    *,
    keep: bool = False,
    try_number: int = 0,
) -> None:
    """Release the partitions of a job that has succeeded, then acknowledge its newest attempt, in this order.

    A process may die between the two steps. In this order that leaves an unacknowledged success: the next try finds the
    job finished, releases the rest, which is safe to repeat, and acknowledges it. The other order would leave a job
    whose success looks acknowledged and whose task looks cleared: the next try would compute everything again, and
    nothing would ever release what was left.

    Releases only what that attempt and earlier ones wrote: the job may have been started afresh meanwhile.

    A failing store causes only a warning, because the success stands. It is acknowledged even if some partitions could
    not be released: nothing reuses them, because the next try after an acknowledgement starts afresh.

    :param keep: keep the partitions
    :param try_number: of the Airflow try that has seen the success; 0 without Airflow
    """
    epoch = report.attempts[-1].epoch
    if not keep:
        try:
            release_all(store, prefix, up_to=epoch)
        except RecoveryError as error:
            log.warning("The job succeeded, but its partitions could not be released: %s", error)
    try:
        Claims(store, prefix).acknowledge(epoch, report.to_dict(), try_number)
    except RecoveryError as error:
        log.warning("The job succeeded, but its event store could not take note of that: %s", error)
