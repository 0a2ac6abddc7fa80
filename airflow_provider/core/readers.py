"""What a job needs no more while it still runs: stored vertices of which all that is known to read them is committed.

Flink's consumers release what they have read; its graph tells all of them before anything runs. A script's future is
not known, so this is one half of the decision: no retry would compute these vertices for what the job has recorded. The
other half, that the script itself can name a vertex no more, is the driver's to know. Pure.

Never among them, because they could not be made again as they are: what is not deterministic, and what the script gives
a version of, whose source tells none.
"""

from __future__ import annotations

from airflow_provider.core.classify import Need, classify
from airflow_provider.core.events import SHUFFLE
from airflow_provider.core.explain import GIVEN
from airflow_provider.core.graph import ExecutionGraph, Vertex
from airflow_provider.core.unfinished_write import is_written


def needed_no_more(graph: ExecutionGraph) -> list[str]:
    """Return the recovery points of the script that are stored and that no retry would compute if they were gone."""
    needs = classify(graph)
    return [each for each, vertex in graph.vertices.items() if _again(vertex) and needs[each] is Need.OPTIONAL]


def _again(vertex: Vertex) -> bool:
    """Whether it is whole, and would be the same if it was computed again."""
    told = vertex.initialized
    return told.rule != SHUFFLE and vertex.finished and told.deterministic and GIVEN not in told.parts


def shuffles_of_written_outputs(graph: ExecutionGraph) -> list[str]:
    """Return the kept shuffles, whole or not, whose queries were all for outputs that are written: a retry leaves these
    queries out. One that a kept shuffle of another query reads stays, because it is put back only together with this.
    """
    written = {name for name, state in graph.coordinators.items() if is_written(state)}
    served = [
        identity
        for identity, vertex in graph.vertices.items()
        if vertex.initialized.rule == SHUFFLE and vertex.partitions and _only(vertex.initialized.purposes, written)
    ]
    read = {
        upstream
        for identity, vertex in graph.vertices.items()
        if vertex.initialized.rule == SHUFFLE and vertex.partitions and identity not in served
        for upstream in vertex.initialized.upstream
    }
    return [identity for identity in served if identity not in read]


def _only(purposes: tuple[str, ...], written: set[str]) -> bool:
    return bool(purposes) and written.issuperset(purposes)
