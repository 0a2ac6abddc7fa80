"""All that a job has stored goes: because somebody gives it up, or because its success was taken notice of.

Given up from outside, the next attempt starts afresh.

A discard is a create-only object that names the newest attempt of the moment: nothing that it and earlier ones stored
is reused. A driver that lives is never harmed by it. Nothing is rewritten, and nobody falls between two stools:

* Whoever discards writes the object **first** and looks for a newer claim **then**. A driver claims **first** and looks
  for the object of the attempt before it **then**. So one of the two sees the other, whatever the order: if no newer
  claim is seen, every later driver sees the discard; if one is seen, that is said, and nothing is promised or deleted.
* Partitions are deleted only after such a look, and only those of the discarded attempts: a later one reuses none of
  them.

Discards of one epoch are all the same, so that a second one is harmless.

What goes while the job runs is :mod:`airflow_provider.job.unneeded`'s, by the same partition store.
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
    """A person's decision.

    :ivar epoch: newest attempt of which nothing is reused any more
    :ivar by: who decided it; empty text if unknown
    :ivar at: seconds since the Unix epoch on that one's clock; for people only
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
        return Discard(epoch)  # that it is there says what matters


def discard_in_force(store: ObjectStore, prefix: str, graph: ExecutionGraph, before: int) -> Discard | None:
    """Return the discard that concerns all that *graph* tells, ``None`` if there is none.

    An attempt that has recorded its start has dealt with the discards of earlier ones. One that died before that has
    not, so that they still count for its successor.

    :param before: epoch of the attempt that wants to know; one small request, mostly
    :raises StoreError: the store cannot be read
    """
    recorded = max(graph.newest.epoch if graph.newest is not None else 0, 1)
    if recorded == before - 1:
        return find_discard(store, prefix, recorded)
    # Epochs may have gaps of any size, so that they are not asked for one by one.
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
    """Let the next attempt start afresh; return how many stored partitions were deleted, too.

    Again is harmless: the first one stays. Takes as long as a driver may be silent by its claim if the newest attempt
    did not say how it ended.

    :param by: who wants it, for people
    :param timeout: seconds that a heartbeat must stand still at least before its driver counts as lost
    :param delete: delete the stored partitions and files at once. What is told of the job, its events and attempts,
        stays until it is collected as garbage
    :param life: of somebody who has watched the newest attempt and does not want to wait
    :raises ConfigurationError: nobody has ever claimed the job
    :raises JobAlreadyRunning: a driver is at work, may be, or has begun at the same moment; nothing that it needs was
        touched
    :raises StoreError: the store failed; doing it again is harmless
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
    """Delete what attempt *up_to* and earlier ones have stored; return how many partitions that were.

    A later attempt may be at work, and is left alone. Again is harmless.

    :raises StoreError: the store failed
    """
    partitions = PartitionStore(store, prefix).release(up_to=up_to)
    StateFiles(store, prefix).release(up_to=up_to)
    return partitions


def take_notice(store: ObjectStore, prefix: str, report: JobReport, log: logging.Logger, *, keep: bool = False) -> None:
    """Release the partitions of a job that has succeeded, then acknowledge its newest attempt. One order for all.

    A process may die between the two. In this order it leaves a success that is still unseen: whoever looks next finds
    the job finished, releases the rest, which is harmless to repeat, and takes notice. In the other order it would
    leave a job that looks as if somebody had seen its success and cleared its task: the next try would compute
    everything again, and nothing would ever release what was left.

    Only what that attempt and earlier ones wrote is released: somebody may have started the job afresh meanwhile.

    A failing store is a warning only, because the success stands. Partitions that could not be released are no reason
    to leave the success unseen: nothing reuses them, since whoever finds the notice starts afresh.

    :param keep: leave the partitions where they are
    """
    epoch = report.attempts[-1].epoch
    if not keep:
        try:
            release_all(store, prefix, up_to=epoch)
        except RecoveryError as error:
            log.warning("The job succeeded, but its partitions could not be released: %s", error)
    try:
        Claims(store, prefix).acknowledge(epoch, report.to_dict())
    except RecoveryError as error:
        log.warning("The job succeeded, but its event store could not take note of that: %s", error)
