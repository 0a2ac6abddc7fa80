"""Wait for conditions, and end trees of processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

from airflow_provider.storage.processes import process_tree


def wait_until(condition: Callable[[], object], what: str, timeout: float = 120.0) -> None:
    """Return once *condition* holds.

    :param timeout: seconds
    :raises AssertionError: it did not come to hold; says *what* was waited for
    """
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(0.05)


def signal_tree(process: subprocess.Popen[str], number: signal.Signals) -> list[int]:
    """Send a signal to a process and all that descend from it; returns their ids."""
    tree = process_tree(process.pid)
    for pid in tree:
        os.kill(pid, number)
    return tree


def signal_quietly(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_tree(pid: int) -> None:
    """SIGKILL for a process's group, and for what descends from it in groups of its own (Spark's Python workers)."""
    descendants = process_tree(pid)[1:]
    os.killpg(pid, signal.SIGKILL)
    for descendant in descendants:
        signal_quietly(descendant, signal.SIGKILL)
