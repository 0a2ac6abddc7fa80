"""Partitions move only as they may, whatever threads say at the same time."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.core.errors import IllegalMove
from airflow_provider.core.partition_tracker import PartitionState, PartitionTracker

IN_PROGRESS, FINISHED, RELEASED = PartitionState.IN_PROGRESS, PartitionState.FINISHED, PartitionState.RELEASED


def tracker(state: PartitionState | None) -> PartitionTracker:
    """One whose partition 0 of ``v`` is in *state*."""
    made = PartitionTracker()
    if state is not None:
        made.start("v", [0])
    if state is RELEASED:
        made.deactivate()
    if state in (FINISHED, RELEASED):
        made.finish("v", 0)
    assert made.state("v", 0) is state
    return made


MOVES = {
    "start": lambda t: t.start("v", [0]),
    "adopt": lambda t: t.adopt("v", 0),
    "finish": lambda t: t.finish("v", 0),
    "forget": lambda t: t.forget("v", [0]),
    "release": lambda t: t.release("v"),
}
ILLEGAL = "illegal"
TABLE = {
    ("start", None): IN_PROGRESS, ("start", IN_PROGRESS): IN_PROGRESS, ("start", FINISHED): FINISHED,
    ("start", RELEASED): IN_PROGRESS,
    ("adopt", None): FINISHED, ("adopt", IN_PROGRESS): FINISHED, ("adopt", FINISHED): FINISHED,
    ("adopt", RELEASED): ILLEGAL,
    ("finish", None): ILLEGAL, ("finish", IN_PROGRESS): FINISHED, ("finish", FINISHED): FINISHED,
    ("finish", RELEASED): RELEASED,
    ("forget", None): None, ("forget", IN_PROGRESS): None, ("forget", FINISHED): None, ("forget", RELEASED): None,
    ("release", None): None, ("release", IN_PROGRESS): ILLEGAL, ("release", FINISHED): RELEASED,
    ("release", RELEASED): RELEASED,
}  # fmt: skip


@pytest.mark.parametrize(("move", "before"), TABLE)
def test_every_move_from_every_state(move: str, before: PartitionState | None) -> None:
    """A legal one leads where the table says; an illegal one is an error and changes nothing."""
    made, after = tracker(before), TABLE[move, before]
    if after is ILLEGAL:
        with pytest.raises(IllegalMove, match="Partition 0 of v cannot be"):
            MOVES[move](made)
        assert made.state("v", 0) is before
    else:
        MOVES[move](made)
        assert made.state("v", 0) is after


def test_what_finishes_after_the_attempt_is_over_is_released_at_once() -> None:
    """And stays released when it is told again."""
    made = tracker(IN_PROGRESS)
    assert made.active
    made.deactivate()
    assert not made.active
    assert made.finish("v", 0) is False
    assert made.state("v", 0) is RELEASED
    assert made.finish("v", 0) is False


def test_forgetting_without_indexes_forgets_the_vertex() -> None:
    """As a reset without indexes does."""
    made = PartitionTracker()
    made.start("v", range(3))
    made.start("w", range(2))
    made.forget("v")
    assert [made.state("v", index) for index in range(3)] == [None] * 3
    assert [made.state("w", index) for index in range(2)] == [IN_PROGRESS] * 2


def test_a_release_that_is_illegal_releases_nothing() -> None:
    """All of a vertex or none of it."""
    made = PartitionTracker()
    made.start("v", range(3))
    made.finish("v", 0)
    with pytest.raises(IllegalMove):
        made.release("v")
    assert [made.state("v", index) for index in range(3)] == [FINISHED, IN_PROGRESS, IN_PROGRESS]


@given(st.lists(st.sampled_from(sorted(MOVES)), max_size=30))
def test_any_sequence_follows_the_table(moves: list[str]) -> None:
    """The state after any number of tries, legal and illegal, is the one that the table leads to."""
    made = PartitionTracker()
    state: PartitionState | None = None
    for move in moves:
        after = TABLE[move, state]
        if after is ILLEGAL:
            with pytest.raises(IllegalMove):
                MOVES[move](made)
        else:
            MOVES[move](made)
            state = cast("PartitionState | None", after)
        assert made.state("v", 0) is state


def test_threads_lose_nothing_and_a_partition_is_counted_or_released_never_both() -> None:
    """Of partitions that finish while the attempt ends, those told to count are finished, the others released."""
    made, indexes = PartitionTracker(), range(2000)
    made.start("v", indexes)
    begin = threading.Barrier(5)

    def finish(part: int) -> int:
        begin.wait()
        return sum(made.finish("v", index) for index in indexes[part::4])

    with ThreadPoolExecutor(4) as pool:
        counts = [pool.submit(finish, part) for part in range(4)]
        begin.wait()
        made.deactivate()
        counted = sum(count.result() for count in counts)
    states = Counter(made.state("v", index) for index in indexes)
    assert (states[FINISHED], states[RELEASED]) == (counted, len(indexes) - counted)
