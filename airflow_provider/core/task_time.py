"""Account for a job's task time so far, by what the tasks computed and by what needs it. Pure.

The driver records it while it runs. It includes tasks that have succeeded and running tasks, but not failed ones, not
those that recovery itself started, and not those of streaming queries, whose own checkpoints are their recovery.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

TASK_TIME = "task-time"
"""Coordinator that keeps what the tasks have taken so far."""

AGAIN = "again"
"""What is remembered of a step under this name says why a retry runs it again."""
ANY = ""
"""In the place of a name: what each attempt runs again."""

_MOST_USES = 200
"""Uses that are recorded apart. What smaller ones have taken counts as what each attempt runs again."""


@dataclass(frozen=True)
class Use:
    """What some tasks were for.

    :ivar computes: the vertex whose partitions they compute; empty text if their results are not stored
    :ivar needed_by: what reads their rows: vertices, outputs and steps (by coordinator), and :data:`ANY` for what each
        attempt runs again. Empty if nothing has read them yet.
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
    """The task times of one application's stages.

    :ivar seconds: stage → task time
    :ivar read_by: shuffle number → the stages that read it
    """

    seconds: Mapping[Stage, float]
    read_by: Mapping[int, Set[Stage]]


def task_time(times: StageTimes, shuffles: Mapping[int, str], vertices: Container[str]) -> dict[Use, float]:
    """Return the task time of an application.

    :param shuffles: shuffle number → its vertex, for kept shuffles
    :param vertices: all known vertices
    """
    return together((_use(stage, times, shuffles, vertices), seconds) for stage, seconds in times.seconds.items())


def _use(stage: Stage, times: StageTimes, shuffles: Mapping[int, str], vertices: Container[str]) -> Use:
    if isinstance(stage, int):
        return Use(shuffles.get(stage, ANY), _needed_by(stage, times.read_by, shuffles))
    return Use(stage) if stage in vertices else Use(ANY, (stage,))


def _needed_by(shuffle: int, read_by: Mapping[int, Set[Stage]], shuffles: Mapping[int, str]) -> tuple[str, ...]:
    """Return what reads a shuffle; a shuffle that is not kept is replaced by its own readers."""
    found, pending, seen = set[str](), [shuffle], {shuffle}
    while pending:
        number = pending.pop()
        readers = read_by.get(number, ())
        if not readers and number != shuffle:
            found.add(ANY)  # a shuffle that is not kept and has no reader yet
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
    """Return the sums of task times. Computing a vertex is one use, even if its readers changed over time."""
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
    """Return the coordinator's state.

    :param used: by attempt *epoch* so far, including what it took over; ``None`` if unknown
    """
    if used is None:
        return {"attempt": epoch, "used": None}
    largest = sorted(used.items(), key=lambda each: -each[1])
    rest = [(Use(ANY, (ANY,)), seconds) for _, seconds in largest[_MOST_USES:]]
    told = together([*largest[:_MOST_USES], *rest])
    return {"attempt": epoch, "used": [[use.computes, list(use.needed_by), seconds] for use, seconds in told.items()]}


def recorded(coordinators: Mapping[str, Any]) -> tuple[int, TaskTime | None]:
    """Return the attempt that last recorded its task time (0 if none), and that time if it was known."""
    state = coordinators.get(TASK_TIME, {})
    told = state.get("used")
    used = {Use(computes, tuple(needed_by)): float(seconds) for computes, needed_by, seconds in told or ()}
    return int(state.get("attempt", 0)), None if told is None else used
