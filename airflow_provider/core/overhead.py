"""Measure what recovery costs an attempt: CPU and wall-clock seconds, by purpose.

Each second is counted once. The script's threads wait for recovery when their calls pass through it; everything else
runs in recovery's own threads, beside the script.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow_provider.core.quantities import seconds_text

OVERHEAD = "overhead"
"""Coordinator that keeps what an attempt has spent so far."""

STARTING = "starting"
"""From the start of the driver's process until the script begins."""
WAITING = "waiting"
"""The script's calls that recovery has something to do with, without what Spark does in them."""
LOOKING = "looking"
"""To see which shuffles run, and what their tasks have taken and written."""
IDENTITIES = "identities"
COPYING = "copying"
STORING = "storing"
"""Events, by the thread that writes them."""
IN_JVM = "in the JVM"
"""The thread of the driver's JVM that answers the watching one; what the JVM's compiler takes for it is not known."""


class Overhead:
    """Time spent so far. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spent: dict[str, tuple[float, float]] = {}
        self._thread = _Thread()

    def add(self, what: str, cpu: float, seconds: float) -> None:
        """Add CPU and wall-clock seconds."""
        with self._lock:
            before = self._spent.get(what, (0.0, 0.0))
            self._spent[what] = (before[0] + cpu, before[1] + seconds)

    def set(self, what: str, cpu: float, seconds: float) -> None:
        """Replace a purpose's totals with ones counted elsewhere."""
        with self._lock:
            self._spent[what] = (cpu, seconds)

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Count this thread's time within the block, except what the block counts for another purpose."""
        outer, self._thread.inner = self._thread.inner, (0.0, 0.0)
        cpu, began = time.thread_time(), time.monotonic()
        try:
            yield
        finally:
            cpu, seconds = time.thread_time() - cpu, time.monotonic() - began
            inner = self._thread.inner
            self._thread.inner = (outer[0] + cpu, outer[1] + seconds)
            self.add(what, cpu - inner[0], seconds - inner[1])

    @contextmanager
    def not_ours(self) -> Iterator[None]:
        """Do not count this thread's time within the block: Spark works for the script."""
        outer, cpu, began = self._thread.inner, time.thread_time(), time.monotonic()
        try:
            yield
        finally:
            spent = (time.thread_time() - cpu, time.monotonic() - began)
            self._thread.inner = (outer[0] + spent[0], outer[1] + spent[1])

    def state(self, epoch: int) -> dict[str, Any]:
        """Return an attempt's overhead as coordinator state."""
        with self._lock:
            spent = {what: [round(each, 3) for each in both] for what, both in self._spent.items()}
        return {"attempt": epoch, "spent": spent}


class _Thread(threading.local):
    def __init__(self) -> None:
        self.inner = (0.0, 0.0)
        """What was counted inside of what this thread is at."""


def overhead_of(coordinators: Mapping[str, Mapping[str, Any]], epoch: int) -> dict[str, dict[str, float]]:
    """Return an attempt's recorded overhead: ``{"looking": {"cpu": …, "seconds": …}, …}``."""
    state = coordinators.get(OVERHEAD, {})
    if state.get("attempt") != epoch:
        return {}
    return {what: {"cpu": float(cpu), "seconds": float(seconds)} for what, (cpu, seconds) in state["spent"].items()}


def overhead_text(spent: Mapping[str, Mapping[str, float]]) -> str:
    """Return the overhead as a sentence."""
    total = seconds_text(sum(each["cpu"] for each in spent.values()))
    parts = (
        f"{what} {seconds_text(each['cpu'])}" + (f" ({seconds_text(each['seconds'])})" if each["seconds"] else "")
        for what, each in spent.items()
    )
    return f"Recovery took {total} of CPU (and on the clock): {', '.join(parts)}."
