"""What the tasks of a job have taken so far, by what they have computed and by what needs it. Pure.

A driver records it while it runs. Tasks count that have succeeded, and those that run; not those that failed or that
recovery has started itself, nor those of streaming queries, whose own checkpoints are their recovery.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

TASK_TIME = "task-time"
"""Coordinator that keeps what the tasks have taken so far."""

STEP = "step/"
"""With what the coordinators of ``step`` begin."""
AGAIN = "again"
"""What is remembered of a step under this name says why a retry runs it again."""
ANY = ""
"""In the place of a name: what each attempt runs again."""

_MOST_USES = 200
"""Uses that are recorded apart. What smaller ones have taken counts as what each attempt runs again."""


@dataclass(frozen=True)
class Use:
    """What tasks were used for.

    :ivar computes: the vertex whose partitions they compute; empty text if none is stored of what they compute
    :ivar needed_by: what reads their rows: vertices, and outputs and steps by their coordinators; :data:`ANY` among
        them for what each attempt runs again. Nothing, if nothing has read them yet.
    """

    computes: str
    needed_by: tuple[str, ...] = ()


TaskTime = Mapping[Use, float]
"""Seconds of task time by what it was used for."""

Stage = int | str
"""Tasks of one kind: those that write a shuffle, by its number, or the last ones of Spark's jobs, by what they are for.
"""


@dataclass(frozen=True)
class StageTimes:
    """What the stages of one application have taken.

    :ivar seconds: stage → task time
    :ivar read_by: number of a shuffle → the stages that read it
    """

    seconds: Mapping[Stage, float]
    read_by: Mapping[int, Set[Stage]]


def task_time(times: StageTimes, shuffles: Mapping[int, str], vertices: Container[str]) -> dict[Use, float]:
    """Return the task time of an application.

    :param shuffles: number of a shuffle → the vertex that it is, for those that are kept
    :param vertices: all that are known
    """
    return together((_use(stage, times, shuffles, vertices), seconds) for stage, seconds in times.seconds.items())


def _use(stage: Stage, times: StageTimes, shuffles: Mapping[int, str], vertices: Container[str]) -> Use:
    if isinstance(stage, int):
        return Use(shuffles.get(stage, ANY), _needed_by(stage, times.read_by, shuffles))
    return Use(stage) if stage in vertices else Use(ANY, (stage,))


def _needed_by(shuffle: int, read_by: Mapping[int, Set[Stage]], shuffles: Mapping[int, str]) -> tuple[str, ...]:
    """Return what reads a shuffle, with the next kept one in the place of others that are not kept."""
    found, pending, seen = set[str](), [shuffle], {shuffle}
    while pending:
        number = pending.pop()
        readers = read_by.get(number, ())
        if not readers and number != shuffle:
            found.add(ANY)  # a shuffle that nobody keeps, and nothing has read yet
        for reader in readers:
            if isinstance(reader, str):
                found.add(reader)
            elif reader in shuffles:
                found.add(shuffles[reader])
            elif reader not in seen:
                seen.add(reader)
                pending.append(reader)
    return tuple(sorted(found))


def together(used: Iterable[tuple[Use, float]]) -> dict[Use, float]:
    """Return the sums of task times. What computes a vertex is one use, whatever has read it at different times."""
    used = list(used)
    needed: dict[str, set[str]] = defaultdict(set)
    for use, _ in used:
        if use.computes:
            needed[use.computes].update(use.needed_by)
    sums: dict[Use, float] = defaultdict(float)
    for use, seconds in used:
        sums[Use(use.computes, tuple(sorted(needed[use.computes]))) if use.computes else use] += seconds
    return {use: round(seconds, 3) for use, seconds in sums.items()}


def state_of(epoch: int, used: TaskTime | None) -> dict[str, Any]:
    """Return the state of the coordinator.

    :param used: by attempt *epoch* so far, with what it has taken over; ``None`` if that is not known
    """
    if used is None:
        return {"attempt": epoch, "used": None}
    largest = sorted(used.items(), key=lambda each: -each[1])
    rest = [(Use(ANY, (ANY,)), seconds) for _, seconds in largest[_MOST_USES:]]
    told = together([*largest[:_MOST_USES], *rest])
    return {"attempt": epoch, "used": [[use.computes, list(use.needed_by), seconds] for use, seconds in told.items()]}


def recorded(coordinators: Mapping[str, Any]) -> tuple[int, TaskTime | None]:
    """Return the attempt that has recorded its task time last, 0 if none has, and that time if it was known."""
    state = coordinators.get(TASK_TIME, {})
    told = state.get("used")
    used = {Use(computes, tuple(needed_by)): float(seconds) for computes, needed_by, seconds in told or ()}
    return int(state.get("attempt", 0)), None if told is None else used
