"""What a retry would save now: nothing that it could not reuse is counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.core import events as ev
from airflow_provider.core.savings import (
    NOT_WHOLE,
    SUPERSEDED,
    RetrySavings,
    not_reusable,
    noun,
    retry_savings,
    savings_text,
)
from tests.core.examples import done, end, init, start
from tests.core.examples import events as any_events
from tests.support.replaying import replay

SHUFFLE = {"rule": ev.SHUFFLE}


def savings(events: list[ev.JobEvent], discarded: str = "") -> RetrySavings:
    graph = replay(events)
    return retry_savings(graph, not_reusable(graph, discarded), discarded)


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
