"""Signs of life of a job's owner, and how they are watched.

The owner rewrites one small object every interval. An observer judges by whether it *changes* within a time-out on the
observer's own monotonic clock: clocks of two machines are never compared. At the default interval of 10 s this costs
two requests, 0.2 a second.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable

from airflow_provider.recovery.errors import Fenced, ObjectNotFound, StoreError
from airflow_provider.storage.claims import Claim, Claims
from airflow_provider.storage.object_store import ObjectStore

log = logging.getLogger(__name__)

ALIVE = "ALIVE"
"""State in the heartbeat of an owner that goes on; any other one is its last word."""


class Heartbeat:
    """Beats for one claim in a daemon thread, and looks at each beat whether somebody has claimed the next epoch.

    A failing store stops neither the thread nor the job: it warns once per outage and goes on trying. A fenced owner
    goes on beating until :meth:`stop`, so that its successor can see when it has really stopped.

    :param interval: seconds between two beats
    :param on_fenced: called once, in the thread, with the epoch of the newer owner
    """

    def __init__(
        self, store: ObjectStore, prefix: str, claim: Claim, interval: float, on_fenced: Callable[[int], None]
    ) -> None:
        self._store = store
        self._key = heartbeat_key(prefix, claim.epoch)
        self._claims = Claims(store, prefix)
        self._claim = claim
        self._interval = interval
        self._on_fenced = on_fenced
        self._fenced_by: int | None = None
        self._told = False
        self._beats = 0
        self._failing = False
        self._ending = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"heartbeat-{claim.epoch}", daemon=True)

    def start(self) -> None:
        """Begin to beat; the first beat is written by the thread, so that nobody waits for it."""
        self._thread.start()

    def check(self) -> None:
        """Ask the store now whether this claim still is the newest.

        :raises Fenced: it is not
        :raises StoreError: the store cannot say
        """
        if self._look() is not None:
            raise Fenced(
                f"Attempt {self._claim.epoch} has been replaced by attempt {self._fenced_by}.",
                remedy="Nothing is to be done: the newer attempt goes on with the job.",
                epoch=self._claim.epoch,
                newer=self._fenced_by,
            )

    def stop(self, state: str) -> None:
        """Stop beating and leave *state* (FINISHED, FAILED, FENCED) as the last word. Again does nothing.

        Waits for a beat under way, which the store's time-outs bound, because it must not overwrite the last word. A
        store error is logged: without the last word an observer just has to wait for its time-out.
        """
        if self._ended:
            return
        self._ended = True
        self._ending.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        try:
            self._beat(state)
        except StoreError as error:
            log.warning("The last heartbeat of attempt %d could not be written: %s", self._claim.epoch, error)

    def _run(self) -> None:
        while True:
            began = time.monotonic()
            self._beat_and_look()
            if self._ending.wait(max(0.0, self._interval - (time.monotonic() - began))):
                return

    def _beat_and_look(self) -> None:
        try:
            self._beat(ALIVE)
            if not self._told and (newer := self._look()) is not None:
                self._told = True
                self._on_fenced(newer)
        except Exception as error:  # noqa: BLE001  nothing may end the signs of life of a living driver
            if not self._failing:
                log.warning("Heartbeat of attempt %d: %s Trying again.", self._claim.epoch, error)
            self._failing = True
        else:
            self._failing = False

    def _beat(self, state: str) -> None:
        self._beats += 1
        body = {"owner": self._claim.owner, "beat": self._beats, "state": state}
        self._store.put(self._key, json.dumps(body, sort_keys=True).encode())

    def _look(self) -> int | None:
        """Return the epoch of the newer owner, if there is one."""
        if self._fenced_by is None and self._claims.taken(self._claim.epoch + 1):
            newest = self._claims.newest()
            self._fenced_by = max(newest.epoch if newest else 0, self._claim.epoch + 1)
        return self._fenced_by


def heartbeat_key(prefix: str, epoch: int) -> str:
    """Return the key of the heartbeat of *epoch*."""
    return f"{prefix}/heartbeats/{epoch:08d}.json"


def watch(store: ObjectStore, prefix: str, epoch: int, timeout: float, *, poll: float | None = None) -> bool:
    """Return whether the owner of *epoch* lives.

    ``True`` as soon as the heartbeat is seen to change, or to appear; ``False`` once it says that its owner has
    stopped, or once it was the same, or absent, from a first read to one at least *timeout* seconds later.

    :param timeout: seconds
    :param poll: seconds between two reads; by default a fifteenth of the time-out, at most 2 s
    :raises StoreError: the store cannot be read, so that nothing can be said
    """
    pause = poll if poll is not None else min(2.0, timeout / 15)
    key = heartbeat_key(prefix, epoch)
    deadline = time.monotonic() + timeout
    first = _read(store, key)
    while True:
        if _has_stopped(first):
            return False
        before = time.monotonic()
        if before < deadline:
            time.sleep(min(pause, deadline - before))
            before = time.monotonic()
        seen = _read(store, key)
        # One that is gone was removed with its job: nothing beats there.
        if seen is not None and seen != first:
            return not _has_stopped(seen)
        if before >= deadline:
            return False


def _read(store: ObjectStore, key: str) -> bytes | None:
    try:
        return store.get(key)
    except ObjectNotFound:
        return None


def _has_stopped(body: bytes | None) -> bool:
    try:
        return body is not None and str(json.loads(body)["state"]) != ALIVE
    except (ValueError, KeyError, TypeError):
        return False
