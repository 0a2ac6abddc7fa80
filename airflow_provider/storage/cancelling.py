"""Cancel a job from outside, wherever its driver runs: claim the next epoch, and run nothing.

The driver notices that it is fenced at its next heartbeat, or when it writes events or commits, and ends itself and its
JVM. Only the event store must be reachable, so this works the same with every cluster manager. As with claims, safety
comes from one create-only object: either the cancellation or a new driver gets the epoch, never both.

A driver that was submitted but has not claimed yet gets a later epoch. It finds the cancellation between the newest
epoch at its submission and its own, and ends before it starts (:func:`refuse_cancelled`).
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

    An attempt that has ended or has a successor is left alone. Idempotent.

    :param epoch: the attempt, or for a driver that has not claimed yet, the newest one at its submission
    :raises StoreError: the store failed; repeating the call is safe
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

    :param deployment: the Airflow deployment that submitted it; claims of other deployments' drivers are left alone
    :returns: its claim, ``None`` if it has none
    :raises StoreError: the store failed; repeating the call is safe
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
    """Raise if the job was cancelled after this driver was submitted and before it claimed.

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
                remedy="No action needed: the task was ended in Airflow.",
                epoch=claim.epoch,
                newer=earlier.epoch,
            )


def _has_ended(store: ObjectStore, prefix: str, epoch: int) -> bool:
    try:
        return Beat.parse(store.get(heartbeat_key(prefix, epoch))).state != ALIVE
    except (ObjectNotFound, CorruptObject):
        return False


def _say(store: ObjectStore, prefix: str, taken: Claim) -> None:
    """Write a final heartbeat for observers of the newest claim; only the claim itself counts."""
    body = {"owner": taken.owner, "beat": 1, "state": CANCELLED}
    try:
        store.put(heartbeat_key(prefix, taken.epoch), json.dumps(body, sort_keys=True).encode())
    except StoreError as error:
        log.warning("The last word of the cancellation %d could not be written: %s", taken.epoch, error)
