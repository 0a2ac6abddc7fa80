"""What a new attempt must do about each vertex of the last one (Flink's three classes of partitions), which vertices
have finished, and whether what is recorded of them can be true.

``RESERVE``: needed, its partitions are kept and what is missing is computed. ``OPTIONAL``: finished and so is
everything known to read it; used if it is still there, not computed again for its own sake. ``RELEASE``: belongs to
nothing any more.

A snapshot may be taken at any mixture of fully finished, partially finished and running. One thing cannot be: that a
vertex has fully finished and one that it reads never had. A checkpoint returns when its vertex is sealed, so whatever
reads it comes later. Events that say otherwise were not written by one job, and nothing of them is reused. A vertex
that had finished may have lost partitions since, which are computed again when they are needed: no contradiction.

Source: FLIP-147, which validates on restore that the predecessors of a fully finished operator are fully finished.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from airflow_provider.core.graph import ExecutionGraph, Vertex


class Need(enum.StrEnum):
    """See the module."""

    RESERVE = "RESERVE"
    RELEASE = "RELEASE"
    OPTIONAL = "OPTIONAL"


def classify(graph: ExecutionGraph) -> Mapping[str, Need]:
    """Return the class of every vertex of *graph*.

    A vertex is optional if it is finished, something reads it, and all that reads it is finished too. One that nothing
    reads may feed the script's outputs, which are no vertices, so it is needed. Of two vertices with one name of which
    no attempt reached both, the one reached last supersedes the other (its code or its input has changed), which is
    released. A script that uses a name twice has two vertices of that name, both needed.
    """
    consumers: dict[str, list[str]] = {}
    by_name: dict[str, list[Vertex]] = {}
    for identity, vertex in graph.vertices.items():
        by_name.setdefault(vertex.initialized.name, []).append(vertex)
        for upstream in vertex.initialized.upstream:
            consumers.setdefault(upstream, []).append(identity)

    needs: dict[str, Need] = {}
    for identity, vertex in graph.vertices.items():
        readers = consumers.get(identity, [])
        if any(_supersedes(other, vertex) for other in by_name[vertex.initialized.name]):
            needs[identity] = Need.RELEASE
        elif vertex.finished and readers and all(graph.vertices[reader].finished for reader in readers):
            needs[identity] = Need.OPTIONAL
        else:
            needs[identity] = Need.RESERVE
    return needs


def _supersedes(newer: Vertex, older: Vertex) -> bool:
    later = max(newer.reached_by, default=0) > max(older.reached_by, default=0)
    return later and newer.reached_by.isdisjoint(older.reached_by)


class FinishedStatus(enum.StrEnum):
    """FLIP-147's three classes of operators in a checkpoint."""

    FULLY_FINISHED = "FULLY_FINISHED"
    PARTIALLY_FINISHED = "PARTIALLY_FINISHED"
    RUNNING = "RUNNING"


def finished_status(vertex: Vertex) -> FinishedStatus:
    """Return the class of a vertex."""
    if vertex.finished:
        return FinishedStatus.FULLY_FINISHED
    return FinishedStatus.PARTIALLY_FINISHED if vertex.partitions else FinishedStatus.RUNNING


def contradiction(graph: ExecutionGraph) -> str:
    """Return what cannot be true of *graph*, empty text if it all can.

    Records that are lost (:meth:`ExecutionGraph.lose`) leave gaps, no contradictions: what was known at that moment may
    have finished.
    """
    for vertex in graph.vertices.values():
        if finished_status(vertex) is not FinishedStatus.FULLY_FINISHED:
            continue
        for upstream in vertex.initialized.upstream:
            producer = graph.vertices.get(upstream)
            if producer is not None and not producer.has_finished:
                name, read = vertex.initialized.name, producer.initialized.name
                return f"{name} has finished, but {read}, which it reads, never has"
    return ""
