"""What tasks were used for, from what Spark's stages say."""

from __future__ import annotations

import pytest

from airflow_provider.core.task_time import (
    ANY,
    TASK_TIME,
    Stage,
    StageTimes,
    Use,
    recorded,
    state_of,
    task_time,
    together,
)


def used(
    seconds: dict[Stage, float], read_by: dict[int, set[Stage]], shuffles: dict[int, str], *vertices: str
) -> dict[Use, float]:
    return task_time(StageTimes(seconds, read_by), shuffles, vertices)


def test_a_kept_shuffle_is_needed_by_what_reads_it() -> None:
    """A kept shuffle above it, or what its job is for."""
    found = used({1: 3.0, 2: 4.0, "sink/a": 5.0}, {1: {2}, 2: {"sink/a"}}, {1: "low", 2: "high"})
    assert found == {Use("low", ("high",)): 3.0, Use("high", ("sink/a",)): 4.0, Use(ANY, ("sink/a",)): 5.0}


def test_what_is_not_kept_is_needed_by_the_next_above_that_is() -> None:
    """Through as many shuffles as stand between, and by all of them if there are several."""
    found = used({1: 3.0}, {1: {2, 4}, 2: {3}, 4: {"step/s"}}, {3: "high"})
    assert found == {Use(ANY, ("high", "step/s")): 3.0}


def test_what_nothing_has_read_yet_is_needed_by_nothing_that_could_be_kept() -> None:
    """Directly, or by a shuffle that nobody keeps, and that nothing has read."""
    assert used({1: 3.0}, {}, {}) == {Use(ANY): 3.0}
    assert used({1: 3.0}, {1: {2, 5}, 5: {"sink/a"}}, {}) == {Use(ANY, (ANY, "sink/a")): 3.0}


def test_tasks_for_a_recovery_point_of_the_script_compute_it() -> None:
    """As soon as it is known; before, they are needed by it."""
    assert used({"v": 3.0}, {}, {}, "v") == {Use("v"): 3.0}
    assert used({"v": 3.0}, {}, {}) == {Use(ANY, ("v",)): 3.0}


def test_a_circle_ends() -> None:
    """Which Spark does not have."""
    assert used({1: 3.0}, {1: {2}, 2: {1, "sink/a"}}, {}) == {Use(ANY, ("sink/a",)): 3.0}


def test_two_times_of_a_vertex_are_one_use() -> None:
    """In two applications of a script it may have been read by different ones."""
    found = together(
        [(Use("v", ("a",)), 1.0), (Use("v", ("b",)), 2.0), (Use(ANY, ("v",)), 3.0), (Use(ANY, ("v",)), 4.0)]
    )
    assert found == {Use("v", ("a", "b")): 3.0, Use(ANY, ("v",)): 7.0}


@pytest.mark.parametrize("told", [None, {}, {Use("v", ("a", "b")): 1.5, Use(ANY): 2.0}])
def test_what_was_recorded_is_read_again(told: dict[Use, float] | None) -> None:
    """And by which attempt, also where it did not know."""
    assert recorded({TASK_TIME: state_of(3, told)}) == (3, told)


def test_nothing_recorded_is_not_known() -> None:
    """As in events of older releases."""
    assert recorded({}) == (0, None)


def test_of_very_many_uses_the_small_ones_count_as_lost() -> None:
    """So the record stays small, and the share is at least what it says."""
    many = {Use(ANY, (f"sink/{number}",)): float(number) for number in range(1, 1001)}
    _, found = recorded({TASK_TIME: state_of(1, many)})
    assert found is not None
    assert sum(found.values()) == sum(many.values())
    assert (len(found), found[Use(ANY, (ANY,))]) == (201, sum(range(1, 801)))
