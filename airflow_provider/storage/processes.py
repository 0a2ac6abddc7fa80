"""Processes on this machine, identified by id and start time, so that a reused id never matches."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_POLL = 0.02
_GATEWAY = b"PYSPARK_GATEWAY_PORT="
"""In the environment of a Python driver that a JVM has started."""


@dataclass(frozen=True)
class Process:
    """A process on this machine.

    :ivar started: its start in kernel ticks since boot; 0 if unknown, in which case nothing is done to it
    """

    pid: int
    started: int

    def is_gone(self) -> bool:
        """Whether it has certainly ended; ``False`` also if that is unknown.

        Certain if the id is free, or belongs to a process with another start time or to a zombie without a living
        thread.
        """
        try:
            os.kill(self.pid, 0)  # sends no signal; unlike /proc, works with the mount option hidepid
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        started = start_of(self.pid)
        if started is None or not self.started:
            return False
        return started != self.started or _is_zombie(self.pid)

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; return whether it was sent. Cannot hit another process, even if the id is reused.

        :raises PermissionError: it belongs to another user
        """
        if not self.started or self.pid <= 1:
            return False
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        except (OSError, AttributeError):  # a kernel before 5.3
            if start_of(self.pid) != self.started:
                return False
            os.kill(self.pid, number)
            return True
        try:
            # The handle refers to the process that had the id when it was opened; check that process's start only now.
            if start_of(self.pid) != self.started:
                return False
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True

    def kill(self, patience: float = 10.0) -> bool:
        """Send SIGKILL, which also ends a paused process; return whether it is known to have ended.

        :param patience: seconds that the kernel may take
        """
        with suppress(PermissionError):
            self.send(signal.SIGKILL)
        return self.wait(patience)

    def wait(self, patience: float, poll: float = _POLL) -> bool:
        """Wait until it has ended, checking every *poll* seconds; return whether it did within *patience* seconds."""
        deadline = time.monotonic() + patience
        while not self.is_gone():
            if time.monotonic() >= deadline:
                return False
            time.sleep(poll)
        return True


def process(pid: int) -> Process | None:
    """Return the process that has this id now, ``None`` if that is unknown."""
    started = start_of(pid)
    return Process(pid, started) if started is not None else None


def jvm(pid: int) -> Process | None:
    """Return the JVM that has this id now, ``None`` if it is not a JVM, such as an orphan's new parent."""
    return process(pid) if told_of(pid, "comm").strip() == b"java" else None


def start_of(pid: int) -> int | None:
    """Return the start of a process in kernel ticks since boot."""
    fields = _status(pid)
    return int(fields[19]) if len(fields) > 19 else None


def seconds_of_own() -> float:
    """Return for how many seconds this process has run; 0 if unknown."""
    started = start_of(os.getpid())
    if started is None:
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK"))


def machine() -> str:
    """Return boot and PID namespace, which are equal only for processes that see each other's process ids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def ancestors(pid: int) -> list[int]:
    """Return a process and those above it."""
    found = [pid]
    while len(fields := _status(found[-1])) > 1 and int(fields[1]) > 0:
        found.append(int(fields[1]))
    return found


def jvm_above(pid: int) -> Process | None:
    """Return the JVM that started a process, directly or through a shell: ``PYSPARK_DRIVER_PYTHON`` may be a script."""
    above = (jvm(each) for each in ancestors(pid)[1:3])
    return next((found for found in above if found is not None), None)


def jvms_of(driver: Process) -> list[Process]:
    """Return the JVMs of a living Python driver: those that it started, and the one that started it."""
    above = jvm_above(driver.pid) if _GATEWAY in told_of(driver.pid, "environ") else None
    found = [made for made in (*map(jvm, process_tree(driver.pid)[1:]), above) if made is not None]
    return found if not driver.is_gone() else []


def process_tree(pid: int) -> list[int]:
    """Return a process and all its descendants, parents first."""
    tree = [pid]
    for parent in tree:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            with suppress(OSError):  # it has just ended
                tree += [int(child) for child in children.read_text().split() if int(child) not in tree]
    return tree


def told_of(pid: int, name: str) -> bytes:
    """Return the content of a process's ``/proc`` file *name*; empty if the process is gone or hidden."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _status(pid: int) -> list[str]:
    """Return the fields of ``/proc/<pid>/stat`` from the third (the state) on; see proc(5)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _is_zombie(pid: int) -> bool:
    """Whether no thread of the process runs any more; the first thread may end before the others."""
    try:
        return _status(pid)[:1] == ["Z"] and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except OSError:
        return False
