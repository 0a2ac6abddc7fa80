"""Decide what a new attempt must do about each vertex of the last one (Flink's three classes of partitions).

``RESERVE``: needed; its partitions are kept and missing ones are computed. ``OPTIONAL``: it has finished, and no known
reader needs it any more; used if it is still there, not computed again for its own sake. ``RELEASE``: obsolete.

Also decides which vertices have finished, and whether their records can be true. A snapshot may be taken at any mixture
of fully finished, partially finished and running. Only one thing is impossible: a vertex that has finished, fully or
partially, although one that it reads has never fully finished. A checkpoint returns when its vertex is sealed, so
whatever reads it comes later. Events that say otherwise were not written by one job, and nothing of them is reused.
These are no contradictions: a finished vertex has lost partitions since, or a restart has reset it, and they are
computed again when needed; a shuffle was kept only in part, because its readers read Spark's own files.

Source: FLIP-147, which validates on restore that the predecessors of a fully finished operator are fully finished, and
those of a partially finished operator too if each of its tasks reads all of theirs, as each partition may here.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Mapping

from airflow_provider.core.events import SHUFFLE
from airflow_provider.core.graph import ExecutionGraph, Vertex
from airflow_provider.core.unfinished_write import READS, SINK, is_written


class Need(enum.StrEnum):
    """What a new attempt does about a vertex; see the module."""

    RESERVE = "RESERVE"
    RELEASE = "RELEASE"
    OPTIONAL = "OPTIONAL"


def classify(graph: ExecutionGraph) -> Mapping[str, Need]:
    """Return the class of every vertex of *graph*.

    A vertex is optional if it has finished, something reads it, and none of its readers needs it any more: they are
    written outputs, finished vertices, or optional themselves. Partitions lost since do not matter. A vertex without a
    known reader may feed something that is neither output nor vertex, so it is needed.

    If no attempt reached both of two vertices with one name, the one reached last supersedes the other (its code or its
    input has changed). The other is released, and its needs do not count. Nor do those of a shuffle over a vertex that
    the script names: it belongs to an action or an output. A script that uses a name twice has two vertices of that
    name, both needed.
    """
    by_name: dict[str, list[Vertex]] = defaultdict(list)
    for vertex in graph.vertices.values():
        by_name[vertex.initialized.name].append(vertex)
    released = {
        identity
        for identity, vertex in graph.vertices.items()
        if any(_supersedes(other, vertex) for other in by_name[vertex.initialized.name])
    }
    readers: dict[str, list[str]] = defaultdict(list)
    for identity in graph.vertices.keys() - released:
        told = graph.vertices[identity].initialized
        for upstream in told.upstream:
            read = graph.vertices.get(upstream)
            if read is not None and (told.rule != SHUFFLE or read.initialized.rule == SHUFFLE):
                readers[upstream].append(identity)
    written, unwritten = _read_by_outputs(graph)

    optional: set[str] = set()
    candidates = [
        identity
        for identity, vertex in reversed(graph.vertices.items())  # readers usually come later
        if vertex.has_finished
        and (identity in readers or identity in written)
        and identity not in released
        and identity not in unwritten
    ]
    before = -1
    while before < len(optional):
        before = len(optional)
        for identity in candidates:
            if all(graph.vertices[reader].finished or reader in optional for reader in readers[identity]):
                optional.add(identity)

    return {
        identity: Need.RELEASE if identity in released else Need.OPTIONAL if identity in optional else Need.RESERVE
        for identity in graph.vertices
    }


def _read_by_outputs(graph: ExecutionGraph) -> tuple[set[str], set[str]]:
    """Return the vertices that written outputs read, and those read by outputs that are not written or that each
    attempt writes.
    """
    written, unwritten = set[str](), set[str]()
    for name, state in graph.coordinators.items():
        reads = state.get(READS) if name.startswith(SINK) and isinstance(state, dict) else None
        if isinstance(reads, list):
            (written if is_written(state) else unwritten).update(map(str, reads))
    return written, unwritten


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
    """Return a contradiction in *graph*; empty text if there is none.

    Lost records (:meth:`ExecutionGraph.lose`) leave gaps, not contradictions: everything known at that moment may have
    finished.
    """
    named = {identity: vertex for identity, vertex in graph.vertices.items() if vertex.initialized.rule != SHUFFLE}
    for vertex in graph.vertices.values():
        status = finished_status(vertex)
        if status is FinishedStatus.RUNNING:
            continue
        for upstream in vertex.initialized.upstream:
            producer = named.get(upstream)
            if producer is not None and not producer.has_finished:
                name, read = vertex.initialized.name, producer.initialized.name
                extent = "" if status is FinishedStatus.FULLY_FINISHED else " in part"
                return f"{name} has finished{extent}, but {read}, which it reads, never has"
    return ""
