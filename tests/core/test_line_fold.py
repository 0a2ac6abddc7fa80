"""The quick way to replay a stored line has the same outcome as the ordinary one, whatever the line and the graph."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider.core import events as ev
from airflow_provider.core import line_fold
from airflow_provider.core.errors import EventFormatError
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.line_fold import LineFold
from airflow_provider.core.loss import Loss
from airflow_provider.core.partition_record import PartitionRecord
from airflow_provider.core.partitions import StoredPartition, finished_event
from tests.core.examples import PLAUSIBLE, init, start, state_of
from tests.core.examples import events as any_events


def stored(index: int, epoch: int = 1, vertex: str = "v", millis: int = 1250) -> ev.PartitionFinished:
    partition = StoredPartition(vertex, "l", index, 2, 1, 7, 30 + index, f"{index:08x}", millis, 4096)
    return finished_event(partition, epoch, 1767225600.25 + index)


def test_the_event_of_a_finished_partition_goes_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """What drivers write by the million is read by its form: an event with another field would go the slow way."""
    quick = ExecutionGraph()
    fold = LineFold(quick)
    for step in (start(1), init(1)):
        fold.fold(ev.encode_event(step).encode(), 1)

    def slow(_: str) -> ev.JobEvent:
        raise AssertionError("the ordinary way")

    monkeypatch.setattr(line_fold, "decode_event", slow)
    fold.fold(ev.encode_event(stored(0)).encode(), 1)
    assert [*quick.vertices["v"].partitions] == [0]


ODD = [
    *(stored(index, epoch, vertex) for index in (0, 1, 2) for epoch in (1, 2, 3) for vertex in "vw"),
    *(
        replace(stored(0), **change)
        for change in (
            {"rows": 31}, {"checksum": "ffffffff"}, {"duration": 1.2}, {"duration": 3}, {"attempt": 2}, {"at": 5},
            {"layout": "m"}, {"key": "000000-of-000002.e1.t7.r30.c00000000.ms1250.parquet"}, {"index": 1},
            {"key": 'a "b"/000000-of-000002.e1.t7.r30.c00000000.ms1250.parquet'}, {"bytes": -1}, {"at": 1e300},
        )
    ),
]  # fmt: skip
"""Finished partitions, as they mostly are and as they hardly ever are."""

steps = st.lists(
    st.one_of(st.sampled_from([*ODD, *PLAUSIBLE, Loss(3, 1), Loss(4), Loss(5, 1, first_read=True)]), any_events),
    max_size=40,
)


@example([stored(0), init(1, layout="m"), stored(1)])
@example([stored(0), start(2, fresh=True), init(2), stored(1, 2), stored(0, 1)])
@given(steps)
def test_the_quick_way_is_the_ordinary_way(history: list[ev.JobEvent | Loss]) -> None:
    """Line by line, losses between them included, two graphs stay the same, down to problems and order."""
    ordinary, quick = ExecutionGraph(), ExecutionGraph()
    fold = LineFold(quick)
    for step in (start(1), init(1), init(1, "w"), *history):
        if isinstance(step, Loss):
            ordinary.lose(step)
            quick.lose(step)
            fold = LineFold(quick)
            continue
        line = ev.encode_event(step)
        ordinary.apply(ev.decode_event(line))
        fold.fold(line.encode(), step.epoch)
        assert state_of(quick) == state_of(ordinary)


@pytest.mark.parametrize("event", ODD)
def test_a_record_tells_what_its_event_told(event: ev.PartitionFinished) -> None:
    """Whether it holds that itself or leaves it to its name."""
    record = PartitionRecord.of(event.key, event.rows, event.bytes, event.checksum, event.duration, event.attempt)
    told = (record.key, record.rows, record.bytes, record.checksum, record.duration, record.attempt)
    assert told == (event.key, event.rows, event.bytes, event.checksum, event.duration, event.attempt)


def test_a_usual_record_leaves_to_its_name_what_that_tells() -> None:
    """That is a third of a large job's memory."""
    graph = ExecutionGraph()
    fold = LineFold(graph)
    for event in (start(1), init(1), stored(0)):
        fold.fold(ev.encode_event(event).encode(), 1)
    record = graph.vertices["v"].partitions[0]
    assert record.told is None
    assert (record.rows, record.checksum, record.duration, record.attempt) == (30, "00000000", 1.25, 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.replace(b'"version":1', b'"version":2'),
        lambda line: line.replace(b'"bytes":4096', b'"bytes":04096'),
        lambda line: line.replace(b'"epoch":1', b'"epoch":2'),
        lambda line: line.replace(b'"layout":"l"', b'"layout":"\xff"'),
        lambda line: line[:-1],
        lambda line: line + b" {}",
    ],
)
def test_what_cannot_be_read_is_refused_and_changes_nothing(change: object) -> None:
    """As the ordinary way refuses it."""
    assert callable(change)
    graph = ExecutionGraph()
    fold = LineFold(graph)
    for event in (start(1), init(1)):
        fold.fold(ev.encode_event(event).encode(), 1)
    before = repr(state_of(graph))
    with pytest.raises((EventFormatError, ValueError)):
        fold.fold(change(ev.encode_event(stored(0)).encode()), 1)
    assert repr(state_of(graph)) == before
