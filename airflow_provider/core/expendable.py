"""Choose stored vertices that a running job can drop: unread ones, and those beyond its budget. Pure.

Flink's consumers release what they have read, because its graph is known before anything runs. A script's future is not
known, so this module makes one half of the decision: going by the job's records, no retry would compute these vertices.
The driver makes the other half: the script can no longer name the vertex. A vertex that could not be made again as it
is never goes: one that is not deterministic, depends on a version that the script supplies or on a source without a
version, or holds what functions read from files or services by themselves.

If a job has a ``store_budget``, the kept shuffles that save least per byte go first. Recovery points that the script
names count toward the budget and never go. Neither does what another kept shuffle reads, because both are put back only
together, nor what this attempt has not reached yet, because it may be about to be put back.
"""

from __future__ import annotations

from collections.abc import Collection

from airflow_provider.core.classify import Need, classify
from airflow_provider.core.events import SHUFFLE
from airflow_provider.core.explain import GIVEN, READING
from airflow_provider.core.graph import ExecutionGraph, Vertex
from airflow_provider.core.unfinished_write import is_written


def room_for(
    graph: ExecutionGraph, epoch: int, budget: int, size: int, worth: float, needed: Collection[str]
) -> list[str] | None:
    """Return the kept shuffles to drop so that *size* more bytes fit; ``None`` if not enough can be dropped.

    :param epoch: the attempt that asks
    :param budget: bytes that the job may hold
    :param worth: task seconds that one of these bytes saves
    :param needed: vertices that must stay
    """
    lacking = graph.held + size - budget
    if lacking <= 0:
        return []
    kept = {each: vertex for each, vertex in graph.vertices.items() if _is_kept(vertex)}
    going = list[str]()
    while lacking > 0:
        read = {upstream for vertex in kept.values() for upstream in vertex.initialized.upstream}
        may_go = [
            each
            for each, vertex in kept.items()
            if each not in read and each not in needed and epoch in vertex.reached_by and _worth(vertex) < worth
        ]
        if not may_go:
            return None
        least = min(may_go, key=lambda each: _worth(kept[each]))
        lacking -= kept.pop(least).bytes
        going.append(least)
    return going


def _is_kept(vertex: Vertex) -> bool:
    return vertex.initialized.rule == SHUFFLE and bool(vertex.partitions)


def _worth(vertex: Vertex) -> float:
    """Return the task seconds that a stored byte saves."""
    return sum(partition.duration for partition in vertex.partitions.values()) / max(1, vertex.bytes)


def needed_no_more(graph: ExecutionGraph) -> list[str]:
    """Return the script's stored recovery points that no retry would compute if they were gone."""
    needs = classify(graph)
    return [each for each, vertex in graph.vertices.items() if _again(vertex) and needs[each] is Need.OPTIONAL]


def _again(vertex: Vertex) -> bool:
    """Whether it is whole, and computing it again would give the same."""
    told = vertex.initialized
    same = told.deterministic and not any(part.startswith((GIVEN, READING)) for part in told.parts)
    return told.rule != SHUFFLE and vertex.finished and same


def shuffles_of_written_outputs(graph: ExecutionGraph) -> list[str]:
    """Return the kept shuffles, whole or not, whose queries were all for written outputs, because a retry skips these
    queries. A shuffle that a kept shuffle of another query reads stays: both are put back only together.
    """
    written = {name for name, state in graph.coordinators.items() if is_written(state)}
    served = [
        identity
        for identity, vertex in graph.vertices.items()
        if _is_kept(vertex) and _only(vertex.initialized.purposes, written)
    ]
    read = {
        upstream
        for identity, vertex in graph.vertices.items()
        if _is_kept(vertex) and identity not in served
        for upstream in vertex.initialized.upstream
    }
    return [identity for identity in served if identity not in read]


def _only(purposes: tuple[str, ...], written: set[str]) -> bool:
    return bool(purposes) and written.issuperset(purposes)
