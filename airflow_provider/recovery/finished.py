"""Which vertices are fully finished, partially finished or running, and whether that can be true.

A snapshot may be taken at any mixture of the three. One thing cannot be: that a vertex has fully finished and one that
it reads never had. A checkpoint returns when its vertex is sealed, so whatever reads it comes later. Events that say
otherwise were not written by one job, and nothing of them is reused. A vertex that had finished may have lost
partitions since, which are computed again when they are needed: that is no contradiction.

Source: FLIP-147, which validates on restore that the predecessors of a fully finished operator are fully finished.
"""

from __future__ import annotations

import enum

from airflow_provider.recovery.graph import ExecutionGraph, Vertex


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
