"""What a retry would reuse if the newest attempt ended now, and the task time that it would save. Pure.

A stored partition saves the task time that it took. So it does where a recovery point above it is stored whole and
hides it: then its tasks do not run either. What hides it may save more than that, the time of tasks whose outputs
were never stored, which nothing here counts: all savings are at least what is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider.core.classify import Need, classify
from airflow_provider.core.events import SHUFFLE
from airflow_provider.core.graph import ExecutionGraph, JobState, Vertex
from airflow_provider.core.quantities import seconds_text

SUPERSEDED = "another recovery point of its name has taken its place"
RELEASED = "all that reads it is committed"
NOT_WHOLE = "it is not deterministic, and not all of it is stored"


@dataclass(frozen=True)
class RetrySavings:
    """What a retry would reuse now, over all recovery points but those that are superseded or released.

    :ivar partitions: how many there are, stored or not
    :ivar map_outputs: how many of these are map outputs of shuffles
    :ivar reusable: how many a retry would reuse
    :ivar bytes: their stored bytes
    :ivar task_seconds: the task time that they took
    :ivar nothing_because: why a retry reuses nothing, whatever is stored; empty text if it does
    """

    partitions: int = 0
    map_outputs: int = 0
    reusable: int = 0
    bytes: int = 0
    task_seconds: float = 0.0
    nothing_because: str = ""


def not_reusable(graph: ExecutionGraph, discarded: str = "") -> Mapping[str, str]:
    """Return, for each vertex of which a retry would reuse nothing whatever is stored, why.

    :param discarded: why a retry reuses nothing of the job, which the events do not say
    """
    found = {}
    afresh = _afresh(graph, discarded)
    for identity, need in classify(graph).items():
        told = graph.vertices[identity].initialized
        if need is Need.RELEASE:
            found[identity] = SUPERSEDED
        elif graph.vertices[identity].released:
            found[identity] = RELEASED
        elif afresh:
            found[identity] = afresh
        elif not told.deterministic and not graph.vertices[identity].finished:
            found[identity] = NOT_WHOLE
    return found


def reusable(identity: str, vertex: Vertex, because: Mapping[str, str]) -> tuple[int, float]:
    """Return how many partitions of a vertex a retry would reuse, and their task time.

    :param because: what :func:`not_reusable` has said of its graph
    """
    if identity in because:
        return 0, 0.0
    return len(vertex.partitions), sum(partition.duration for partition in vertex.partitions.values())


def retry_savings(graph: ExecutionGraph, because: Mapping[str, str], discarded: str = "") -> RetrySavings:
    """Return what a retry of the job would reuse now; the other parameters are those of the functions above."""
    partitions = map_outputs = found = size = 0
    seconds = 0.0
    for identity, vertex in graph.vertices.items():
        if because.get(identity) in (SUPERSEDED, RELEASED):
            continue
        partitions += vertex.initialized.parallelism
        map_outputs += vertex.initialized.parallelism if vertex.initialized.rule == SHUFFLE else 0
        own, saved = reusable(identity, vertex, because)
        found, seconds = found + own, seconds + saved
        size += sum(partition.bytes for partition in vertex.partitions.values()) if own else 0
    return RetrySavings(partitions, map_outputs, found, size, round(seconds, 3), _afresh(graph, discarded))


def savings_text(savings: RetrySavings, state: str) -> str:
    """Return one sentence about what a retry would save now.

    :param state: the state of the newest attempt
    """
    unit = noun(savings.map_outputs, savings.partitions)
    about = f"{savings.reusable:,} of {savings.partitions:,} {unit}"
    if state == JobState.FINISHED:
        stored = f"{about} were stored" if savings.partitions else "nothing was kept"
        return f"The job has finished, so there is nothing to retry; when it ended, {stored}."
    if not savings.partitions:
        return "Nothing is kept: a retry would run the whole job."
    if savings.nothing_because:
        return f"A retry would reuse nothing, because {savings.nothing_because}."
    if not savings.reusable:
        return f"A retry would reuse none of {savings.partitions:,} {unit} and save nothing."
    saved = seconds_text(savings.task_seconds)
    return f"A retry would reuse {about} and save about {saved} of task time."


def noun(map_outputs: int, partitions: int) -> str:
    """Return what so many partitions are called, of which some are map outputs of shuffles."""
    if map_outputs == 0:
        return "partition" if partitions == 1 else "partitions"
    if map_outputs == partitions:
        return "map output" if partitions == 1 else "map outputs"
    return "map outputs and partitions"


def _afresh(graph: ExecutionGraph, discarded: str) -> str:
    if discarded:
        return discarded
    return graph.must_start_afresh(graph.newest.epoch + 1) if graph.newest is not None else ""
