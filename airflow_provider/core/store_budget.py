"""Which kept shuffles go so that a job holds no more than its ``store_budget``: what saves least per byte goes first.

Recovery points that the script names count, and never go. Nor does what another kept shuffle reads, because that is put
back only together with it, nor what this attempt has not come to yet, because it may be about to be put back. Pure.
"""

from __future__ import annotations

from collections.abc import Collection

from airflow_provider.core.events import SHUFFLE
from airflow_provider.core.graph import ExecutionGraph, Vertex


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
