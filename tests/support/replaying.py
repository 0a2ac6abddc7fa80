"""The execution graph as a fold over events, for tests that make the events themselves."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider.core.events import JobEvent
from airflow_provider.core.graph import ExecutionGraph


def replay(events: Iterable[JobEvent]) -> ExecutionGraph:
    """Return the graph that *events*, in the order of the store, describe."""
    graph = ExecutionGraph()
    for event in events:
        graph.apply(event)
    return graph
