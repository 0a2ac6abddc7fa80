"""The execution graph's record of a finished partition. Small, because a large job has a million of them.

A partition's name contains its rows, checksum, task time and attempt (``core.partitions``), so a record holds them only
if the events differ from the name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import NamedTuple


class Facts(NamedTuple):
    """A partition's facts besides place and size.

    :ivar duration: seconds of task time
    :ivar attempt: the attempt that computed it
    """

    rows: int
    checksum: str
    duration: float
    attempt: int


class PartitionRecord(NamedTuple):
    """A finished partition: where it is and what it cost.

    :ivar folder: the part of the key up to its last slash, which the partitions of a vertex share
    :ivar name: the rest of the key
    :ivar bytes: size of the object
    :ivar told: ``None`` if the name says the same
    """

    folder: str
    name: str
    bytes: int
    told: Facts | None = None

    @property
    def key(self) -> str:
        """Object key below the job's prefix."""
        return self.folder + self.name

    @property
    def facts(self) -> Facts:
        """The partition's facts."""
        return self.told or Facts(*_told_by(self.name))

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.facts.rows

    @property
    def checksum(self) -> str:
        """CRC-32 of the object, eight hexadecimal digits."""
        return self.facts.checksum

    @property
    def duration(self) -> float:
        """Seconds of task time."""
        return self.facts.duration

    @property
    def attempt(self) -> int:
        """The attempt that computed it."""
        return self.facts.attempt

    @classmethod
    def of(cls, key: str, rows: int, size: int, checksum: str, duration: float, attempt: int) -> PartitionRecord:
        """Return the record of the object *key*."""
        folder, slash, name = key.rpartition("/")
        return cls.within(sys.intern(folder + slash), name, rows, size, checksum, duration, attempt)

    @classmethod
    def within(
        cls, folder: str, name: str, rows: int, size: int, checksum: str, duration: float, attempt: int
    ) -> PartitionRecord:
        """Return the record of the object *name* in *folder*, a string that many records share."""
        told = (rows, checksum, duration, attempt)
        return cls(folder, name, size, None if _told_by(name) == told else Facts(*told))


class Tally(NamedTuple):
    """What one attempt has had of a vertex, while there were partitions of it.

    :ivar reused: number of partitions of earlier attempts
    :ivar bytes_reused: their stored bytes
    :ivar seconds_saved: their task time
    :ivar computed: number of partitions that the attempt has computed
    :ivar seconds: their task time
    """

    attempt: int
    reused: int = 0
    bytes_reused: int = 0
    seconds_saved: float = 0.0
    computed: int = 0
    seconds: float = 0.0

    def plus(self, records: Iterable[PartitionRecord]) -> Tally:
        """Return the sum with finished partitions."""
        _, reused, bytes_reused, saved, computed, seconds = self
        for record in records:
            facts = record.facts  # read from its name, once
            if facts.attempt < self.attempt:
                reused += 1
                bytes_reused += record.bytes
                saved += facts.duration
            elif facts.attempt == self.attempt:
                computed += 1
                seconds += facts.duration
        return Tally(self.attempt, reused, bytes_reused, round(saved, 3), computed, round(seconds, 3))


def _told_by(name: str) -> tuple[int, str, float, int] | tuple[()]:
    """Return the facts in a partition's name, as :class:`Facts`; an empty tuple if there are none."""
    try:
        _, attempt, _, rows, checksum, millis, _ = name.split(".")
        return int(rows[1:]), checksum[1:], int(millis[2:]) / 1000, int(attempt[1:])
    except ValueError:
        return ()
