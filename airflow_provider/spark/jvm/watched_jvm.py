"""Watch the driver's JVM: if it has ended, or does not answer for long, the attempt ends.

Python can outlive its JVM, or wait for it for ever, while its heartbeat goes on, so nobody would retry. A script need
not notice, because it may catch every error. So a thread watches the process, and asks the JVM for the time on a
connection of its own. Only time in which this process itself was running counts; otherwise a machine that sleeps would
end its jobs. A script that has stopped Spark needs no JVM.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from airflow_provider.core.errors import JvmLost
from airflow_provider.spark.jvm.driver_jvm import driver_jvm, is_submitted

log = logging.getLogger(__name__)

_TICK = 1.0
"""Seconds between two looks."""
_ASK_EVERY = 10.0
"""Most seconds between two questions."""
_PATIENCE = 5.0
"""Most seconds that a JVM may take to end after it has closed its connections."""
_THE_TIME = "c\nz:java.lang.System\ncurrentTimeMillis\ne\n"
"""A question in Py4J's protocol."""


class WatchedJvm:
    """Watches in a daemon thread, from construction to :meth:`stop`. Imports nothing, like ``driver_jvm``.

    :param timeout: seconds that the JVM may leave a question unanswered
    :param on_lost: called once, in the thread, also with whether the JVM is known to have ended; must end the process
    """

    def __init__(self, timeout: float, on_lost: Callable[[JvmLost, bool], None]) -> None:
        self._timeout = timeout
        self._on_lost = on_lost
        self._submitted_by = driver_jvm() if is_submitted() else None
        self._parent = os.getppid() if is_submitted() else 0
        self._line: _Line | None = None
        self._knows_it = False
        """Whether the JVM has ever answered; one that never does speaks another protocol, and is not judged."""
        self._silent = 0.0
        """Seconds that a question has been unanswered."""
        self._asked = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watched-jvm", daemon=True)
        self._thread.start()

    def stop(self, *, disconnected: bool) -> JvmLost | None:
        """Stop watching; return whether the JVM has ended. Does not return if the thread has found a loss before.

        :param disconnected: the script failed because a connection to the JVM closed, which means that the JVM is
            ending
        """
        self._stopped.set()
        self._thread.join()
        until = time.monotonic() + (_PATIENCE if disconnected else 0)
        while (lost := self._ended()) is None and time.monotonic() < until:
            time.sleep(0.1)
        return lost

    def _run(self) -> None:
        looked = time.monotonic()
        while not self._stopped.wait(_TICK):
            since, looked = looked, time.monotonic()
            ended = self._ended()
            lost = ended or self._hangs(min(looked - since, 2 * _TICK))
            if lost is not None:
                self._on_lost(lost, ended is not None)
                return
        self._hang_up()

    def _ended(self) -> JvmLost | None:
        if self._submitted_by is not None:
            return _has_ended("") if self._submitted_by.is_gone() else None
        if self._parent:
            return _has_ended("") if os.getppid() != self._parent else None
        process = getattr(_gateway(), "proc", None)
        code = process.poll() if process is not None else None
        if code is None:
            return None
        name = f"exit code {code}" if code >= 0 else f"signal {-code}"
        with suppress(ValueError):  # not every signal has a name
            name = signal.Signals(-code).name if code < 0 else name
        return _has_ended(f": {name}")

    def _hangs(self, seconds: float) -> JvmLost | None:
        """Check for an answer, and ask again.

        :param seconds: in which this process itself ran since the last look
        """
        gateway = _gateway()
        if gateway is None:
            self._hang_up()
            return None
        try:
            answered = self._has_answered(gateway.gateway_parameters)
        except OSError:
            self._hang_up()
            answered = False
        if answered:
            self._knows_it, self._silent = True, 0.0
        if answered or answered is None:
            return None
        warned = self._silent >= self._timeout / 10
        self._silent += seconds if self._knows_it else 0.0
        if self._silent >= self._timeout:
            return _has_not_answered(self._silent)
        if not warned and self._silent >= self._timeout / 10:
            log.warning(
                "The driver's JVM has not answered for %.0f s. After %g s (jvm_timeout) this attempt ends.",
                self._silent,
                self._timeout,
            )
        return None

    def _has_answered(self, parameters: Any) -> bool | None:
        """Whether the last question was answered; asks again after a while. ``None`` if none was asked before."""
        if self._line is None:
            self._line = _Line(parameters)
            self._asked = time.monotonic()
            return None
        answered = not self._line.is_waiting()
        if answered and time.monotonic() - self._asked >= min(_ASK_EVERY, self._timeout / 4):
            self._line.send(_THE_TIME)
            self._asked = time.monotonic()
        return answered

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


class _Line:
    """A connection to the JVM's gateway that never blocks."""

    def __init__(self, parameters: Any) -> None:
        self._socket = socket.create_connection((parameters.address, parameters.port), _TICK)
        self._socket.setblocking(False)
        self._open = 0
        if parameters.auth_token:
            self.send(f"A\n{parameters.auth_token}\n")
        self.send(_THE_TIME)

    def send(self, command: str) -> None:
        self._socket.sendall(command.encode())
        self._open += 1

    def is_waiting(self) -> bool:
        """Whether a command has no answer yet; each answer is a line. :raises OSError: the JVM has hung up"""
        while self._open:
            try:
                answers = self._socket.recv(4096)
            except BlockingIOError:
                return True
            if not answers:
                raise ConnectionResetError
            self._open -= answers.count(b"\n")
        return False

    def close(self) -> None:
        self._socket.close()


def _gateway() -> Any:
    """Return the gateway to the JVM of the script's Spark; ``None`` if it has no Spark now."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return getattr(context, "_gateway", None) if getattr(context, "_active_spark_context", None) is not None else None


def _has_ended(how: str) -> JvmLost:
    return JvmLost(
        f"The driver's JVM has ended{how}.",
        remedy="Look for its last lines in the log. If it ran out of memory, raise spark.driver.memory, or the limit "
        "of its machine or container.",
    )


def _has_not_answered(seconds: float) -> JvmLost:
    return JvmLost(
        f"The driver's JVM has not answered for {seconds:.0f} s.",
        remedy="If it collects garbage for so long, raise spark.driver.memory; if it may be paused for so long, raise "
        "the option jvm_timeout.",
    )
