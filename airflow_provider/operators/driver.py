"""A driver that another worker has started: whether it lives, and how it is ended."""

from __future__ import annotations

import json
import logging
import os
import signal
import time

from airflow_provider.recovery.errors import ObjectNotFound
from airflow_provider.storage.claims import Claim, process_is_gone, same_machine
from airflow_provider.storage.heartbeat import ALIVE, heartbeat_key
from airflow_provider.storage.object_store import ObjectStore

GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL, as long as the process lives."""
_POLL = 0.1

LOST = "LOST"
"""Said of a driver that ended without a last word."""


class SignsOfLife:
    """Watches one driver by its process, where that is on this machine, and by its heartbeat.

    :param timeout: seconds the heartbeat must stand still, on this observer's clock, before the driver counts as lost
    """

    def __init__(self, store: ObjectStore, prefix: str, claim: Claim, timeout: float) -> None:
        self._store = store
        self._key = heartbeat_key(prefix, claim.epoch)
        self._claim = claim
        self._timeout = timeout
        self._beat = b""
        self._seen_at = time.monotonic()

    def last_word(self) -> str:
        """Look once; return what the driver said of its end, ``LOST`` if it said nothing, empty text if it lives.

        :raises StoreError: the store cannot be read, so that nothing can be said
        """
        beat = self._read()
        state = _state(beat)
        if state not in ("", ALIVE):
            return state
        if beat != self._beat:
            self._beat, self._seen_at = beat, time.monotonic()
        silent = time.monotonic() - self._seen_at > self._timeout
        return LOST if silent or process_is_gone(self._claim) else ""

    def _read(self) -> bytes:
        try:
            return self._store.get(self._key)
        except ObjectNotFound:
            return b""


def _state(beat: bytes) -> str:
    try:
        return str(json.loads(beat)["state"])
    except (ValueError, KeyError, TypeError):
        return ""


def end_driver(claim: Claim, log: logging.Logger) -> bool:
    """End the process that holds *claim*, if it is one of this machine: SIGTERM, and SIGKILL after a grace.

    Its process id alone is not enough: host, boot and the start of the process must be the claim's, so that nobody
    else is ever hit. ``spark-submit`` ends with the Python driver.

    :returns: whether it is known to have ended
    """
    if not same_machine(claim) or not claim.pid_started:
        log.info("Attempt %d runs on %s; its process is out of reach.", claim.epoch, claim.host or "an unknown host")
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process_is_gone(claim):
            break
        log.info("Attempt %d: sending %s to its driver, process %d", claim.epoch, number.name, claim.pid)
        try:
            os.kill(claim.pid, number)
        except PermissionError:
            log.warning("Process %d belongs to another user and cannot be ended.", claim.pid)
            return False
        except ProcessLookupError:
            break
        _wait(claim)
    return process_is_gone(claim)


def _wait(claim: Claim) -> None:
    deadline = time.monotonic() + GRACE
    while not process_is_gone(claim) and time.monotonic() < deadline:
        time.sleep(_POLL)
