"""Decide whether keeping a shuffle is worth its cost, from measured task seconds and file bytes, not estimates.

When a map task has ended, its time and the size of its output are known. A shuffle is kept if copying costs little
compared with computing, and all copying stays within that share.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from airflow_provider.core.quantities import bytes_text

COPY_RATE = 200 * 2**20
"""Bytes per second that are assumed for copying into an object store until the rate is measured."""
LINK_RATE = 2**30
"""The same for a store of files, where copying may be a hard link."""
FIXED_COST = 0.15
"""Seconds that a shuffle costs besides copying: to find it, identify it, and record its events."""
_ENOUGH = 20 * 2**20
"""Bytes to copy before the measured rate counts."""
_COPY_EVERY = (5.0, 60.0)
"""Seconds, at least and at most, between two Spark jobs that copy map outputs of one stage while it runs."""
_COPY_SHARE = 0.1
"""In between, they follow after this share of the time since the first one."""


@dataclass
class CopyingCost:
    """What copying has cost in one application, and may cost.

    :ivar budget: seconds of keeping for one second of computing
    :ivar assumed: bytes per second until the rate is measured
    :ivar bytes: copied so far
    :ivar seconds: spent copying them, over all executors
    """

    budget: float
    assumed: float = COPY_RATE
    bytes: int = 0
    seconds: float = 0.0

    def copied(self, size: int, seconds: float) -> None:
        """Add *size* bytes copied in *seconds* to the measurement."""
        self.bytes += size
        self.seconds += seconds

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.bytes / self.seconds if self.bytes >= _ENOUGH and self.seconds > 0 else self.assumed

    @property
    def least(self) -> float:
        """Seconds of task time below which no shuffle is kept, whatever its size."""
        return self.lacking(0.0, 0.0)

    def lacking(self, computing: float, size: float) -> float:
        """Return the seconds of task time that *size* bytes lack to be worth keeping; 0 if they are worth it."""
        worth = self._cost(size) / self.budget if self.budget > 0 else float("inf")
        return max(0.0, worth - computing)

    def _cost(self, size: float) -> float:
        return FIXED_COST + size / self.rate

    def too_high(self, computing: float, size: float) -> str:
        """Return why *size* bytes that took *computing* seconds of task time are not kept; empty if they are."""
        cost = self._cost(size)
        if cost <= computing * self.budget:
            return ""
        return (
            f"keeping {bytes_text(round(size))} would cost {cost:.1f} s, more than {self.budget:.0%} of the "
            f"{computing:.1f} s of task time that computing them took"
        )


class Pace:
    """When the next map outputs of a stage that still runs may be copied.

    Few jobs copy outputs of one stage, even in hours, so that Spark's UI still has the script's own.
    """

    def __init__(self) -> None:
        self._due = 0.0
        self._first: float | None = None

    @property
    def due(self) -> bool:
        """Whether it is time."""
        return time.monotonic() >= self._due

    def at_once(self) -> None:
        """Make it time now."""
        self._due = 0.0

    def wait(self, seconds: float) -> None:
        """Make it time in so many seconds."""
        self._due = time.monotonic() + seconds

    def copied(self) -> None:
        """Note that a job has copied some."""
        now, (least, most) = time.monotonic(), _COPY_EVERY
        self._first = self._first or now
        self.wait(min(most, max(least, _COPY_SHARE * (now - self._first))))
