"""A retention shorter than a pause between two tries is told, because garbage collection would come in between."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_provider.airflow.retries import longest_pause, lost_between_tries
from tests.airflow_side.executing import DRIVER, FINISHED, Make, execute

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("given", "pause"),
    [
        ((0, HOUR), timedelta(0)),
        ((5, HOUR), HOUR),
        ((5, HOUR, 1), HOUR),
        ((3, HOUR, 2.0), 8 * HOUR),
        ((3, HOUR, True), 8 * HOUR),
        ((30, HOUR, 2), 24 * HOUR),
        ((3, HOUR, 2, timedelta(hours=3)), 3 * HOUR),
        ((3, HOUR, 2, 7200.0), 2 * HOUR),
        ((10_000, HOUR, 3), 24 * HOUR),
        ((3, HOUR, 0.5), 2 * HOUR),
    ],
)
def test_the_longest_pause_is_that_of_airflows_own_formula(given: Any, pause: timedelta) -> None:
    """Constant, or growing up to twice its least value, a limit and a day."""
    assert longest_pause(*given) == pause


def test_each_try_keeps_the_state_young(operator: Make) -> None:
    """Ten retries an hour apart need no retention of ten hours, only one of more than an hour."""
    task = operator(retries=10, retry_delay=HOUR)
    assert lost_between_tries(task, 3601) == ""
    assert "Up to 1:00:00 lie between two tries" in lost_between_tries(task, 3600)


def test_the_task_log_tells_it(operator: Make, submits: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """As a warning; the job runs."""
    submits(DRIVER.format(end=FINISHED))
    task = operator(retries=1, retry_delay=2 * HOUR, recovery_options={"retention": "1 h"})
    assert execute(task)["state"] == "FINISHED"
    assert "'retention' keeps what a try leaves for 1:00:00 only" in capsys.readouterr().out
