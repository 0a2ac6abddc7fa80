"""Which stored vertices a running job can do without: what nothing reads any more, and what does not fit. Pure.

Flink's consumers release what they have read; its graph tells all of them before anything runs. A script's future is
not known, so the first is one half of the decision: no retry would compute these vertices for what the job has
recorded. The other half, that the script itself can name a vertex no more, is the driver's to know. Never among them,
because they could not be made again as they are: what is not deterministic, what the script gives a version of, whose
source tells none, and what functions make of files and services that they read by themselves.

Where a job may hold no more than its ``store_budget``, the kept shuffles go that save least per byte. Recovery points
that the script names count, and never go. Nor does what another kept shuffle reads, because that is put back only
together with it, nor what this attempt has not come to yet, because it may be about to be put back.
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
    """Return the kept shuffles to let go, so that *size* bytes more fit; ``None`` if not enough may go.

    :param epoch: the attempt that asks
    :param budget: bytes that the job may hold
    :param worth: task seconds that one of these bytes saves
    :param needed: vertices that stay in any case
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
    """Task seconds that a stored byte saves."""
    return sum(partition.duration for partition in vertex.partitions.values()) / max(1, vertex.bytes)


def needed_no_more(graph: ExecutionGraph) -> list[str]:
    """Return the recovery points of the script that are stored and that no retry would compute if they were gone."""
    needs = classify(graph)
    return [each for each, vertex in graph.vertices.items() if _again(vertex) and needs[each] is Need.OPTIONAL]


def _again(vertex: Vertex) -> bool:
    """Whether it is whole, and would be the same if it was computed again."""
    told = vertex.initialized
    same = told.deterministic and not any(part.startswith((GIVEN, READING)) for part in told.parts)
    return told.rule != SHUFFLE and vertex.finished and same


def shuffles_of_written_outputs(graph: ExecutionGraph) -> list[str]:
    """Return the kept shuffles, whole or not, whose queries were all for outputs that are written: a retry leaves these
    queries out. One that a kept shuffle of another query reads stays, because it is put back only together with this.
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
