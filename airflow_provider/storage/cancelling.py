"""Ending a job from outside, wherever its driver runs: whoever cancels claims the next epoch, and runs nothing.

The driver sees at its next heartbeat, or when it writes events or commits, that it is fenced, and ends itself and its
JVM. Nothing but the event store has to be within reach, so this works alike for every cluster manager. It rests on what
claims rest on: one create-only object, so that either the cancellation or a new driver gets the epoch, never both.

A driver that was submitted and has not claimed yet comes later and gets a later epoch. It finds the cancellation
between the newest epoch of the time when it was submitted and its own, and ends before it has begun
(:func:`refuse_cancelled`).
"""

from __future__ import annotations

import json
import logging

from airflow_provider.core.errors import CorruptObject, Fenced, ObjectNotFound, StoreError
from airflow_provider.core.job import is_another_deployment
from airflow_provider.storage.claims import Claim, Claims
from airflow_provider.storage.heartbeat import ALIVE, Beat, heartbeat_key
from airflow_provider.storage.object_store import ObjectStore

log = logging.getLogger(__name__)

CANCELLED = "CANCELLED"
"""Last word in the heartbeat of a cancellation."""


def cancel(store: ObjectStore, prefix: str, epoch: int) -> Claim | None:
    """Fence attempt *epoch*; return its claim, ``None`` if there is nothing to end.

    An attempt that has ended is left alone, and so is one that has a successor: that is somebody else's. Again is
    harmless.

    :param epoch: the attempt, or the newest one there was when a driver was submitted that has not claimed yet
    :raises StoreError: the store failed; doing it again is harmless
    """
    claims = Claims(store, prefix)
    claim = claims.get(epoch) if epoch else None
    if epoch and _has_ended(store, prefix, epoch):
        return None
    taken = claims.take(epoch + 1, cancels=True)
    if taken is None:
        return None
    _say(store, prefix, taken)
    return claim


def cancel_unclaimed(store: ObjectStore, prefix: str, after: int, deployment: str = "") -> Claim | None:
    """End the driver that was submitted when *after* was the newest epoch, whether it has claimed the job or not.

    :param deployment: the Airflow deployment that has submitted it; the claim of another one's driver is left alone
    :returns: its claim, ``None`` if it has none
    :raises StoreError: the store failed; doing it again is harmless
    """
    claims = Claims(store, prefix)
    taken = claims.take(after + 1, cancels=True)
    if taken is not None:
        _say(store, prefix, taken)
        return None
    own = claims.get(after + 1)
    if own is None or (own.cancels and not own.successor) or is_another_deployment(own.deployment, deployment):
        return None
    return cancel(store, prefix, own.successor or own.epoch)


def refuse_cancelled(store: ObjectStore, prefix: str, claim: Claim, submitted_after: int) -> None:
    """Raise if somebody has cancelled the job after this driver was submitted, and before it claimed.

    :param submitted_after: newest epoch when the driver was submitted
    :raises Fenced: it was cancelled
    :raises StoreError: the store cannot be read
    """
    if submitted_after >= claim.epoch - 1:
        return
    for earlier in Claims(store, prefix).before(claim.epoch, down_to=submitted_after + 1):
        if earlier.cancels and not earlier.successor:
            raise Fenced(
                f"Attempt {claim.epoch} was cancelled before it began.",
                remedy="Nothing is to be done: the task was ended in Airflow.",
                epoch=claim.epoch,
                newer=earlier.epoch,
            )


def _has_ended(store: ObjectStore, prefix: str, epoch: int) -> bool:
    try:
        return Beat.parse(store.get(heartbeat_key(prefix, epoch))).state != ALIVE
    except (ObjectNotFound, CorruptObject):
        return False


def _say(store: ObjectStore, prefix: str, taken: Claim) -> None:
    """Leave a last word, for those who look at the newest claim's heartbeat; the claim alone counts."""
    body = {"owner": taken.owner, "beat": 1, "state": CANCELLED}
    try:
        store.put(heartbeat_key(prefix, taken.epoch), json.dumps(body, sort_keys=True).encode())
    except StoreError as error:
        log.warning("The last word of the cancellation %d could not be written: %s", taken.epoch, error)
