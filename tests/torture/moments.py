"""When something happens to a driver: at chance, or in the middle of a write that it has yet to make."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

from tests.torture.outputs import marks_of

_POLL = 0.01
_START = 6.0
"""Seconds that a driver may take until its script runs."""
_SHORTEST = 1.0
"""Seconds over which moments of a write are spread, however short it was in a plain run."""
AIMS = ("anywhere", "anywhere", "tasks_write", "tasks_write", "commits", "begins")


class Moments:
    """Draws moments for one job.

    :param took: write → seconds, in the order of a plain run
    """

    def __init__(self, random: Random, took: Mapping[str, float], out: Path, witness: Path, timeout: float) -> None:
        self._random, self._took, self._out, self._witness, self._timeout = random, took, out, witness, timeout

    def wait(self, process: subprocess.Popen[bytes], to_come: int) -> bool:
        """Wait for a moment of what the driver has left to do; whether it still runs then.

        :param to_come: so many moments of the job are to come, this one among them; they share what is left
        """
        if self._begun(process.pid) == set() and self._random.random() < 0.1:
            return self._pause(process, self._random.uniform(0.1, _START))
        left = self._left(process.pid)
        ahead = min(len(left), self._random.randint(0, round(2 * len(left) / (to_come + 1))))
        if ahead == len(left):  # behind its last write
            reached = self._until(process, lambda: "script" in self._ended(process.pid))
            return reached and self._pause(process, self._random.uniform(0, 1.5))
        return self._in_the_write(process, left[ahead])

    def _in_the_write(self, process: subprocess.Popen[bytes], name: str) -> bool:
        if not self._until(process, lambda: name in self._begun(process.pid)):
            return False
        since = time.time() - 0.02  # a file's time is that of the kernel's last tick
        aim = self._random.choice(AIMS)
        if aim == "anywhere":
            return self._pause(process, self._random.uniform(0, 0.5 + 1.5 * max(_SHORTEST, self._took[name])))
        if aim == "begins":
            return self._pause(process, self._random.uniform(0, 0.2))

        def is_there() -> bool:
            # A write that ends unseen is followed by the next one: that is a moment, too.
            return name in self._ended(process.pid) or self._has_file(since, committed=aim == "commits")

        return self._until(process, is_there) and self._pause(process, self._random.uniform(0, 0.15))

    def _has_file(self, since: float, *, committed: bool) -> bool:
        """Whether tasks have written a file, or one stands where it will stay."""
        for path in self._out.glob("*/**/part-*"):
            if ("_temporary" in path.parts) is not committed and _time_of(path) >= since:
                return True
        return False

    def _left(self, pid: int) -> list[str]:
        """The writes that no driver has finished and this one has not begun."""
        done = self._ended() | self._begun(pid)
        return [name for name in self._took if name not in done]

    def _begun(self, pid: int) -> set[str]:
        return {name for what, name, of, _ in marks_of(self._witness) if what == "begin" and of == pid}

    def _ended(self, pid: int | None = None) -> set[str]:
        return {name for what, name, of, _ in marks_of(self._witness) if what == "end" and pid in (None, of)}

    def _until(self, process: subprocess.Popen[bytes], condition: Callable[[], bool]) -> bool:
        """Whether the driver still runs when the condition holds."""
        deadline = time.monotonic() + self._timeout
        while process.poll() is None and not condition():
            if time.monotonic() > deadline:
                return True
            time.sleep(_POLL)
        return process.poll() is None

    def _pause(self, process: subprocess.Popen[bytes], seconds: float) -> bool:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False


def _time_of(path: Path) -> float:
    try:
        return path.stat().st_ctime  # not its modification: a file that is moved keeps that one
    except OSError:
        return 0.0


def seconds_of(witness: Path) -> dict[str, float]:
    """How long each write of a run took, in their order."""
    begun: dict[str, float] = {}
    took: dict[str, float] = {}
    for what, name, _, moment in marks_of(witness):
        if what == "begin":
            begun[name] = moment
            took[name] = 0.0
        elif name in begun:
            took[name] = moment - begun[name]
    return took
