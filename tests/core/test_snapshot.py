"""A snapshot is the fold of the events before it, no more and no less."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.core import events as ev
from airflow_provider.core.errors import EventFormatError
from airflow_provider.core.snapshot import decode_graph, encode_graph, graph_size, is_due
from tests.core.examples import PLAUSIBLE, done, init, start, state_of
from tests.core.examples import events as any_events
from tests.support.replaying import replay

histories = st.lists(st.one_of(st.sampled_from(PLAUSIBLE), any_events), max_size=40) | st.permutations(PLAUSIBLE)


@given(histories, st.integers(0, 40))
def test_replay_from_a_snapshot_equals_replay_of_everything(history: list[ev.JobEvent], cut: int) -> None:
    """replay(snapshot + later events) == replay(all events), wherever the cut is, down to the order."""
    graph = decode_graph(encode_graph(replay(history[:cut])))
    for event in history[cut:]:
        graph.apply(event)
    assert state_of(graph) == state_of(replay(history))


@given(histories, histories)
def test_a_copy_is_left_alone_by_later_events(history: list[ev.JobEvent], later: list[ev.JobEvent]) -> None:
    """A snapshot is written in the background while the job goes on."""
    graph = replay(history)
    copy = graph.copy()
    for event in later:
        graph.apply(event)
    assert state_of(copy) == state_of(replay(history))


def test_what_coordinators_know_is_kept() -> None:
    """Plain JSON by name; a fresh start forgets it with everything else."""
    graph = replay([start(1)])
    graph.coordinators["sources"] = {"orders": ["a.parquet", 1, None]}
    again = decode_graph(encode_graph(graph))
    assert again.coordinators == {"sources": {"orders": ["a.parquet", 1, None]}}
    again.apply(start(2, fresh=True))
    assert again.coordinators == {}


GOOD = encode_graph(replay([start(1), init(1), done(0)]))


@pytest.mark.parametrize(
    "lines",
    [
        [], ["x"], ["[]"], ["null"], GOOD[1:], [GOOD[0], GOOD[0]], [*GOOD, "{}"], [*GOOD, '{"kind":"step"}'],
        [GOOD[0], GOOD[1].replace("CREATED", "DANCING")], [GOOD[0], GOOD[1].replace("host", "guest")],
        [GOOD[0], GOOD[1], GOOD[2].replace("VertexInitialized", "JobFinished")],
        [GOOD[0], GOOD[1], GOOD[2].replace('\\"version\\":', '\\"version\\":9')],
        [json.dumps({"kind": "job"}), *GOOD[1:]], [GOOD[0], GOOD[1], GOOD[2].replace('"/v/0/1"', '""')],
    ],
)  # fmt: skip
def test_what_is_no_snapshot_is_refused(lines: list[str]) -> None:
    """Whole or not at all: an unknown record, field, state or version is an error, never a guess."""
    with pytest.raises(EventFormatError):
        decode_graph(lines)


@pytest.mark.parametrize(
    ("new", "held", "blocks", "elapsed", "vertex_ended", "due"),
    [
        (0, 0, 0, 1e9, True, False),
        (1, 0, 1, 0, True, True),
        (1, 8, 1, 0, True, True),
        (1, 9, 1, 0, True, False),
        (1, 9, 100, 0, True, True),
        (5, 0, 5, 179, False, False),
        (5, 0, 5, 180, False, True),
        (5, 1000, 99, 1e9, False, False),
        (5, 1000, 100, 180, False, True),
    ],
)
def test_when_a_snapshot_is_due(
    new: int, held: int, blocks: int, elapsed: float, vertex_ended: bool, due: bool
) -> None:
    """Something is new, a vertex ended or the pause is over, and replaying the news would cost something."""
    said = is_due(new=new, held=held, blocks=blocks, elapsed=elapsed, min_pause=180, vertex_ended=vertex_ended)
    assert said is due


def test_snapshots_of_many_vertices_do_not_cost_the_square() -> None:
    """10,000 vertices that end one after the other: all snapshots together hold a few times the last one's records."""
    held = written = new = 0
    for records in range(100, 1_000_100, 100):
        new += 102
        if is_due(new=new, held=held, blocks=1, elapsed=0, min_pause=180, vertex_ended=True):
            held, new, written = records, 0, written + records
    assert written < 12 * 1_000_000


def test_the_size_counts_what_is_written() -> None:
    """One for each attempt, vertex and partition."""
    assert graph_size(replay([start(1), start(2), init(2), done(0, 2), done(1, 2)])) == 5
