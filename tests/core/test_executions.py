"""The state machine of executions: legal moves, versions that overtake, illegal moves that are errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.core.errors import IllegalMove
from airflow_provider.core.executions import LEGAL_MOVES, Executions, ExecutionState

S = ExecutionState
STATES = list(ExecutionState)


def test_the_way_of_a_vertex_that_succeeds() -> None:
    executions = Executions()
    version = executions.begin("v")
    for state in (S.SCHEDULED, S.DEPLOYING, S.RUNNING, S.FINISHED):
        assert executions.move(version, state)
    assert executions.state("v") is S.FINISHED
    assert executions.at_work(["v"]) == []


@given(st.lists(st.sampled_from(STATES), max_size=8))
def test_every_move_is_legal_or_an_error_and_never_half_done(moves: list[ExecutionState]) -> None:
    """Whatever is asked for, in whatever order: the state changes as the table says or not at all."""
    executions = Executions()
    version = executions.begin("v")
    expected = S.CREATED
    for state in moves:
        if state in LEGAL_MOVES[expected]:
            assert executions.move(version, state)
            expected = state
        else:
            with pytest.raises(IllegalMove, match=f"it is {expected}"):
                executions.move(version, state)
        assert executions.state("v") is expected


def test_nothing_leaves_a_terminal_state() -> None:
    """Only a restart goes on from there."""
    assert all(not LEGAL_MOVES[state] for state in STATES if state.terminal)
    assert all(LEGAL_MOVES[state] for state in STATES if not state.terminal)


def test_an_overtaken_execution_changes_nothing() -> None:
    """Its late report is ignored, legal or not."""
    executions = Executions()
    old = executions.begin("v")
    new = executions.begin("v")
    assert not executions.is_current(old)
    assert executions.is_current(new)
    assert not executions.move(old, S.SCHEDULED)
    assert not executions.move(old, S.FINISHED)
    executions.fail(old)
    assert executions.state("v") is S.CREATED


def test_failing_leaves_a_cancelled_execution_cancelled() -> None:
    """A cancelled job ends with an error, too."""
    executions = Executions()
    version = executions.begin("v")
    executions.move(version, S.SCHEDULED)
    executions.move(version, S.CANCELING)
    assert executions.at_work(["v", "w"]) == [version]
    executions.fail(version)
    assert executions.state("v") is S.CANCELING
    assert executions.move(version, S.CANCELED)
    executions.fail(version)
    assert executions.state("v") is S.CANCELED
