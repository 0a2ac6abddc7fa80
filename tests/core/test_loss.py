"""What a lost block may have told is given up; the rest is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.core import events as ev
from airflow_provider.core.graph import MOST_PROBLEMS, ExecutionGraph
from airflow_provider.core.loss import LOST, Loss, first_start_lost, may_be_outdated, not_determined
from airflow_provider.core.report import build_report, format_report
from airflow_provider.core.snapshot import decode_graph, encode_graph
from tests.core.examples import PLAUSIBLE, done, end, start, state_of
from tests.support.replaying import replay


def init(vertex: str, *upstream: str, deterministic: bool = True, epoch: int = 1) -> ev.VertexInitialized:
    return ev.VertexInitialized(
        epoch=epoch,
        vertex=vertex,
        name=vertex,
        fingerprint="f",
        parallelism=1,
        layout="l",
        deterministic=deterministic,
        upstream=upstream,
    )


def fold(*history: ev.JobEvent | Loss) -> ExecutionGraph:
    graph = ExecutionGraph()
    for item in history:
        if isinstance(item, Loss):
            graph.lose(item)
        else:
            graph.apply(item)
    return graph


@pytest.mark.parametrize(
    ("loss", "newest", "first"),
    [
        (Loss(1), 0, 2),
        (Loss(5), 1, 2),
        (Loss(5), 3, 4),
        (Loss(5, epoch=3), 3, None),
        (Loss(5, epoch=2), 3, None),
        (Loss(5, epoch=4), 3, 4),
        (Loss(5, epoch=4, first_read=True), 3, None),
    ],
)
def test_whose_start_may_be_lost(loss: Loss, newest: int, first: int | None) -> None:
    """That of a later attempt, unless the block is known to be another's or its first record was read."""
    assert first_start_lost(loss, newest) == first


def test_what_is_not_deterministic_is_given_up_with_all_that_reads_it() -> None:
    """A second incarnation may be lost; deterministic vertices beside and above it are right whatever was lost."""
    vertices = [init("a"), init("b", "a", deterministic=False), init("c", "b"), init("d", "c", "a"), init("e", "a")]
    assert not_determined({vertex.vertex: vertex for vertex in vertices}) == ["b", "c", "d"]
    ended = [event for v in vertices for event in (v, done(0, vertex=v.vertex), end(vertex=v.vertex))]
    graph = fold(start(1), *ended, Loss(9, epoch=1))
    assert {i: (v.finished, len(v.partitions)) for i, v in graph.vertices.items()} == {
        "a": (True, 1), "b": (False, 0), "c": (False, 0), "d": (False, 0), "e": (True, 1),
    }  # fmt: skip
    assert "b, c, d given up" in graph.problems[0]
    assert graph.abandoned == ""


def test_an_end_behind_the_loss_does_not_bring_it_back() -> None:
    """The partitions that the end speaks of may be the second incarnation's."""
    graph = fold(start(1), init("v", deterministic=False), done(0), Loss(3, epoch=1), end())
    assert not graph.vertices["v"].finished


def test_a_loss_that_was_dealt_with_does_not_harm_what_came_later() -> None:
    """An attempt that computed the vertex again behind the loss is believed by the next one."""
    again = [start(2), init("v", deterministic=False, epoch=2), done(0, 2), end(2)]
    graph = fold(start(1), init("v", deterministic=False), done(0), end(), Loss(3, epoch=1), *again)
    assert graph.vertices["v"].finished
    assert graph.must_start_afresh(3) == ""


def test_a_loss_within_one_attempt_or_at_its_end_hides_no_start() -> None:
    """The blocks of an attempt have no gap, and the next one's start is there or its own."""
    within = fold(start(1), init("v"), done(0), Loss(3), ev.JobStateChanged(epoch=1, state="RUNNING"))
    between = fold(start(1), init("v"), done(0), Loss(3), start(2))
    for graph, next_epoch in ((within, 2), (between, 3), (fold(start(1), init("v"), done(0), Loss(3)), 2)):
        assert graph.must_start_afresh(next_epoch) == ""
        assert graph.vertices["v"].complete


def test_the_first_attempt_had_nothing_to_give_up() -> None:
    """Its start may be lost without harm."""
    assert fold(Loss(1), init("v"), done(0)).must_start_afresh(2) == ""


@pytest.mark.parametrize(
    "history",
    [
        (start(1), init("v"), done(0), Loss(3)),  # the third attempt reads: the second one's start may be there
        (start(1), init("v"), done(0), Loss(3), init("v", epoch=2)),
        (start(1), init("v"), done(0), Loss(3), start(3)),
        (start(1), init("v"), done(0), Loss(3, epoch=2)),
        (start(1), init("v"), done(0), Loss(3), Loss(4), start(3)),
    ],
)
def test_a_start_that_may_be_lost_abandons_recovery(history: tuple[ev.JobEvent | Loss, ...]) -> None:
    """It may have said that nothing older is to be reused: then a cleared task would meet its old partitions again."""
    graph = fold(*history)
    assert "lost the start" in graph.must_start_afresh(4 if history[-1] == start(3) else 3)


def test_a_fresh_start_behind_the_loss_makes_it_irrelevant() -> None:
    """Everything older is given up anyway, and what follows is believed."""
    graph = fold(start(1), init("v"), done(0), Loss(3), start(3, fresh=True), init("w", epoch=3), done(0, 3, "w"))
    assert graph.must_start_afresh(4) == ""
    assert list(graph.vertices) == ["w"]
    assert graph.base_epoch == 3


def test_an_abandoned_recovery_counts_as_a_restart() -> None:
    """In the report, as a number and in words."""
    abandoned = ev.AttemptStarted(epoch=3, fresh=True, abandoned=True, reason="lost")
    report = build_report("job", replay([start(1), start(2, fresh=True), abandoned]))
    assert report.restarts == 1
    assert [attempt.abandoned for attempt in report.attempts] == [False, False, True]
    assert "because recovery had to be abandoned: 1" in format_report(report)
    assert "abandoned" not in format_report(build_report("job", replay([start(1), start(2, fresh=True)])))


def test_no_more_problems_are_told_than_anybody_reads() -> None:
    """One lost block can make thousands of later events unusable."""
    graph = fold(start(1), *(done(index) for index in range(1000)))
    assert len(graph.problems) == MOST_PROBLEMS + 1
    assert "more such problems" in graph.problems[-1]


def tells(coordinator: str, state: str, epoch: int = 1) -> ev.CoordinatorSnapshot:
    """What a coordinator has recorded: with ``write`` and ``status`` it may stand for a committed write."""
    told = {"status": "WRITTEN", "attempt": epoch, "write": state, "title": "t", "location": "l", "created": False}
    return ev.CoordinatorSnapshot(epoch=epoch, coordinator=coordinator, state={**told, "table": ""})


told = st.builds(tells, st.sampled_from(["step/a", "source/b", "sink/c", "streaming/d"]), st.sampled_from("uvw"))


@given(st.lists(told, max_size=6), st.lists(told, max_size=4), st.lists(told, max_size=4))
def test_what_is_lost_costs_what_it_held(
    before: list[ev.JobEvent], lost: list[ev.JobEvent], behind: list[ev.JobEvent]
) -> None:
    """Whatever the records that are gone: what a coordinator has recorded before them or behind them is known, and
    what only they held is not made up.
    """
    whole, kept = fold(start(1), *before, *lost, *behind), fold(start(1), *before, Loss(3, epoch=1), *behind)
    touched = {event.coordinator for event in lost if isinstance(event, ev.CoordinatorSnapshot)}
    touched -= {event.coordinator for event in behind if isinstance(event, ev.CoordinatorSnapshot)}
    without = fold(start(1), *before, *behind).coordinators
    assert {name: kept.coordinators.get(name) for name in whole.coordinators} == {
        name: without.get(name) if name in touched else state for name, state in whole.coordinators.items()
    }
    assert kept.coordinators.keys() == without.keys() | {LOST}


@pytest.mark.parametrize(
    ("loss", "known", "doubt"),
    [
        (None, None, False),
        (Loss(7, epoch=2), None, True),
        (Loss(7, epoch=2), {"attempt": 2}, True),
        (Loss(7, epoch=2), {"attempt": 3}, False),
        (Loss(7), {"attempt": 2}, True),
        (Loss(7), {"attempt": 3}, False),
        (Loss(7), {"attempt": "rubbish"}, True),
    ],
)
def test_what_may_have_been_written_since(loss: Loss | None, known: dict[str, object] | None, doubt: bool) -> None:
    """An output of which nothing is known, or what an attempt has recorded that may have recorded more."""
    graph = fold(start(1), start(2), *([loss] if loss is not None else []), start(3))
    why = may_be_outdated(graph.coordinators, known)
    assert bool(why) == doubt
    assert not doubt or "block 7 of the event store is lost" in why


@pytest.mark.parametrize(
    ("ends", "fresh", "left"),
    [
        ([Loss(3, epoch=1)], start(2, fresh=True), {LOST}),
        ([Loss(3, epoch=1), ev.JobFailed(epoch=1, error="boom")], start(2, fresh=True), {LOST, "sink/a"}),
        ([Loss(3, epoch=1), ev.JobFinished(epoch=1)], start(2, fresh=True), set()),
        ([Loss(3, epoch=1), start(2)], start(3, fresh=True), {LOST, "sink/a"}),
        ([Loss(3, epoch=1), start(2)], start(3, fresh=True, another_run=True), set()),
        ([ev.JobFinished(epoch=1), Loss(3, epoch=2)], start(3, fresh=True, abandoned=True), {LOST}),
    ],
)
def test_a_fresh_start_behind_a_loss(ends: list[ev.JobEvent | Loss], fresh: ev.JobEvent, left: set[str]) -> None:
    """It takes back what an attempt has written that certainly did not succeed, and knows that there may be more."""
    graph = fold(start(1), tells("sink/a", "u"), *ends, fresh)
    assert graph.coordinators.keys() - {"restart-strategy"} == left


losses = st.builds(Loss, st.integers(1, 9), st.integers(0, 3), st.booleans())


@given(st.lists(st.sampled_from(PLAUSIBLE) | losses | told, max_size=40), st.integers(0, 40))
def test_a_snapshot_after_a_loss_is_exact_too(history: list[ev.JobEvent | Loss], cut: int) -> None:
    """What was given up, and what still may have to be, is part of it."""
    graph = decode_graph(encode_graph(fold(*history[:cut])))
    for item in history[cut:]:
        graph.lose(item) if isinstance(item, Loss) else graph.apply(item)
    whole = fold(*history)
    assert (state_of(graph), graph.abandoned, graph.gap) == (state_of(whole), whole.abandoned, whole.gap)
