"""How long a driver owns its job without a confirmed heartbeat, and when others may take the job over.

The driver writes both numbers into its claim, so that nobody else's setting can declare it dead. It counts from the
moment *before* it sent the heartbeat that was confirmed last; whoever wants to take over counts from the moment *after*
it has read that heartbeat, and waits one interval longer. So the lease is over before the wait is, whatever the clocks
of two machines say.
"""

from __future__ import annotations

from dataclasses import dataclass

LONGEST = 86400.0
"""Seconds that a lease lasts at most."""
_SLOWEST = 10.0
_BEATS = 3


@dataclass(frozen=True)
class Lease:
    """What a claim says of its driver, in seconds. The defaults are those of drivers that said nothing of it.

    :ivar interval: between two heartbeats
    :ivar duration: for which the driver owns the job after a confirmed heartbeat
    """

    interval: float = _SLOWEST
    duration: float = _SLOWEST * _BEATS

    @classmethod
    def lasting(cls, seconds: float) -> Lease:
        """Return a lease of that length: three heartbeats fit into it, and idle jobs beat at most every 10 s."""
        duration = min(seconds, LONGEST)
        return cls(min(_SLOWEST, duration / _BEATS), duration)

    @classmethod
    def read(cls, interval: object, duration: object) -> Lease:
        """Return the lease that a claim tells; the default one for values that no driver writes."""
        if not isinstance(interval, int | float) or not isinstance(duration, int | float):
            return cls()
        # No comparison with "not a number" holds.
        return cls(float(interval), float(duration)) if 0 < interval <= duration <= LONGEST else cls()

    @property
    def silence(self) -> float:
        """Seconds for which a heartbeat must stand still before its driver counts as lost."""
        return self.duration + self.interval
