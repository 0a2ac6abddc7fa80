"""Replay: a fold that trusts only the newest attempt and never fails."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.core import events as ev
from airflow_provider.core.errors import EventFormatError
from airflow_provider.core.graph import ExecutionGraph, JobState
from airflow_provider.core.snapshot import decode_graph, encode_graph
from tests.core.examples import done, end, init, start
from tests.core.examples import events as any_events
from tests.support.replaying import replay


def test_an_empty_history_knows_nothing() -> None:
    """No attempt, no vertex, no problem."""
    graph = replay([])
    assert graph.newest is None
    assert (graph.vertices, graph.base_epoch, graph.problems) == ({}, 1, [])


def test_an_attempt_is_told_from_its_start_to_its_end() -> None:
    """States, application, times and error of the attempt."""
    graph = replay(
        [
            start(host="h", reason="r"),
            ev.JobStateChanged(epoch=1, at=2.0, state="RECONCILING"),
            ev.JobStateChanged(epoch=1, at=3.0, state="RUNNING"),
            ev.SparkApplicationStarted(epoch=1, at=4.0, application_id="app", ui_url="u"),
            ev.VertexSkipped(epoch=1, at=5.0, name="n", reason="because"),
            ev.JobFailed(epoch=1, at=6.0, error="boom"),
        ]
    )
    attempt = graph.newest
    assert attempt is not None
    assert (attempt.epoch, attempt.state, attempt.error) == (1, JobState.FAILED, "boom")
    assert (attempt.started_at, attempt.ended_at, attempt.last_event_at) == (1.0, 6.0, 6.0)
    assert (attempt.application_id, attempt.ui_url, attempt.host, attempt.reason) == ("app", "u", "h", "r")
    assert [skip.name for skip in attempt.skipped] == ["n"]
    assert graph.problems == []


@pytest.mark.parametrize("state", list(JobState))
def test_only_an_end_is_terminal(state: JobState) -> None:
    """FINISHED and FAILED; an attempt in any other state may live."""
    assert state.terminal == (state in {JobState.FINISHED, JobState.FAILED})


def test_many_small_events_claim_no_more_than_fits_into_memory() -> None:
    """A hundred events of a hundred bytes each cannot make whoever reads them give room to 10⁸ partitions."""
    events = [start(), *(init(vertex=f"v{number}", parallelism=ev.MOST_PARTITIONS) for number in range(100))]
    most = ev.MOST_PARTITIONS_OF_JOB // ev.MOST_PARTITIONS
    for graph in (replay(events), decode_graph(list(encode_graph(replay(events))))):
        assert list(graph.vertices) == [f"v{number}" for number in range(most)]
        assert sum(vertex.initialized.parallelism for vertex in graph.vertices.values()) <= ev.MOST_PARTITIONS_OF_JOB
        assert graph.problems[0].startswith(f"v{most} ignored: the job's vertices claim more than")
        assert len(graph.problems) == 100 - most
        twin = graph.copy()
        twin.apply(init(vertex="v", parallelism=1))
        assert "v" not in twin.vertices
        twin.apply(init(vertex="v0", parallelism=1, layout="m"))
        twin.apply(init(vertex="v", parallelism=1))
        assert "v" in twin.vertices
        twin.apply(start(2, fresh=True))
        twin.apply(init(2, vertex="w", parallelism=ev.MOST_PARTITIONS))
        assert list(twin.vertices) == ["w"]


def test_what_claims_too_much_in_another_layout_counts_no_more() -> None:
    """What was stored of the vertex is not what the driver has computed since."""
    events = [start(), init(parallelism=1), done(0)]
    events += [init(vertex=f"v{number}", parallelism=ev.MOST_PARTITIONS) for number in range(9)]
    graph = replay([*events, init(vertex="x", parallelism=ev.MOST_PARTITIONS - 1), init(parallelism=2, layout="m")])
    assert graph.vertices["v"].partitions == {}
    assert graph.vertices["v"].missing == [0]


def test_a_snapshot_claims_no_more_than_fits_into_memory() -> None:
    """One that somebody has made up is refused, as events are."""
    graph = replay([start(), init(parallelism=ev.MOST_PARTITIONS)])
    job, attempt, vertex = encode_graph(graph)
    others = [vertex.replace('\\"vertex\\":\\"v\\"', f'\\"vertex\\":\\"v{number}\\"') for number in range(100)]
    assert len(set(others)) == 100
    with pytest.raises(EventFormatError, match="more than"):
        decode_graph([job, attempt, *others])


def test_a_vertex_is_complete_with_its_last_partition() -> None:
    """What is missing is told by index; the end of an incomplete vertex is not believed."""
    graph = replay([start(), init(parallelism=3), done(2), end()])
    vertex = graph.vertices["v"]
    assert (vertex.complete, vertex.missing, vertex.finished) == (False, [0, 1], False)
    assert "end of v ignored" in graph.problems[0]
    for event in (done(0), done(1), end()):
        graph.apply(event)
    assert (vertex.complete, vertex.missing, vertex.finished) == (True, [], True)


def test_partitions_survive_the_attempt() -> None:
    """A new attempt starts with what the last one recorded."""
    graph = replay([start(1), init(1), done(0, 1), start(2)])
    assert graph.vertices["v"].missing == [1]
    assert graph.vertices["v"].reached_by == {1}
    graph.apply(init(2))
    graph.apply(done(1, 2))
    graph.apply(end(2))
    assert graph.vertices["v"].finished
    assert graph.vertices["v"].reached_by == {1, 2}
    assert {p.attempt for p in graph.vertices["v"].partitions.values()} == {1, 2}


def test_a_fresh_start_forgets_everything() -> None:
    """Vertices go, the attempts stay for the report, and older partitions are below the base."""
    graph = replay([start(1), init(1), done(0, 1), start(2, fresh=True, reason="cleared")])
    assert graph.vertices == {}
    assert graph.base_epoch == 2
    assert sorted(graph.attempts) == [1, 2]
    assert graph.attempts[2].fresh
    assert graph.attempts[2].reason == "cleared"


def test_a_stale_attempt_changes_nothing() -> None:
    """Whatever a fenced driver still says, of whatever kind, is noted and ignored."""
    for event in (
        done(0, 1),
        end(1),
        init(1, "w"),
        ev.JobFinished(epoch=1),
        ev.JobFailed(epoch=1, error="x"),
        ev.JobStateChanged(epoch=1, state="RUNNING"),
        ev.PartitionsReset(epoch=1, vertex="v", indexes=(), reason="r"),
        ev.VertexReused(epoch=1, vertex="v", layout="l"),
        ev.VertexSkipped(epoch=1, name="n", reason="r"),
        ev.SparkApplicationStarted(epoch=1, application_id="a"),
    ):
        graph = replay([start(1), init(1), start(2), init(2), done(1, 2), event])
        assert "ignored" in graph.problems[0]
        assert sorted(graph.vertices) == ["v"]
        assert graph.vertices["v"].missing == [0]
        assert graph.attempts[1].state is JobState.CREATED
        assert graph.attempts[1].skipped == []


def test_an_older_or_repeated_start_is_ignored() -> None:
    """Epochs only grow; a second start of the same one must not forget anything either."""
    graph = replay([start(2), init(2), start(1, fresh=True), start(2, fresh=True)])
    assert sorted(graph.attempts) == [2]
    assert graph.base_epoch == 1
    assert "v" in graph.vertices
    assert len(graph.problems) == 2


def test_events_before_any_start_are_ignored() -> None:
    """The block that held the start may be lost."""
    graph = replay([init(1), done(0, 1), ev.JobFinished(epoch=1)])
    assert (graph.attempts, graph.vertices) == ({}, {})
    assert len(graph.problems) == 3


def test_another_layout_discards_the_partitions_of_the_old_one() -> None:
    """Partitions of unequal layouts or numbers never mix; the same one keeps them."""
    for layout, parallelism, missing in (("l", 2, [1]), ("m", 2, [0, 1]), ("l", 3, [0, 1, 2])):
        graph = replay([start(1), init(1), done(0, 1), start(2), init(2, layout=layout, parallelism=parallelism)])
        assert graph.vertices["v"].missing == missing
        assert not graph.vertices["v"].finished


def test_a_finished_vertex_in_a_new_layout_is_not_finished() -> None:
    """The end belonged to the old partitions."""
    graph = replay([start(1), init(1), done(0), done(1), end(), start(2), init(2, layout="m")])
    assert not graph.vertices["v"].finished


def test_partitions_that_do_not_fit_are_ignored() -> None:
    """Unknown vertex, other layout, impossible index."""
    graph = replay([start(), init(), done(0, vertex="w"), done(0, layout="m"), done(2), done(-1)])
    assert graph.vertices["v"].partitions == {}
    assert len(graph.problems) == 4


def test_the_first_of_two_results_counts() -> None:
    """Speculative tasks and survivors found again do not replace what consumers may have read."""
    graph = replay([start(), init(), done(0, key="first"), done(0, key="second")])
    assert graph.vertices["v"].partitions[0].key == "first"


def test_reset_partitions_are_missing_again() -> None:
    """Some, or without indexes all; the vertex is not finished any more; a new result is taken."""
    history = [start(), init(), done(0), done(1), end()]
    some = replay([*history, ev.PartitionsReset(epoch=1, vertex="v", indexes=(1, 7), reason="lost")])
    assert some.vertices["v"].missing == [1]
    assert not some.vertices["v"].finished
    some.apply(done(1, key="again"))
    assert some.vertices["v"].partitions[1].key == "again"
    every = replay([*history, ev.PartitionsReset(epoch=1, vertex="v", indexes=(), reason="lost")])
    assert every.vertices["v"].missing == [0, 1]
    assert replay([start(), ev.PartitionsReset(epoch=1, vertex="w", indexes=(), reason="r")]).vertices == {}


@pytest.mark.parametrize(
    "change",
    [
        done(0, key="again"),
        done(1),
        ev.PartitionsReset(epoch=1, vertex="v", indexes=(0,), reason="lost"),
        ev.PartitionsReset(epoch=1, vertex="v", indexes=(), reason="lost"),
        init(layout="m"),
        end(),
        start(2, fresh=True),
    ],
    ids=repr,
)
def test_a_copy_and_its_original_go_their_own_ways(change: ev.JobEvent) -> None:
    """A change of either, the second one too, is not seen in the other, although they share what has not changed."""
    history = [start(), init(), done(0)]
    for changed_first in (True, False):
        graph = replay(history)
        copy = graph.copy()
        changed, kept = (graph, copy) if changed_first else (copy, graph)
        changed.apply(change)
        assert kept.vertices == replay(history).vertices
        assert changed.vertices == replay([*history, change]).vertices
        kept.apply(change)
        assert kept.vertices == changed.vertices


def test_a_reused_vertex_counts_as_reached() -> None:
    """In place of one event for each kept partition."""
    graph = replay([start(1), init(1), start(2), ev.VertexReused(epoch=2, vertex="v", layout="l")])
    assert graph.vertices["v"].reached_by == {1, 2}


def test_an_unknown_state_is_a_problem() -> None:
    """The state stays what it was."""
    graph = replay([start(), ev.JobStateChanged(epoch=1, state="DANCING")])
    assert graph.attempts[1].state is JobState.CREATED
    assert "DANCING" in graph.problems[0]


@given(st.lists(any_events, max_size=20))
def test_any_history_can_be_replayed(history: list[ev.JobEvent]) -> None:
    """Whatever events come in whatever order, replay ends, and what it says is consistent."""
    graph = replay(history)
    assert list(graph.attempts) == sorted(graph.attempts)
    for vertex in graph.vertices.values():
        assert all(0 <= index < vertex.initialized.parallelism for index in vertex.partitions)
        assert not vertex.finished or vertex.complete


@given(st.lists(any_events, max_size=20), st.integers(0, 20))
def test_replay_is_a_fold(history: list[ev.JobEvent], cut: int) -> None:
    """Replaying a part and applying the rest is the same as replaying all."""
    graph = replay(history[:cut])
    for event in history[cut:]:
        graph.apply(event)
    whole = replay(history)
    assert (graph.attempts, graph.vertices, graph.problems) == (whole.attempts, whole.vertices, whole.problems)


@given(st.data())
def test_whatever_a_zombie_adds_the_graph_of_the_newest_is_the_same(data: st.DataObject) -> None:
    """Events of older attempts, strewn into the newest one's, change neither vertices nor the newest attempt."""
    history = [start(1), init(1), done(0, 1), start(2), init(2), done(1, 2), end(2), ev.JobFinished(epoch=2, at=9.0)]
    zombie = [start(1), init(1, layout="m"), done(1, 1), end(1), ev.JobFailed(epoch=1, error="x")]
    strewn = list(history)
    for event in data.draw(st.lists(st.sampled_from(zombie), max_size=6)):
        strewn.insert(data.draw(st.integers(4, len(strewn))), event)
    graph, clean = ExecutionGraph(), replay(history)
    for event in strewn:
        graph.apply(event)
    assert graph.vertices == clean.vertices
    assert graph.newest == clean.newest


@pytest.mark.parametrize(
    ("series", "since", "retried"),
    [
        ({1: "a", 2: "a", 3: "a"}, 1, True),
        ({1: "a", 2: "a", 3: "a"}, 3, True),
        ({1: "a", 2: "b", 3: "b"}, 1, False),
        ({1: "a", 2: "b", 3: "b"}, 2, True),
        ({1: "a", 2: "b", 3: "a"}, 1, False),
        ({1: "", 2: "", 3: ""}, 1, False),
        ({1: "a", 3: "a"}, 1, False),
        ({}, 1, False),
    ],
)
def test_automatic_retries_are_known_by_their_series(series: dict[int, str], since: int, retried: bool) -> None:
    """An attempt of another series, of none, or of which nothing is recorded breaks it: somebody may have asked for new
    data. A snapshot knows it, too; a history of an older release has none.
    """
    graph = replay(start(epoch, series=name) for epoch, name in series.items())
    assert graph.only_retried_since(since) is retried
    assert decode_graph(encode_graph(graph)).only_retried_since(since) is retried
