"""What a new attempt must do about each vertex of the last one (Flink's three classes of partitions).

``RESERVE``: needed, its partitions are kept and what is missing is computed. ``OPTIONAL``: finished and so is
everything known to read it; used if it is still there, not computed again for its own sake. ``RELEASE``: belongs to
nothing any more.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from airflow_provider.recovery.graph import ExecutionGraph


class Need(enum.StrEnum):
    """See the module."""

    RESERVE = "RESERVE"
    RELEASE = "RELEASE"
    OPTIONAL = "OPTIONAL"


def classify(graph: ExecutionGraph) -> Mapping[str, Need]:
    """Return the class of every vertex of *graph*.

    A vertex is optional if it is finished, something reads it, and all that reads it is finished too. One that nothing
    reads may feed the script's outputs, which are no vertices, so it is needed. Of two vertices with one name the
    older one is superseded (its code or its input has changed) and is released.
    """
    consumers: dict[str, list[str]] = {}
    newest_of_name: dict[str, tuple[int, int, str]] = {}
    for order, (identity, vertex) in enumerate(graph.vertices.items()):
        for upstream in vertex.initialized.upstream:
            consumers.setdefault(upstream, []).append(identity)
        rank = (max(vertex.reached_by, default=0), order, identity)
        name = vertex.initialized.name
        newest_of_name[name] = max(newest_of_name.get(name, rank), rank)

    needs: dict[str, Need] = {}
    for identity, vertex in graph.vertices.items():
        readers = consumers.get(identity, [])
        if newest_of_name[vertex.initialized.name][2] != identity:
            needs[identity] = Need.RELEASE
        elif vertex.finished and readers and all(graph.vertices[reader].finished for reader in readers):
            needs[identity] = Need.OPTIONAL
        else:
            needs[identity] = Need.RESERVE
    return needs
