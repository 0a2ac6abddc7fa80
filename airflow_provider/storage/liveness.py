"""Judge whether a driver is alive; used by drivers, operator, trigger, page and command line alike.

It judges by the process if that is on this machine, and by the heartbeat: whether it *changes* within the silence that
the driver's own claim allows, on the observer's monotonic clock. Clocks of two machines are never compared, and an
observer may be more patient than the claim, never less.
"""

from __future__ import annotations

import enum
import logging
import os
import time
from collections.abc import Callable, Sequence

from airflow_provider.core.errors import CorruptObject, ObjectNotFound
from airflow_provider.storage.claims import Claim, process_is_gone, same_machine
from airflow_provider.storage.heartbeat import ALIVE, Beat, heartbeat_key
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.processes import Process, ancestors, jvms_of

_SLOWEST_POLL = 2.0
_LOOKS = 15
"""Looks within the silence of a driver, at least."""


class Life(enum.Enum):
    """What is known of a driver."""

    WATCHING = "nothing has changed yet, and not for long enough"
    ALIVE = "its heartbeat moves"
    SILENT = "its heartbeat has stood still for as long as its claim allows"
    GONE = "its process has ended"
    STOPPED = "it has said so"

    @property
    def over(self) -> bool:
        """Whether the driver has ended or counts as lost."""
        return self in (Life.SILENT, Life.GONE, Life.STOPPED)


class Liveness:
    """Judges one driver over a series of looks.

    :param claim: the driver's claim, which states the allowed silence
    :param timeout: seconds of silence to allow if that is longer
    """

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        claim: Claim,
        timeout: float = 0.0,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.claim = claim
        self.beat = Beat()
        """The last one that was seen."""
        self._store = store
        self._key = heartbeat_key(prefix, claim.epoch)
        self.patience = max(claim.terms.silence, timeout)
        """Seconds for which the heartbeat must stand still before the driver counts as lost."""
        self._clock = clock
        self._body: bytes | None = None
        self._looked = self._moved = False
        self._since = 0.0

    @property
    def word(self) -> str:
        """The end state that the driver reported; empty text if there is none."""
        return "" if self.beat.state == ALIVE else self.beat.state

    def look(self) -> Life:
        """Look once, with one request.

        :raises StoreError: the store cannot be read, so the state is unknown
        """
        began = self._clock()
        try:
            body: bytes | None = self._store.get(self._key)
        except ObjectNotFound:
            body = None
        except CorruptObject as error:  # its content does not count, but a change is a sign of life
            body = str(error.ids["content"]).encode()
        return self.judge(body, began)

    def judge(self, body: bytes | None, began: float | None = None) -> Life:
        """Judge by the heartbeat's content, ``None`` if there is none.

        :param began: when the read began
        """
        read_at = self._clock()
        # A missing heartbeat was removed with its job: nothing beats there.
        if not self._looked or (body is not None and body != self._body):
            self._moved = self._looked
            self._looked, self._since = True, read_at
            self._body, self.beat = body, Beat.parse(body)
        if self.word:
            return Life.STOPPED
        if process_is_gone(self.claim):
            return Life.GONE
        if (read_at if began is None else began) - self._since >= self.patience:
            return Life.SILENT
        return Life.ALIVE if self._moved else Life.WATCHING

    def wait(self) -> Life:
        """Look until it is clear whether the driver is alive: until its heartbeat changes, or the silence is over.

        :raises StoreError: the store cannot be read
        """
        while (life := self.look()) is Life.WATCHING:
            time.sleep(self.pause)
        return life

    @property
    def pause(self) -> float:
        """Seconds until the next look is useful."""
        left = self._since + self.patience - self._clock()
        return max(0.0, min(_SLOWEST_POLL, self.patience / _LOOKS, left))

    def end_what_is_left(self, log: logging.Logger) -> bool:
        """End a lost or stopped driver and its JVM if they are on this machine; SIGKILL also ends paused processes.

        :returns: ``False`` if a process on this machine is known not to have ended
        """
        if not same_machine(self.claim):
            return True
        driver = Process(self.claim.pid, self.claim.pid_started)
        ours = ancestors(os.getpid())
        if driver.pid in ours:
            return True
        named = [self.beat.jvm] if self.beat.jvm is not None else []
        ended = True
        for process in dict.fromkeys([driver, *jvms_of(driver), *named]):
            if process.pid in ours or not process.started or process.is_gone():
                continue
            log.warning(
                "Attempt %d is silent, and process %d of it is still there; ending it.", self.claim.epoch, process.pid
            )
            if not process.kill():
                log.warning("Process %d of attempt %d could not be ended.", process.pid, self.claim.epoch)
                ended = False
        return ended


def wait_for_end(watched: Sequence[Liveness], log: logging.Logger) -> None:
    """Wait until none of these drivers is running; then end what they left on this machine.

    A living driver notices at its next heartbeat that it is fenced, stops, and reports it. A killed driver leaves a
    heartbeat that no longer changes.

    :raises StoreError: the store cannot be read
    """
    left, told = list(watched), set[int]()
    while True:
        still = []
        for liveness in left:
            life, epoch = liveness.look(), liveness.claim.epoch
            if life in (Life.SILENT, Life.GONE):
                liveness.end_what_is_left(log)
            elif not life.over:
                still.append(liveness)
                if epoch not in told:
                    log.info(
                        "Attempt %d (process %d on %s) did not say how it ended; watching its heartbeat for up to "
                        "%g s.",
                        epoch,
                        liveness.claim.pid,
                        liveness.claim.host or "an unknown host",
                        liveness.patience,
                    )
                    told.add(epoch)
                if life is Life.ALIVE and -epoch not in told:
                    log.info("Attempt %d is still at work; waiting for it to notice that it is fenced.", epoch)
                    told.add(-epoch)
        if not still:
            return
        left = still
        time.sleep(min(liveness.pause for liveness in left))
