"""When drivers are killed: seeded, so that a failure can be had again."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from airflow_provider.core import faults
from tests.queries.runs import Ended, ScriptRuns

SEED = int(os.environ.get("SPARK_RECOVERY_SEED", "1"))
"""Give another to try other moments."""

KILLED = -9

IN_RECOVERY_POINTS = (
    faults.AFTER_PARTITION_PUT,
    faults.AFTER_PARTITION_EVENT,
    faults.BEFORE_VERTEX_FINISHED,
    faults.AFTER_VERTEX_FINISHED,
)
"""Those that are passed only where something is stored."""


def moment(random: Random, full: float, first: float = 0.15, last: float = 0.85) -> float:
    """Seconds after its start at which a driver is killed.

    :param full: seconds that an uninterrupted run takes
    :param first: earliest share of these
    """
    return full * random.uniform(first, last)


def fault(random: Random) -> str:
    """A fault point, passed for the k-th time."""
    return f"{random.choice(IN_RECOVERY_POINTS)}@{random.randint(1, 6)}"


def killed_after(runs: ScriptRuns, target: Path, seconds: float) -> Ended:
    """Begin an attempt that is killed after *seconds*.

    A driver that is through before that has finished its job, so that the next one starts afresh; it is killed earlier.
    """
    for _ in range(4):
        ended = runs.attempt(target, kill_after=seconds)
        if ended.code == KILLED:
            return ended
        assert ended.code == 0, ended.log
        seconds = ended.seconds * 0.6
    raise AssertionError(f"four drivers were through before they could be killed, the last after {ended.seconds:.1f} s")


def killed_at(runs: ScriptRuns, target: Path, point: str) -> bool:
    """Begin an attempt that dies at a fault point; return whether it got there, or was through without passing it."""
    ended = runs.attempt(target, fault=point)
    assert ended.code in (KILLED, 0), f"{point}: {ended.log}"
    return ended.code == KILLED


def well(ended: Ended) -> Ended:
    """The same, once it is sure that the driver ended well."""
    assert ended.code == 0, ended.log
    return ended
