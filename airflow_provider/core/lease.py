"""How long a driver owns its job without a confirmed heartbeat, and when others may take over.

The driver writes both numbers into its claim, so no other process's setting can declare it dead. It counts from the
moment *before* it sent the last confirmed heartbeat; an observer counts from the moment *after* it read that heartbeat,
and waits one interval longer. So the lease ends before the wait does, whatever the clocks of the two machines say.
"""

from __future__ import annotations

from dataclasses import dataclass

LONGEST = 86400.0
"""Seconds that a lease lasts at most."""
_SLOWEST = 10.0
_BEATS = 3


@dataclass(frozen=True)
class Lease:
    """The heartbeat terms in a claim, in seconds. The defaults apply to claims without them.

    :ivar interval: between two heartbeats
    :ivar duration: how long the driver owns the job after a confirmed heartbeat
    """

    interval: float = _SLOWEST
    duration: float = _SLOWEST * _BEATS

    @classmethod
    def lasting(cls, seconds: float) -> Lease:
        """Return a lease of that length, with an interval of at most 10 s, so that at least three heartbeats fit into
        it.
        """
        duration = min(seconds, LONGEST)
        return cls(min(_SLOWEST, duration / _BEATS), duration)

    @classmethod
    def read(cls, interval: object, duration: object) -> Lease:
        """Return the lease stated in a claim; the default one for values that no driver writes."""
        if not isinstance(interval, int | float) or not isinstance(duration, int | float):
            return cls()
        # Every comparison with NaN is false.
        return cls(float(interval), float(duration)) if 0 < interval <= duration <= LONGEST else cls()

    @property
    def silence(self) -> float:
        """Seconds without a heartbeat change before the driver counts as lost."""
        return self.duration + self.interval
