"""What is restarted after a failure, and when nothing is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.core import events as ev
from airflow_provider.core.failover import FailureHandlingResult, handle_failure, vertices_to_restart
from airflow_provider.core.failure import Cause
from airflow_provider.core.graph import RESTART_STRATEGY, ExecutionGraph
from airflow_provider.core.restart_strategy import FixedDelay, RestartMemory
from tests.core.vertices import initialized
from tests.support.replaying import replay

NAMES = ["a", "b", "c", "d"]


def graph(*, noisy: str = "") -> ExecutionGraph:
    """A → b → c → d, all reached by attempt 1."""
    events: list[ev.JobEvent] = [ev.AttemptStarted(epoch=1)]
    for position, name in enumerate(NAMES):
        upstream = NAMES[max(0, position - 1) : position]
        events.append(initialized(name, *upstream, deterministic=name != noisy))
    return replay(events)


def handled(
    failed: str = "c", causes: tuple[Cause, ...] = (Cause("RuntimeError"),), **changes: Any
) -> FailureHandlingResult:
    given: dict[str, Any] = {
        "lost": set(),
        "reached": NAMES,
        "failover_strategy": "region",
        "restart_strategy": FixedDelay(1, 1.0),
        "memory": RestartMemory(),
        "now": 1.0,
        **changes,
    }
    noisy = given.pop("noisy", "")
    return handle_failure(graph(noisy=noisy), failed, "it broke", causes, **given)


def test_a_region_is_one_vertex() -> None:
    """Its inputs are stored, so that nothing else runs again."""
    result = handled()
    assert (result.vertices_to_restart, result.delay, result.can_restart) == (("c",), 1.0, True)


def test_an_input_that_cannot_be_read_pulls_in_its_producer() -> None:
    """Upstream first, whatever the order in which the losses are told."""
    assert handled(lost={"b", "a"}).vertices_to_restart == ("a", "b", "c")


def test_full_restarts_everything_that_was_reached() -> None:
    """And nothing that was not."""
    assert handled(failover_strategy="full", reached=["a", "b", "c"]).vertices_to_restart == ("a", "b", "c")


@given(st.sampled_from(NAMES), st.sets(st.sampled_from(NAMES)), st.sampled_from(["region", "full"]))
def test_a_restart_is_in_the_order_of_the_graph_and_ends_with_what_failed(
    failed: str, lost: set[str], strategy: str
) -> None:
    """No vertex comes before one that it reads, none comes twice, all that is lost is in."""
    reached = NAMES[: NAMES.index(failed) + 1]
    restarted = vertices_to_restart(graph(), failed, lost & set(reached), strategy, reached)
    assert list(restarted) == sorted(set(restarted))
    assert restarted[-1] == failed
    assert lost & set(reached) <= set(restarted)


def test_a_lost_vertex_that_is_not_deterministic_is_a_global_failure() -> None:
    """What was derived from it would have to go too."""
    result = handled(lost={"b"}, noisy="b")
    assert (result.can_restart, result.vertices_to_restart) == (False, ())
    assert "b would have to be computed again" in result.refused
    assert handled(noisy="c").can_restart  # it failed itself: nobody has read it


def test_a_loss_of_something_unknown_is_a_global_failure() -> None:
    """A partition of a vertex that this attempt has not come to cannot be computed now."""
    assert "z would have to be computed again" in handled(lost={"z"}).refused


def test_unrecoverable_beats_every_strategy() -> None:
    """The count goes on all the same, as Flink's does."""
    result = handled(causes=(Cause("PythonException"), Cause("NameError")))
    assert (result.can_restart, result.unrecoverable, result.memory.failures) == (False, True, 1)
    assert "NameError" in result.refused


def test_the_strategy_may_refuse() -> None:
    """The reason says how many failures there were."""
    result = handled(memory=RestartMemory(1, (0.0,)))
    assert not result.can_restart
    assert "after 2 failures" in result.refused


def test_a_failure_is_folded_into_the_graph() -> None:
    """The attempt counts restarts; the strategy's memory is one of the coordinators'."""
    g = graph()
    g.apply(ev.FailureHandled(epoch=1, vertex="c", error="x", restarted=("c",), memory={"failures": 1}))
    g.apply(ev.FailureHandled(epoch=1, vertex="c", error="x", refused="enough", memory={"failures": 2}))
    assert g.attempts[1].restarts == 1
    assert g.coordinators[RESTART_STRATEGY] == {"failures": 2}
    g.apply(ev.AttemptStarted(epoch=2, fresh=True))
    assert g.coordinators == {}


def test_a_start_from_scratch_because_recovery_was_abandoned_counts_as_a_failure() -> None:
    """Flink counts it as a restart; one that somebody asked for forgets the count."""
    g = graph()
    g.apply(ev.FailureHandled(epoch=1, vertex="c", error="x", memory={"failures": 2}))
    g.apply(ev.AttemptStarted(epoch=2, fresh=True, abandoned=True))
    assert RestartMemory.from_json(g.coordinators[RESTART_STRATEGY]).failures == 3
    g.apply(ev.AttemptStarted(epoch=3, fresh=True))
    assert g.coordinators == {}


@pytest.mark.parametrize("name", ["step/train", "source/orders"])
def test_what_the_driver_alone_knows_is_folded_into_the_graph(name: str) -> None:
    """The newest state counts."""
    g = graph()
    g.apply(ev.CoordinatorSnapshot(epoch=1, coordinator=name, state={"a": 1}))
    g.apply(ev.CoordinatorSnapshot(epoch=1, coordinator=name, state={"a": [2]}))
    assert g.coordinators[name] == {"a": [2]}
