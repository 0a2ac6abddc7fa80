"""The state machine of executions: legal moves, versions that overtake, illegal moves that are errors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.core.errors import IllegalMove
from airflow_provider.core.executions import LEGAL_MOVES, Executions, ExecutionState, ExecutionVersion

S = ExecutionState
STATES = list(ExecutionState)


def test_the_way_of_a_vertex_that_succeeds() -> None:
    executions = Executions()
    version = executions.begin("v")
    for state in (S.SCHEDULED, S.DEPLOYING, S.RUNNING, S.FINISHED):
        assert executions.move(version, state)
    assert executions.state("v") is S.FINISHED
    assert executions.cancel(["v"]) == []


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
    assert executions.fail(old)
    new = executions.begin("v")
    assert not executions.is_current(old)
    assert executions.is_current(new)
    assert not executions.move(old, S.SCHEDULED)
    assert not executions.move(old, S.FINISHED)
    assert not executions.fail(old)
    assert executions.state("v") is S.CREATED


def test_a_vertex_has_one_execution_at_work() -> None:
    """A new one begins when the last one has ended, however it was asked to."""
    executions = Executions()
    version = at_work(executions)
    executions.cancel(["v", "w"])
    assert not executions.wait_until_ended(["v", "w"], 0)
    with pytest.raises(IllegalMove, match="cannot become CREATED: it is CANCELING"):
        executions.begin("v")
    executions.fail(version)
    assert executions.wait_until_ended(["v", "w"], 0)
    assert executions.begin("v").number == 2


def test_a_cancelled_execution_has_not_failed() -> None:
    """A cancelled job ends with an error, too, and whose it was says when."""
    executions = Executions()
    version = at_work(executions)
    assert executions.cancel(["v", "w"]) == executions.cancel(["v"]) == [version]
    assert executions.state("v") is S.CANCELING
    assert not executions.fail(version)
    assert executions.state("v") is S.CANCELED
    assert not executions.fail(version)
    assert executions.cancel(["v"]) == []


def test_what_a_cancelled_execution_reports_does_not_count() -> None:
    """From the moment on in which a restart cancels it, not only when the restart has begun."""
    executions = Executions()
    version = at_work(executions)
    with executions.reporting(version) as counts:
        assert counts
    executions.cancel(["v"])
    for _ in range(2):
        with executions.reporting(version) as counts:
            assert not counts
        executions.fail(version)


def test_a_restart_waits_for_the_report_or_the_end_that_is_being_recorded() -> None:
    """It cancels nothing in between, and nothing is recorded when it has."""
    executions = Executions()
    version = at_work(executions)
    with ThreadPoolExecutor(1) as pool:
        with executions.reporting(version):
            cancelling = pool.submit(executions.cancel, ["v"])
            assert not wait([cancelling], timeout=0).done
            assert executions.state("v") is S.RUNNING
        assert cancelling.result() == [version]
        with pytest.raises(IllegalMove, match="cannot become FINISHED: it is CANCELING"), executions.finishing(version):
            raise AssertionError
        executions.fail(version)
        again = at_work(executions)
        with executions.finishing(again):
            cancelling = pool.submit(executions.cancel, ["v"])
            assert executions.state("v") is S.RUNNING
        assert cancelling.result() == []
    assert executions.state("v") is S.FINISHED


def at_work(executions: Executions) -> ExecutionVersion:
    """Return an execution of ``v`` that runs."""
    version = executions.begin("v")
    for state in (S.SCHEDULED, S.DEPLOYING, S.RUNNING):
        executions.move(version, state)
    return version
