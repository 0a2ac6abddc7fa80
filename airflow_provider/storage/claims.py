"""Claims decide who owns a job: create-only objects, one per epoch.

The driver that created the claim of the newest epoch owns the job; all earlier epochs are fenced. Two concurrent claims
get two different epochs, because each object can be created only once. Claims are never rewritten. To remove a job from
the store, remove its claims last: otherwise its epochs would start again while blocks of the old ones still exist.

An owner checks only the next epoch. If there is a gap (below a stray claim with a high number), a new claim also takes
the first free epoch of each gap below it, as a fence that runs nothing, so that every earlier owner sees that it is
replaced. A driver that was about to take that epoch meets the fence, lists again, and comes after the new claim.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider.core.errors import CorruptObject, JobOfAnotherDeployment, ObjectExists, ObjectNotFound
from airflow_provider.core.job import is_another_deployment
from airflow_provider.core.lease import Lease
from airflow_provider.storage.checks import ignores_create_only
from airflow_provider.storage.keys import numbers_in
from airflow_provider.storage.object_store import ObjectStore, already_there
from airflow_provider.storage.processes import Process, machine, start_of
from airflow_provider.storage.sealing import refuse_sealed

log = logging.getLogger(__name__)

_TRY = "try_number"


@dataclass(frozen=True)
class Claim:
    """One attempt's claim.

    :ivar owner: random, unique to this claim; empty text if the claim's object is unreadable
    :ivar boot_id: the machine's boot and the process's PID namespace; empty text if unknown
    :ivar pid_started: start time of the process in kernel ticks since boot; identifies the process together with
        ``pid``
    :ivar claimed_at: seconds since the Unix epoch on the owner's clock; for people only
    :ivar cancels: not a driver's claim: it cancels the one before it (see ``storage.cancelling``)
    :ivar beat_interval: seconds between two heartbeats
    :ivar lease: seconds for which the driver owns the job after a confirmed heartbeat (see ``core.lease``)
    :ivar run: distinguishes its DAG run from others of the same name (see ``core.job``); empty text if unknown
    :ivar deployment: the Airflow deployment that the claim is for; empty text if unknown
    :ivar successor: the attempt that set this fence in a gap, which ``cancels`` as well; else 0
    """

    epoch: int
    owner: str
    host: str
    boot_id: str
    pid: int
    pid_started: int
    claimed_at: float
    cancels: bool = False
    beat_interval: float = Lease.interval
    lease: float = Lease.duration
    run: str = ""
    successor: int = 0
    deployment: str = ""

    @property
    def terms(self) -> Lease:
        """The heartbeat terms of its driver."""
        return Lease(self.beat_interval, self.lease)


class Claims:
    """The claims of the job with the key prefix *prefix*."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def claim(self, lease: Lease | None = None, run: str = "", deployment: str = "") -> Claim:
        """Claim the next epoch for this process and fence all earlier ones.

        Does not claim another deployment's job. No other deployment can claim it between the check and our claim,
        because that claim would be the newest one, and ours the second of its epoch.

        Each round either succeeds or meets an object that another process has created, so the loop ends. Then the claim
        is created once more: a store that accepts this cannot keep two drivers apart. The bytes are the same, so
        nothing is damaged.

        :param lease: the driver's heartbeat terms
        :param run: distinguishes its DAG run from others of the same name
        :param deployment: the Airflow deployment that the claim is for
        :raises JobOfAnotherDeployment: the newest driver's claim names another one
        :raises StoreError: the store failed, or does not honour create-only puts; the epoch may have been taken
        """
        known = self._epochs()
        epoch = max(known, default=0) + 1
        self.require_own(known, deployment)
        while (claim := self.take(epoch, lease=lease, run=run, deployment=deployment)) is None:
            known = [*self._epochs(), epoch]
            epoch = max(known) + 1
            self.require_own(known, deployment)
        try:
            self._store.put_new(self._key(epoch), _encode(asdict(claim)))
        except ObjectExists:
            self._fence_gaps({*known, epoch}, claim)
            return claim
        raise ignores_create_only(self._store, self._key(epoch))

    def require_own(self, known: Iterable[int], deployment: str) -> None:
        """Make sure that the newest driver among the epochs *known* does not belong to another deployment.

        :raises JobOfAnotherDeployment: it is
        :raises StoreError: the store failed
        """
        newest = next(self._drivers(known), None) if deployment else None
        if newest is None or not is_another_deployment(newest.deployment, deployment):
            return
        raise JobOfAnotherDeployment(
            f"{self._store.uri}/{self._prefix} is the job of another Airflow deployment, {newest.deployment!r}: "
            f"attempt {newest.epoch} on {newest.host or 'an unknown host'}. This one is {deployment!r}.",
            remedy="Give each deployment an event store of its own, another prefix for example. If both are one, whose "
            f"[api] base_url has changed, set the option 'deployment' of the connection to {newest.deployment!r}.",
            epoch=newest.epoch,
        )

    def _fence_gaps(self, known: set[int], claim: Claim) -> None:
        """Take the first free epoch of each gap below *claim*; sends no request if there are no gaps."""
        for edge in sorted(epoch for epoch in known if epoch < claim.epoch and epoch + 1 not in known):
            epoch = edge
            while not self._is_fence(epoch):
                epoch += 1
                if self.take(epoch, cancels=True, successor=claim.epoch) is not None:
                    log.warning(
                        "The claims in %s/%s have a gap behind attempt %d: attempt %d is a fence.",
                        self._store.uri,
                        self._prefix,
                        edge,
                        epoch,
                    )
                    break

    def _is_fence(self, epoch: int) -> bool:
        found = self.get(epoch)
        return found is not None and found.successor > 0

    def take(
        self,
        epoch: int,
        *,
        cancels: bool = False,
        lease: Lease | None = None,
        run: str = "",
        successor: int = 0,
        deployment: str = "",
    ) -> Claim | None:
        """Claim *epoch* and no other; ``None`` if another process holds it.

        :param cancels: the claim only fences the epoch before it
        :param lease: the owner's heartbeat terms
        :param run: distinguishes its DAG run from others of the same name
        :param successor: the attempt for which the claim fences
        :param deployment: the Airflow deployment that the claim is for
        :raises StoreError: the store failed; the epoch may have been taken, which does no harm
        """
        terms = lease or Lease()
        claim = Claim(
            epoch=epoch,
            owner=uuid.uuid4().hex,
            host=socket.gethostname(),
            boot_id=machine(),
            pid=os.getpid(),
            pid_started=start_of(os.getpid()) or 0,
            claimed_at=time.time(),
            cancels=cancels,
            beat_interval=terms.interval,
            lease=terms.duration,
            run=run,
            successor=successor,
            deployment=deployment,
        )
        try:
            self._store.put_new(self._key(epoch), _encode(asdict(claim)))
        except ObjectExists:
            # If the answer to our own first request was lost, the claim there is ours.
            if self._parsed(epoch, lambda key: already_there(self._store, key)).owner != claim.owner:
                return None
        return claim

    def newest(self) -> Claim | None:
        """Return the claim of the newest epoch, ``None`` if the job was never claimed."""
        epochs = self._epochs()
        if not epochs:
            return None
        # A listing may show a claim that was just deleted. The epoch was taken all the same.
        return self.get(max(epochs)) or _unknown(max(epochs))

    def get(self, epoch: int) -> Claim | None:
        """Return the claim of *epoch*, ``None`` if there is none."""
        try:
            return self._parsed(epoch, self._store.get)
        except ObjectNotFound:
            return None

    def drivers_before(self, epoch: int, down_to: int = 1) -> Iterator[Claim]:
        """Yield drivers' claims before *epoch*, newest first; one listing, then one request each.

        :param down_to: the earliest epoch to look at
        """
        return self._drivers(known for known in self._epochs() if down_to <= known < epoch)

    def before(self, epoch: int, down_to: int = 1) -> Iterator[Claim]:
        """Yield all claims before *epoch*, newest first; one listing, then one request each.

        :param down_to: the earliest epoch to look at
        """
        return self._read_all(known for known in self._epochs() if down_to <= known < epoch)

    def _drivers(self, epochs: Iterable[int]) -> Iterator[Claim]:
        return (claim for claim in self._read_all(epochs) if not claim.cancels)

    def _read_all(self, epochs: Iterable[int]) -> Iterator[Claim]:
        return (claim for epoch in sorted(set(epochs), reverse=True) if (claim := self.get(epoch)) is not None)

    def taken(self, epoch: int) -> bool:
        """Whether *epoch* is claimed; one small request."""
        return self._store.exists(self._key(epoch))

    def replacing(self, claim: Claim) -> int | None:
        """Return the epoch that owns the job if somebody has deleted it under the driver of *claim*, and somebody has
        claimed it since: epochs begin at 1 again then, so that no later one need be there. One small request.
        """
        there = self.get(claim.epoch)
        newest = self.newest() if there is None else there
        return newest.epoch if newest is not None and newest.owner not in ("", claim.owner) else None

    def acknowledge(self, epoch: int, report: dict[str, Any], try_number: int = 0) -> None:
        """Record that the success of *epoch* was acknowledged. Idempotent: the first report stays.

        :param try_number: of the Airflow try that acknowledges it; 0 without Airflow
        """
        try:
            self._store.put_new(self._ack_key(epoch), _encode({**report, _TRY: try_number} if try_number else report))
        except ObjectExists:
            return

    def acknowledged(self, epoch: int) -> int | None:
        """Return the Airflow try that acknowledged the success of *epoch*, 0 if unknown; ``None`` if none has."""
        key = self._ack_key(epoch)
        try:
            return int(json.loads(refuse_sealed(self._store.get(key), key)).get(_TRY, 0))
        except ObjectNotFound:
            return None
        except (CorruptObject, ArithmeticError, AttributeError, RecursionError, TypeError, ValueError):
            return 0  # its existence is what matters

    def _epochs(self) -> list[int]:
        return numbers_in(self._store, f"{self._prefix}/claims/")

    def _parsed(self, epoch: int, read: Callable[[str], bytes]) -> Claim:
        key = self._key(epoch)
        try:
            return _decode(refuse_sealed(read(key), key), epoch)
        except (CorruptObject, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            # Its writer holds the epoch all the same; nothing else is known of it.
            log.warning("The claim %s in %s cannot be read: %s", key, self._store.uri, error)
            return _unknown(epoch)

    def _key(self, epoch: int) -> str:
        return claim_key(self._prefix, epoch)

    def _ack_key(self, epoch: int) -> str:
        return f"{self._prefix}/acks/{epoch:08d}.json"


def claim_key(prefix: str, epoch: int) -> str:
    """Return the key of the claim of *epoch*."""
    return f"{prefix}/claims/{epoch:08d}.json"


def _unknown(epoch: int) -> Claim:
    """Return the stand-in for an unreadable claim."""
    return Claim(epoch, owner="", host="", boot_id="", pid=0, pid_started=0, claimed_at=0.0)


def same_machine(claim: Claim) -> bool:
    """Whether the claim's process id refers to this machine, in this boot and PID namespace."""
    return bool(claim.boot_id) and claim.pid > 0 and (claim.host, claim.boot_id) == (socket.gethostname(), machine())


def process_is_gone(claim: Claim) -> bool:
    """Whether the claim's process has certainly ended; ``False`` also if that cannot be known from here."""
    return same_machine(claim) and Process(claim.pid, claim.pid_started).is_gone()


def _encode(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _decode(body: bytes, epoch: int) -> Claim:
    value = json.loads(body)
    if not isinstance(value, dict):
        raise TypeError(f"it is a {type(value).__name__}")
    lease = Lease.read(value.get("beat_interval"), value.get("lease"))
    claim = Claim(
        epoch=int(value["epoch"]),
        owner=str(value["owner"]),
        host=str(value["host"]),
        boot_id=str(value["boot_id"]),
        pid=int(value["pid"]),
        pid_started=int(value["pid_started"]),
        claimed_at=float(value["claimed_at"]),
        cancels=value.get("cancels") is True,
        beat_interval=lease.interval,
        lease=lease.duration,
        run=str(value.get("run", "")),
        successor=int(value.get("successor", 0)),
        deployment=str(value.get("deployment", "")),
    )
    if claim.epoch != epoch or not claim.owner:
        raise ValueError(f"it speaks of epoch {claim.epoch}")
    return claim
