"""The heartbeat of a job's owner, and its lease: whether it may still write.

The owner rewrites one small object every interval, and before each beat looks whether the next epoch is claimed. A beat
is **confirmed** once a look *after* it has found no newer claim. The owner then owns the job from the moment before it
sent that beat, for the length of its lease. Nobody can take over the job within that time (``storage.liveness``):

* An observer of the heartbeat waits from the moment after it has read the beat, and longer than the lease.
* A claimant reads the heartbeat once more *after* its claim. It sees a beat sent before that, and watches again; a beat
  sent later is not confirmed, because the look that follows it finds the claim.

Each look confirms the beat before it. So at the default interval of 10 s all this costs two requests per interval, 0.2
a second. Writes within the lease cost at most one more: whether their own claim is still there, or somebody has deleted
the job and started it again with epoch 1.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from airflow_provider.core.errors import Fenced, OwnershipUnconfirmed, StoreError
from airflow_provider.core.job import name_of
from airflow_provider.storage.claims import Claim, Claims
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.processes import Process

log = logging.getLogger(__name__)

ALIVE = "ALIVE"
"""State in the heartbeat of an owner that goes on; any other one is its last word."""
PATIENCE = 300.0
"""Most seconds that a write waits for the store, if nothing else is said."""
_HURRY = 1.0
"""Most seconds between two attempts while a write waits."""
_ONE_LOOK = 5.0
"""Least seconds that a write waits, also in an outage that another one has waited for."""


def now() -> float:
    """Return seconds on a clock that runs on while the machine sleeps, because leases expire meanwhile."""
    try:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):  # not Linux
        return time.monotonic()


@dataclass(frozen=True)
class Beat:
    """The content of a heartbeat.

    :ivar number: grows with each beat; 0 if there is no heartbeat
    :ivar jvm: the driver's JVM, if known
    """

    number: int = 0
    state: str = ALIVE
    jvm: Process | None = None

    @classmethod
    def parse(cls, body: bytes | None) -> Beat:
        """Read a heartbeat; an unreadable one is still a sign of life, and its number only distinguishes it from
        others.
        """
        try:
            told = json.loads(body or b"{}")
            pid, started = int(told.get("jvm_pid", 0)), int(told.get("jvm_started", 0))
            jvm = Process(pid, started) if pid > 0 else None
            return cls(int(told.get("beat", 0)), str(told.get("state", ALIVE)), jvm)
        except (ValueError, TypeError, AttributeError):
            return cls(zlib.crc32(body or b""))


class Heartbeat:
    """Beats for one claim in a daemon thread, and knows whether its owner may write.

    A failing store stops neither the thread nor the job: the thread warns once per outage and keeps trying. A fenced
    owner keeps beating until :meth:`stop`, so that its successor can see when it has really stopped.

    :param interval: seconds between two beats
    :param on_fenced: called once, in the thread, with the epoch of the newer owner
    :param patience: seconds that a write waits for the store after the lease has run out
    :param jvm: the driver's JVM, if there is one; included in the beats
    """

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        claim: Claim,
        interval: float,
        on_fenced: Callable[[int], None],
        *,
        patience: float = PATIENCE,
        jvm: Callable[[], Process | None] = lambda: None,
        clock: Callable[[], float] = now,
    ) -> None:
        self._store = store
        self._key = heartbeat_key(prefix, claim.epoch)
        self._job = name_of(prefix)
        self._claims = Claims(store, prefix)
        self._claim = claim
        self._interval = interval
        self._on_fenced = on_fenced
        self._patience = patience
        self._jvm = jvm
        self._clock = clock
        self._told = False
        self._beats = 0
        self._own_seen_at = clock()
        self._sent_at: float | None = None
        """When the beat was sent that is not confirmed yet."""
        self._failing = False
        # The condition guards everything below.
        self._changed = threading.Condition()
        self._confirmed_at: float | None = None
        self._fenced_by: int | None = None
        self._error: Exception | None = None
        self._waiting = 0
        self._give_up_at: float | None = None
        """When writes stop waiting for this outage."""
        self._ending = False
        self._thread = threading.Thread(target=self._run, name=f"heartbeat-{claim.epoch}", daemon=True)

    def start(self) -> None:
        """Start beating; the thread writes the first beat, so the caller does not wait for it."""
        self._thread.start()

    def check(self) -> None:
        """Ask the store now whether this claim is still the newest.

        :raises Fenced: it is not
        :raises StoreError: the store does not answer
        """
        if self._look() is not None:
            raise self._fenced()

    @property
    def left(self) -> float:
        """Seconds left of the lease; zero or less if it has run out, or was never confirmed."""
        with self._changed:
            owned = self._confirmed_at is not None and self._fenced_by is None and not self._ending
            return self._until_end() if owned else 0.0

    @property
    def lapsed(self) -> bool:
        """Whether the lease has run out since it was confirmed."""
        with self._changed:
            return self._confirmed_at is not None and self._until_end() <= 0

    def confirm(self) -> None:
        """Return while the lease lasts, with at most one request per interval; else wait until ownership is confirmed.

        :raises Fenced: a newer attempt owns the job
        :raises OwnershipUnconfirmed: the store did not confirm it in time
        """
        self._look_at_own_claim()
        with self._changed:
            if self._settled():
                return
            arrived = self._clock()
            if self._give_up_at is None:
                self._give_up_at = arrived + self._patience
                if self._confirmed_at is not None:
                    log.warning(
                        "Attempt %d cannot confirm that it still owns its job; the write waits up to %g s for the "
                        "event store. %s",
                        self._claim.epoch,
                        self._patience,
                        self._error or "",
                    )
            give_up_at = max(self._give_up_at, arrived + min(self._patience, _ONE_LOOK))
            self._waiting += 1
            self._changed.notify_all()
            try:
                while not self._settled():
                    if (left := give_up_at - self._clock()) <= 0 or self._ending:
                        raise self._unconfirmed()
                    self._changed.wait(left)
            finally:
                self._waiting -= 1

    def _settled(self) -> bool:
        """Whether this claim owns the job. :raises Fenced: another one is known to"""
        if self._fenced_by is not None:
            raise self._fenced()
        if self._ending:  # its final heartbeat lets a successor begin at once
            return False
        return self._until_end() > 0

    def _until_end(self) -> float:
        """Seconds until the lease runs out; negative if it has, or was never confirmed."""
        return (-math.inf if self._confirmed_at is None else self._confirmed_at + self._claim.lease) - self._clock()

    @property
    def _begun_anew(self) -> bool:
        """Whether the job was deleted and begun anew, so that what has this attempt's number is another's."""
        return self._fenced_by is not None and self._fenced_by <= self._claim.epoch

    def _fenced(self) -> Fenced:
        deleted = " of the same job, which was deleted from the event store meanwhile" if self._begun_anew else ""
        return Fenced(
            f"Attempt {self._claim.epoch} has been replaced by attempt {self._fenced_by}{deleted}.",
            remedy="No action needed: the newer attempt continues the job.",
            epoch=self._claim.epoch,
            newer=self._fenced_by,
        )

    def _unconfirmed(self) -> OwnershipUnconfirmed:
        if self._ending:
            return OwnershipUnconfirmed(f"Attempt {self._claim.epoch} has ended. Nothing was written.")
        since = "" if self._confirmed_at is None else f" for {self._clock() - self._confirmed_at:.0f} s"
        return OwnershipUnconfirmed(
            f"Attempt {self._claim.epoch} cannot confirm that it owns job {self._job}: the event store "
            f"{self._store.uri} has not said so{since} ({self._error or 'no answer yet'}). Nothing was written.",
            remedy="Make the event store reachable for the driver, and retry: the job resumes.",
            epoch=self._claim.epoch,
        )

    def stop(self, state: str) -> None:
        """Stop beating and write *state* (FINISHED, FAILED, FENCED) as the final heartbeat. Idempotent.

        Waits for a beat in progress, which the store's timeouts limit, because it must not overwrite the final one. A
        store error is logged: without the final heartbeat, an observer just waits for its timeout.
        """
        with self._changed:
            if self._ending:
                return
            self._ending = True
            self._changed.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        try:
            self._beat(state)
        except StoreError as error:
            log.warning("The last heartbeat of attempt %d could not be written: %s", self._claim.epoch, error)

    def _run(self) -> None:
        while True:
            began = time.monotonic()
            self._look_and_beat()
            with self._changed:
                while not self._ending:
                    pause = min(self._interval, _HURRY) if self._waiting else self._interval
                    if (left := pause - (time.monotonic() - began)) <= 0:
                        break
                    self._changed.wait(left)
                if self._ending:
                    return

    def _look_and_beat(self) -> None:
        """Look, which confirms the last beat; beat; and look again if a write cannot wait for the next look."""
        try:
            self._look_and_tell()
            sent_at = self._clock()
            self._beat(ALIVE)
            self._sent_at = sent_at
            if not self._told and not self._lasts():
                self._look_and_tell()
        except Exception as error:  # noqa: BLE001  nothing may stop the heartbeat of a running driver
            if not self._failing:
                log.warning("Heartbeat of attempt %d: %s Trying again.", self._claim.epoch, error)
            self._failing = True
            with self._changed:
                self._error = error
        else:
            self._failing = False

    def _lasts(self) -> bool:
        """Whether the lease lasts until the next look."""
        return not self._waiting and self._until_end() > self._interval

    def _look_and_tell(self) -> None:
        newer = self._look()
        if newer is None and self._sent_at is not None:
            with self._changed:
                self._confirmed_at, self._sent_at = self._sent_at, None
                self._error = self._give_up_at = None
                self._changed.notify_all()
        elif newer is not None and not self._told:
            self._told = True
            self._on_fenced(newer)

    def _beat(self, state: str) -> None:
        if self._begun_anew:
            return
        self._beats += 1
        body: dict[str, object] = {"owner": self._claim.owner, "beat": self._beats, "state": state}
        jvm = self._jvm()
        if jvm is not None:
            body |= {"jvm_pid": jvm.pid, "jvm_started": jvm.started}
        self._store.put(self._key, json.dumps(body, sort_keys=True).encode())

    def _look(self) -> int | None:
        """Return the epoch of the newer owner, if there is one."""
        if self._fenced_by is None and self._claims.taken(self._claim.epoch + 1):
            newest = self._claims.newest()
            self._replaced_by(max(newest.epoch if newest else 0, self._claim.epoch + 1))
        elif self.lapsed:  # others may have found it silent, removed its job and begun anew
            self._replaced_by(self._claims.replacing(self._claim))
        return self._fenced_by

    def _look_at_own_claim(self) -> None:
        """See, before a write, whether the job was deleted meanwhile and begun anew; once for each interval.

        That the store does not answer says nothing: the lease is asked next.
        """
        began = self._clock()
        if self._fenced_by is None and began - self._own_seen_at >= self._interval:
            self._own_seen_at = began
            with suppress(StoreError):
                self._replaced_by(self._claims.replacing(self._claim))

    def _replaced_by(self, epoch: int | None) -> None:
        if epoch is not None:
            with self._changed:
                self._fenced_by = epoch
                self._changed.notify_all()


def heartbeat_key(prefix: str, epoch: int) -> str:
    """Return the key of the heartbeat of *epoch*."""
    return f"{prefix}/heartbeats/{epoch:08d}.json"
