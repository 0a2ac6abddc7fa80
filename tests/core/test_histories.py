"""Histories of real drivers that were killed, replayed for ever: what an older release wrote stays readable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.core import faults
from airflow_provider.core.events import JobEvent, decode_event, encode_event
from airflow_provider.core.graph import JobState
from airflow_provider.core.snapshot import decode_graph, encode_graph
from tests.core.examples import state_of
from tests.support.record_histories import FOLDER, KINDS, summary
from tests.support.replaying import replay

FILES = sorted(FOLDER.glob("*.json"))


def history(path: Path) -> tuple[dict[str, Any], list[JobEvent]]:
    told = json.loads(path.read_text())
    return told, [decode_event(json.dumps(event)) for event in told["events"]]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recorded_history_replays_to_the_graph_that_was_recorded_with_it(path: Path) -> None:
    """Attempts, vertices, and which attempt computed which partition."""
    told, events = history(path)
    assert summary(replay(events)) == told["graph"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_job_ended_well_and_nothing_was_computed_twice(path: Path) -> None:
    """300 customers in both vertices, every partition once, the last attempt finished: known without any replay."""
    _, events = history(path)
    graph = replay(events)
    assert graph.newest is not None
    assert graph.newest.state is JobState.FINISHED
    assert graph.problems == []
    by_name = {vertex.initialized.name: vertex for vertex in graph.vertices.values()}
    assert sorted(by_name) == ["graded", "totals"]
    for vertex in by_name.values():
        assert vertex.finished
        assert sum(partition.rows for partition in vertex.partitions.values()) == 300
    stored = [event.key for event in events if type(event).__name__ == "PartitionFinished"]  # type: ignore[attr-defined]
    assert len(stored) == len(set(stored)) == 10


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_snapshot_at_any_moment_of_it_is_exact(path: Path) -> None:
    """Wherever a driver would have taken one, the rest of the history leads to the same graph."""
    _, events = history(path)
    whole = state_of(replay(events))
    for cut in range(len(events) + 1):
        graph = decode_graph(encode_graph(replay(events[:cut])))
        for event in events[cut:]:
            graph.apply(event)
        assert state_of(graph) == whole


def test_every_fault_point_has_its_history() -> None:
    """One file for each kind of crash, and no kind that was never recorded."""
    told = {path.stem: history(path)[0]["faults"] for path in FILES}
    assert told == KINDS
    assert {fault.partition("@")[0] for kind in told.values() for fault in kind} == set(faults.OF_EVERY_DRIVER)


def test_histories_tell_nothing_of_the_machine_that_recorded_them() -> None:
    """No host, no path but that of made-up data."""
    for path in FILES:
        _, events = history(path)
        text = "\n".join(encode_event(event) for event in events)
        assert "/tmp" not in text
        assert "/home" not in text
        assert '"host":"worker-1"' in text
