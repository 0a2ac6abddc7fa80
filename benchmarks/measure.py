"""Wall time and CPU time of everything that a process has started, read from ``/proc``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """Seconds on the clock, seconds of all processors, bytes stored."""

    wall: float
    cpu: float
    bytes: int = 0


class Meter:
    """Measures this process and its descendants: the JVM, Python's daemon and its workers.

    :param without: processes that do not count, with their descendants (the S3 server)
    """

    def __init__(self, without: Iterable[int] = ()) -> None:
        self._without = frozenset(without)
        self._wall = time.monotonic()
        self._cpu = self._cpu_now()

    def read(self) -> Cost:
        """Return what has passed since this meter was made."""
        return Cost(time.monotonic() - self._wall, self._cpu_now() - self._cpu)

    def _cpu_now(self) -> float:
        return cpu_of(os.getpid(), self._without)


def cpu_of(pid: int, without: Iterable[int] = ()) -> float:
    """Return the CPU seconds that a process and its descendants have used so far."""
    return sum(_cpu(each) for each in descendants(pid, without))


def descendants(pid: int, without: Iterable[int] = ()) -> list[int]:
    """Return *pid* and all that descend from it."""
    excluded = set(without)
    tree = [pid]
    for parent in tree:
        for file in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                tree += [child for child in map(int, file.read_text().split()) if child not in excluded]
            except OSError:
                continue
    return tree


def _cpu(pid: int) -> float:
    """Seconds used by a process and by those of its children that have ended (proc(5), fields 14 to 17)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS


def bytes_below(folder: Path) -> int:
    """Return the size of all files below *folder*."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
