"""The decision table: attach, resume, succeed or start afresh."""

from __future__ import annotations

import itertools

import pytest

from airflow_provider.core.graph import JobState
from airflow_provider.core.takeover import Attach, Decision, LastAttempt, Resume, StartAfresh, Succeed, decide

RUNNING_STATES = [JobState.CREATED, JobState.RECONCILING, JobState.RUNNING]
FINISHED, FAILED = JobState.FINISHED, JobState.FAILED


def test_the_first_attempt_starts_afresh() -> None:
    """There is nothing to go on from."""
    for resume in ("auto", "never"):
        assert decide(None, resume) == StartAfresh("first attempt")


@pytest.mark.parametrize("state", [*RUNNING_STATES, FINISHED, FAILED])
def test_what_was_discarded_is_not_gone_on_from(state: JobState) -> None:
    """Whatever had become of it; but a driver that lives is attached to."""
    assert decide(LastAttempt(7, state, discarded="by ann"), "auto") == StartAfresh("by ann")
    if not state.terminal:
        assert decide(LastAttempt(7, state, alive=True, discarded="by ann"), "auto") == Attach(7)


@pytest.mark.parametrize("state", [*RUNNING_STATES, FINISHED, FAILED])
def test_another_runs_attempt_is_not_gone_on_from(state: JobState) -> None:
    """Whatever had become of it, and whoever has taken notice."""
    for acknowledged in (None, 0, 1):
        last = LastAttempt(7, state, acknowledged=acknowledged, another_run=True)
        assert decide(last, "auto") == StartAfresh("attempt 7 was made for another DAG run of the same name")


@pytest.mark.parametrize(
    ("states", "alive", "acknowledged", "resume", "decision"),
    [
        # A driver that lives is never doubled, not even by resume="never".
        (RUNNING_STATES, True, False, "auto", Attach(7)),
        (RUNNING_STATES, True, False, "never", Attach(7)),
        # One that died is gone on from, or not, as the user wants.
        (RUNNING_STATES, False, False, "auto", Resume(7, "attempt 7 was lost: its heartbeat has stopped")),
        (RUNNING_STATES, False, False, "never", StartAfresh("resume is set to 'never'")),
        # A success that nobody saw is taken notice of; one that was seen means that the task was cleared.
        ([FINISHED], None, False, "auto", Succeed(7)),
        ([FINISHED], None, True, "auto", StartAfresh("attempt 7 succeeded and its task was cleared")),
        ([FINISHED], None, None, "never", StartAfresh("resume is set to 'never'")),
        # A failure is resumed, also after its task was cleared.
        ([FAILED], None, None, "auto", Resume(7, "attempt 7 failed")),
        ([FAILED], None, None, "never", StartAfresh("resume is set to 'never'")),
    ],
)
def test_the_table(
    states: list[JobState], alive: bool | None, acknowledged: bool | None, resume: str, decision: Decision
) -> None:
    """Each line of it; ``None``: whichever, for example a heartbeat that still moves when the end is recorded."""
    for state, is_alive, is_acknowledged in itertools.product(
        states,
        [False, True] if alive is None else [alive],
        [None, 0] if acknowledged is None else [0 if acknowledged else None],
    ):
        assert decide(LastAttempt(7, state, is_alive, is_acknowledged), resume) == decision


@pytest.mark.parametrize(
    ("since", "series", "decision"),
    [
        ("a", "a", Succeed(7)),
        ("", None, Succeed(7)),  # whoever runs a job by hand goes on with it
        ("a", "b", Resume(7, "attempt 7 succeeded unseen, and its task was cleared since")),
        ("a", "", Resume(7, "attempt 7 succeeded unseen, and its task may have been cleared since")),
        ("", "b", Resume(7, "attempt 7 succeeded unseen, and its task may have been cleared since")),
        ("", "", Resume(7, "attempt 7 succeeded unseen, and its task may have been cleared since")),
    ],
)
def test_a_success_that_nobody_saw_is_believed_by_retries_alone(
    since: str, series: str | None, decision: Decision
) -> None:
    """Who clears the task, with what it reads perhaps, asks for what comes of the inputs as they are then."""
    assert decide(LastAttempt(7, FINISHED, series=since), "auto", series) == decision
    assert isinstance(decide(LastAttempt(7, FINISHED, acknowledged=0, series=since), "auto", series), StartAfresh)


@pytest.mark.parametrize(
    ("since", "acknowledged", "series", "try_number", "again"),
    [
        ("a", 1, "a", 2, False),
        ("a", 1, "b", 2, True),
        ("", 1, "", 2, True),
        ("a", 1, "a", 1, True),  # airflow tasks test, again in the same run
        ("a", 0, "a", 2, True),  # an earlier release has acknowledged it
        ("", 0, None, 0, True),
    ],
)
def test_a_try_that_failed_after_it_had_acknowledged_the_success_is_retried_without_the_job(
    since: str, acknowledged: int, series: str | None, try_number: int, again: bool
) -> None:
    """Only Airflow's own retry is one; anybody else asks for the job again."""
    last = LastAttempt(7, FINISHED, acknowledged=acknowledged, series=since)
    afresh = StartAfresh("attempt 7 succeeded and its task was cleared")
    assert decide(last, "auto", series, try_number) == (afresh if again else Succeed(7))
