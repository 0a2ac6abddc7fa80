"""What a retry would save now: nothing that it could not reuse is counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.core import events as ev
from airflow_provider.core.history import JobHistory
from airflow_provider.core.job_view import job_view
from airflow_provider.core.report import build_report, format_report
from airflow_provider.core.savings import (
    NOT_WHOLE,
    SUPERSEDED,
    OtherWork,
    RetrySavings,
    Work,
    not_reusable,
    noun,
    percent,
    retry_savings,
    savings_text,
    taken_over,
    work_so_far,
)
from airflow_provider.core.task_time import ANY, TASK_TIME, TaskTime, Use, state_of
from tests.core.examples import done, end, init, start
from tests.core.examples import events as any_events
from tests.support.replaying import replay

SHUFFLE = {"rule": ev.SHUFFLE}


def savings(events: list[ev.JobEvent], discarded: str = "") -> RetrySavings:
    graph = replay(events)
    because = not_reusable(graph, discarded)
    return retry_savings(graph, because, work_so_far(graph, because, discarded), discarded)


def spent(epoch: int, used: TaskTime | None) -> ev.JobEvent:
    """An attempt says what its tasks have taken so far."""
    return ev.CoordinatorSnapshot(epoch=epoch, coordinator=TASK_TIME, state=state_of(epoch, used))


def remembered(name: str, epoch: int = 1, **state: object) -> ev.JobEvent:
    return ev.CoordinatorSnapshot(epoch=epoch, coordinator=name, state=state)


def work(history: list[ev.JobEvent]) -> dict[str, Work]:
    graph = replay(history)
    return work_so_far(graph, not_reusable(graph))


def test_what_is_stored_is_reused_whichever_attempt_stored_it() -> None:
    """Map outputs and named partitions of both attempts count, with their bytes and task time; missing ones do not."""
    history = [
        start(1), init(1, "s", 3, **SHUFFLE), done(0, 1, "s"), done(1, 1, "s"),
        start(2), init(2, "s", 3, **SHUFFLE), init(2, "named", 2), done(0, 2, "named"),
    ]  # fmt: skip
    assert savings(history) == RetrySavings(partitions=5, map_outputs=3, reusable=3, bytes=300, task_seconds=6.0)


def test_what_stands_below_a_whole_shuffle_counts_too() -> None:
    """A retry does not run it either, although no attempt has to come to it any more."""
    history = [
        start(1), init(1, "low", 1, **SHUFFLE), done(0, 1, "low"), end(1, "low"),
        init(1, "high", 1, upstream=("low",), **SHUFFLE), done(0, 1, "high"), end(1, "high"),
        start(2), ev.VertexReused(epoch=2, vertex="high", layout="l"),
    ]  # fmt: skip
    assert (savings(history).reusable, savings(history).task_seconds) == (2, 4.0)


def test_what_is_superseded_is_neither_reused_nor_counted() -> None:
    """The old vertex of a name that has another one now is released by the retry."""
    history = [start(1), init(1, "old", name="n"), done(0, 1, "old"), start(2), init(2, "new", name="n")]
    assert not_reusable(replay(history)) == {"old": SUPERSEDED}
    assert savings(history) == RetrySavings(partitions=2)


def test_what_is_not_deterministic_counts_only_whole() -> None:
    """A part of it would be computed again."""
    told = ev.VertexInitialized(
        epoch=1, vertex="v", name="v", fingerprint="f", parallelism=2, layout="l", deterministic=False
    )
    part = [start(1), told, done(0)]
    assert not_reusable(replay(part)) == {"v": NOT_WHOLE}
    assert savings(part).reusable == 0
    assert savings([*part, done(1), end()]).reusable == 2


def test_what_is_discarded_saves_nothing() -> None:
    """Whatever is stored; the sentence says why."""
    found = savings([start(1), init(), done(0)], "what attempt 1 and earlier ones stored was discarded")
    assert (found.reusable, found.task_seconds) == (0, 0.0)
    assert savings_text(found, "FAILED") == (
        "A retry would reuse nothing, because what attempt 1 and earlier ones stored was discarded."
    )


@pytest.mark.parametrize(
    ("found", "state", "text"),
    [
        (RetrySavings(), "FAILED", "Nothing is kept: a retry would run the whole job."),
        (RetrySavings(4, 4), "RUNNING", "A retry would reuse none of 4 map outputs and save nothing."),
        (
            RetrySavings(1_200, 1_200, 1_100, 5, 8_000.0),
            "FAILED",
            "A retry would reuse 1,100 of 1,200 map outputs and save about 2 h 13 min of task time.",
        ),
        (
            RetrySavings(6, 4, 5, 5, 2.0),
            "RUNNING",
            "A retry would reuse 5 of 6 map outputs and partitions and save about 2.0 s of task time.",
        ),
        (
            RetrySavings(1_200, 1_200, 1_100, 5, 8_000.0, work=Work(21_600.0, 18_720.0)),
            "RUNNING",
            "A retry now would keep 86 % of the work so far: 5 h 12 min of 6 h 00 min of task time; "
            "1,100 of 1,200 map outputs are stored.",
        ),
        (
            RetrySavings(work=Work(60.0, 60.0)),
            "FAILED",
            "A retry now would keep 100 % of the work so far: 1 min 00 s of 1 min 00 s of task time.",
        ),
        (
            RetrySavings(2, 0, 2, 5, 2.0),
            "FINISHED",
            "The job has finished, so there is nothing to retry; when it ended, 2 of 2 partitions were stored.",
        ),
    ],
)
def test_the_sentence(found: RetrySavings, state: str, text: str) -> None:
    """What, of how many, and how much time; a job that has finished has nothing to retry."""
    assert savings_text(found, state) == text


def test_one_of_them_is_called_so() -> None:
    """Singular and plural, map outputs and partitions."""
    assert [noun(0, 1), noun(0, 2), noun(1, 1), noun(2, 2), noun(1, 2)] == [
        "partition", "partitions", "map output", "map outputs", "map outputs and partitions",
    ]  # fmt: skip


@given(st.lists(any_events, max_size=60))
def test_no_more_is_reused_than_is_stored(events: list[ev.JobEvent]) -> None:
    """Whatever happened."""
    graph = replay(events)
    found = savings(events)
    stored = sum(len(vertex.partitions) for vertex in graph.vertices.values())
    assert 0 <= found.reusable <= min(found.partitions, stored)


OUTPUT = "sink/1"
WRITTEN = remembered(OUTPUT, status="WRITTEN", title="/target")


def test_of_a_vertex_that_is_stored_in_part_the_stored_part_is_kept() -> None:
    """What it is made of counts only when nothing needs it any more: tasks that are missing read it again."""
    below, above = Use("low", ("high",)), Use("high", (OUTPUT,))
    history = [
        start(1), init(1, "low", 4, **SHUFFLE), done(0, 1, "low"), init(1, "high", 2, upstream=("low",), **SHUFFLE),
        done(0, 1, "high"), spent(1, {below: 40.0, Use(ANY, ("low",)): 7.0, above: 6.0}),
    ]  # fmt: skip
    assert work(history) == {"low": Work(47.0, 2.0), "high": Work(6.0, 2.0)}
    assert work([*history, done(1, 1, "high"), end(1, "high")]) == {"low": Work(47.0, 47.0), "high": Work(6.0, 6.0)}
    whole = [*history, done(1, 1, "low"), done(2, 1, "low"), done(3, 1, "low")]
    assert work(whole) == {"low": Work(47.0, 47.0), "high": Work(6.0, 2.0)}


def test_filling_a_cached_frame_counts_once() -> None:
    """It is a part of what the tasks took that have read the frame, however much of that is kept besides."""
    frame = init(1, "cached(id)", 4, **SHUFFLE)
    stored = [frame, done(0, 1, "cached(id)"), done(1, 1, "cached(id)")]
    told = work([start(1), *stored, spent(1, {Use("", (ANY,)): 10.0})])
    assert sum(each.spent for each in told.values()) == 10.0
    assert told["cached(id)"] == Work(4.0, 4.0)
    told = work([start(1), *stored, init(1, "s", 2, **SHUFFLE), done(0, 1, "s"), spent(1, {Use("s"): 5.0})])
    assert told["s"] == Work(2.0, 2.0), "its map outputs are kept themselves"
    assert told["cached(id)"] == Work(3.0, 3.0)


def test_a_committed_output_keeps_all_that_it_alone_has_needed() -> None:
    """Its own tasks, and those of shuffles that nobody kept; not of a shuffle that something else reads, too."""
    used = {Use(ANY, (OUTPUT,)): 30.0, Use(ANY, (ANY, OUTPUT)): 5.0, Use(ANY, (ANY,)): 3.0, Use(ANY): 2.0}
    history = [start(1), remembered(OUTPUT, status="WRITING", title="/target"), spent(1, used)]
    assert work(history) == {OUTPUT: Work(30.0, 0.0), ANY: Work(10.0, 0.0)}
    assert work([*history, WRITTEN]) == {OUTPUT: Work(30.0, 30.0), ANY: Work(10.0, 0.0)}
    assert savings([*history, WRITTEN]).others[0] == OtherWork(30.0, 30.0, "output /target")


def test_a_step_that_has_ended_is_kept() -> None:
    """Its result is in the store; not one that a retry runs again, because it may be another one then."""
    history = [start(1), spent(1, {Use(ANY, ("step/train",)): 9.0})]
    assert work(history) == {"step/train": Work(9.0, 0.0)}
    assert work([*history, remembered("step/train", result=1)]) == {"step/train": Work(9.0, 9.0)}
    assert work([*history, remembered("step/train", result=1, again="r")]) == {"step/train": Work(9.0, 0.0)}


def test_what_was_released_is_kept() -> None:
    """Its partitions are gone because nothing needs them; its work is not lost."""
    stored = [start(1), init(1, "v", 1, **SHUFFLE), done(0, 1, "v"), end(1, "v")]
    used = {Use("v", (OUTPUT,)): 8.0}
    history = [*stored, spent(1, used), WRITTEN, ev.VertexReleased(epoch=1, vertex="v")]
    assert work(history) == {"v": Work(8.0, 8.0)}
    assert savings(history).work == Work(8.0, 8.0)


def test_what_is_lost_is_not_kept() -> None:
    """Partitions that were given up, and what cannot be kept in part."""
    stored = [start(1), init(1, "v", 2), done(0), done(1), end(), spent(1, {Use("v"): 10.0})]
    assert work(stored)["v"] == Work(10.0, 10.0)
    assert work([*stored, ev.PartitionsReset(epoch=1, vertex="v", indexes=(1,), reason="")])["v"] == Work(10.0, 2.0)
    told = ev.VertexInitialized(
        epoch=1, vertex="v", name="v", fingerprint="f", parallelism=2, layout="l", deterministic=False
    )
    assert work([start(1), told, done(0), spent(1, {Use("v"): 10.0})])["v"] == Work(10.0, 0.0)


def test_who_has_stored_more_than_was_recorded_as_spent_has_spent_it() -> None:
    """What was stored is recorded at once, what was spent a little later: no share is above the whole."""
    history = [start(1), init(1, "v", 8), done(0), done(1), done(2), spent(1, {Use("v"): 1.0})]
    assert work(history) == {"v": Work(6.0, 6.0)}


def test_the_next_attempt_takes_over_what_is_kept_and_begins_with_nothing_lost() -> None:
    """What the killed one had spent for nothing is not lost a second time, and its own work is added."""
    used = {Use("v", (OUTPUT,)): 10.0, Use(ANY, ("v",)): 4.0, Use(ANY, (ANY,)): 5.0}
    first = [start(1), init(1, "v", 2, **SHUFFLE), done(0, 1, "v"), spent(1, used), start(2)]
    assert work(first) == {}, "the second attempt has not said anything yet"
    taken = taken_over(replay(first))
    assert taken == {Use("v", (OUTPUT,)): 2.0}
    second = [*first, spent(2, taken)]
    assert work(second) == {"v": Work(2.0, 2.0)}
    later = [*second, init(2, "v", 2, **SHUFFLE), done(1, 2, "v"), spent(2, {Use("v", (OUTPUT,)): 7.0})]
    assert work(later) == {"v": Work(7.0, 7.0)}


def test_what_is_superseded_or_given_up_counts_as_no_work() -> None:
    """Nobody needs it any more, so it cannot be lost either; a retry that begins afresh keeps nothing at all."""
    old = [start(1), init(1, "old", name="n"), done(0, 1, "old"), spent(1, {Use("old"): 9.0})]
    new = [
        *old,
        start(2),
        init(2, "new", name="n"),
        spent(2, {Use("old"): 9.0, Use("new"): 1.0, Use(ANY, ("old",)): 2.0}),
    ]
    assert work(new) == {"new": Work(1.0, 0.0)}
    assert savings([*old, WRITTEN], "it was discarded").work == Work(9.0, 0.0)


def test_who_does_not_know_what_was_spent_says_nothing_of_a_share() -> None:
    """Events of older releases, the first seconds of an attempt, tasks that went uncounted."""
    history = [start(1), init(1, "v", 2), done(0)]
    old = "A retry would reuse 1 of 2 partitions and save about 2.0 s of task time."
    for events in (history, [*history, spent(1, None)], [*history, spent(1, {Use("v"): 4.0}), start(2)]):
        assert (work(events), savings(events).work) == ({}, None)
        assert savings_text(savings(events), "RUNNING") == old
    assert taken_over(replay([*history, start(2)])) == {}
    assert taken_over(replay([*history, spent(1, None), start(2)])) is None


def test_the_share_is_rounded_down() -> None:
    """100 % is kept only where nothing would be lost."""
    assert [percent(Work(1_000.0, kept)) for kept in (0.0, 9.0, 999.9, 1_000.0)] == [0, 0, 99, 100]


def test_report_and_page_have_the_share_of_all_and_of_each() -> None:
    """The same numbers in both, and in the text of the report."""
    used = {Use("v"): 10.0, Use(ANY, (OUTPUT,)): 30.0}
    graph = replay([start(1), init(1, "v", 2), done(0), WRITTEN, spent(1, used)])
    report, view = build_report("job", graph), job_view("job", graph, JobHistory())
    assert report.vertices[0].work == Work(10.0, 2.0)
    assert view["vertices"][0]["work"] == {"spent": 10.0, "kept": 2.0}
    assert view["retry"]["work"] == report.to_dict()["retry"]["work"] == {"spent": 40.0, "kept": 32.0}
    text = format_report(report).splitlines()
    assert text[-1].startswith("A retry now would keep 80 % of the work so far: 32 s of 40 s of task time")
    assert "  output /target: 30 s of 30 s of task time kept" in text


@given(st.lists(any_events, max_size=60), st.dictionaries(st.sampled_from("abc"), st.floats(0, 1e6)))
def test_no_more_is_kept_than_was_spent(events: list[ev.JobEvent], seconds: dict[str, float]) -> None:
    """Whatever happened."""
    history = [*events, start(10**9), *(init(10**9, name) for name in seconds)]
    told = spent(10**9, {Use(name, (OUTPUT,)): taken for name, taken in seconds.items()})
    for done_so_far in work([*history, told]).values():
        assert 0 <= done_so_far.kept <= done_so_far.spent
