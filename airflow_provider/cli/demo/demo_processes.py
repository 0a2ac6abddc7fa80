"""Start the demo's processes with a log file each, find them by a mark in their environment, and end them by pid.

Airflow and Spark start further processes, some in their own process groups or sessions. All of them inherit the mark,
so nothing that the demo started outlives it, and nothing else is touched.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from airflow_provider.storage.processes import told_of

MARK = "SPARK_RECOVERY_DEMO_RUN"

T = TypeVar("T")


class DemoError(Exception):
    """The demo cannot continue, or a check failed; ``log`` is the file with details."""

    def __init__(self, message: str, log: Path | None = None) -> None:
        super().__init__(message)
        self.log = log


def free_port() -> int:
    """Return a free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(what: str, look: Callable[[], T | None], *, timeout: float, pause: float = 0.2) -> T:
    """Call *look* until it returns a true value, and return that.

    :param timeout: seconds
    :raises DemoError: it did not happen in time
    """
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(pause)
    raise DemoError(f"Waited {timeout:.0f} s for {what}, which did not come.")


class Processes:
    """All processes of one demo run.

    :param logs: folder for one log file per process
    :param environment: the environment of all of them
    """

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        self.logs = logs
        self.environment = {**environment, MARK: secrets.token_hex(8)}
        self._started: list[tuple[str, subprocess.Popen[bytes]]] = []

    def log(self, name: str) -> Path:
        """Return the log file of the process *name*."""
        return self.logs / f"{name}.log"

    def start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start *command* in its own session, so that Ctrl-C reaches only the demo."""
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
            )
        self._started.append((name, process))
        return process

    def finish(self, name: str, process: subprocess.Popen[bytes], timeout: float) -> None:
        """Wait for the process started as *name* to end. :raises DemoError: it failed or took too long"""
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise DemoError(f"{name} has not ended within {timeout:.0f} s.", self.log(name)) from None
        self._started.remove((name, process))
        if code:
            raise DemoError(f"{name} ended with exit code {code}.", self.log(name))

    def check(self) -> None:
        """Raise :class:`DemoError` if a process that should be running has ended."""
        for name, process in self._started:
            if process.poll() is not None:
                raise DemoError(f"{name} has ended with exit code {process.returncode}.", self.log(name))

    def stop(self) -> None:
        """End everything that this run started: SIGTERM first, SIGKILL after five seconds."""
        for _, process in self._started:
            send(signal.SIGTERM, [process.pid])
        deadline = time.monotonic() + 5
        while self._alive() and time.monotonic() < deadline:
            time.sleep(0.1)
        while alive := self._alive():
            send(signal.SIGKILL, alive)
            time.sleep(0.05)
        self._started.clear()

    def _alive(self) -> list[int]:
        for _, process in self._started:
            process.poll()  # reap
        mark = f"{MARK}={self.environment[MARK]}".encode()
        return [pid for pid in all_processes() if mark in told_of(pid, "environ").split(b"\0")]


def all_processes() -> list[int]:
    """Return all pids on this machine."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def command_of(pid: int) -> str:
    """Return a process's command line, empty text if it has ended."""
    return told_of(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace")


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    """Send a signal to each of *pids* that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
