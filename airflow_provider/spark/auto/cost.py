"""Whether keeping a shuffle is worth its cost. Seconds of task time, bytes of files; as measured, not as estimated.

What a map task really took is known when it has ended, and so is the size of what it wrote. A shuffle is kept where
copying costs little against computing, and copying keeps within that share while it goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider.core.quantities import bytes_text

COPY_RATE = 200 * 2**20
"""Bytes that are copied into an object store in a second, as long as that has not been measured."""
LINK_RATE = 2**30
"""The same for a store of files, where copying may be a hard link."""
FIXED_COST = 0.15
"""Seconds that a shuffle costs beside copying: to find it, its identity, its events."""
_ENOUGH = 20 * 2**20
"""Bytes that tell how fast copying is."""


@dataclass
class CopyingCost:
    """What copying has cost in one application, and what it may cost.

    :ivar budget: seconds of keeping for one second of computing
    :ivar assumed: bytes per second, as long as that has not been measured
    :ivar bytes: that were copied so far
    :ivar seconds: that this took, of all executors together
    """

    budget: float
    assumed: float = COPY_RATE
    bytes: int = 0
    seconds: float = 0.0

    def copied(self, size: int, seconds: float) -> None:
        """Take into account that *size* bytes were copied in *seconds*."""
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
        """Say why *size* bytes that took *computing* seconds of task time are not kept; empty text if they are."""
        cost = self._cost(size)
        if cost <= computing * self.budget:
            return ""
        return (
            f"keeping {bytes_text(round(size))} would cost {cost:.1f} s, more than {self.budget:.0%} of the "
            f"{computing:.1f} s of task time that computing them took"
        )
