"""A retention shorter than a pause between two tries is told, because garbage collection would come in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_provider.airflow import retries
from airflow_provider.airflow.retries import longest_pause, lost_between_tries, series_of
from airflow_provider.core.run_request import parse_run_arguments
from tests.airflow_side.executing import DRIVER, FINISHED, Make, execute
from tests.airflow_side.worker import TASK_INSTANCE

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


def context(cleared: object = 0, max_tries: object = 2) -> Any:
    run = SimpleNamespace(clear_number=cleared, conf={}, start_date=None)
    return {"ti": SimpleNamespace(**TASK_INSTANCE, max_tries=max_tries, stats_tags={}), "dag_run": run}


@pytest.fixture
def airflow_3_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "__version__", "3.3.2")


@pytest.mark.usefixtures("airflow_3_3")
def test_a_clearing_begins_another_series() -> None:
    """A retry leaves all three numbers alone; a clearing raises the run's, and mostly the task's. Fewer retries could
    make up for that.
    """
    own = series_of(context(), 2)
    assert own
    assert series_of(context(), 2) == own
    others = [series_of(context(cleared=1), 2), series_of(context(max_tries=3), 2), series_of(context(), 1)]
    assert len({own, *others}) == 4
    assert "" not in others


@pytest.mark.usefixtures("airflow_3_3")
@pytest.mark.parametrize("missing", [context(cleared=None), context(max_tries=None), {**context(), "dag_run": None}])
def test_what_is_not_told_is_not_guessed(missing: Any) -> None:
    """A context that lacks one of the numbers: then no try is known to be a retry."""
    assert series_of(missing, 2) == ""


@pytest.mark.parametrize("version", ["3.1.0", "3.1.8"])
def test_airflow_3_1_does_not_tell(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """It counts only the clearings of runs that have ended, and not that of a task that is running."""
    monkeypatch.setattr(retries, "__version__", version)
    assert series_of(context(), 2) == ""


@pytest.mark.usefixtures("airflow_3_3")
def test_the_driver_is_told(operator: Make, submits: Callable[[str], None], tmp_path: Path) -> None:
    """On its command line, with the version that stands for sources without one."""
    told = tmp_path / "told"
    submits(
        DRIVER.format(
            end=f"open({str(told)!r}, 'w').write(__import__('json').dumps(sys.argv[runner + 1 :])); {FINISHED}"
        )
    )
    operator(retries=2, source_version="2026-01-01").execute(cast("Any", context()))
    request = parse_run_arguments(json.loads(told.read_text()))
    assert (request.series, request.automatic_retry) == (series_of(context(), 2), False)
    assert request.options.source_version == "2026-01-01"


DAG = """
from airflow.sdk import DAG, task

with DAG("cleared", schedule=None) as dag:
    @task(retries=2)
    def work():
        pass
    work()
"""


@pytest.mark.process
@pytest.mark.integration
def test_airflow_itself_changes_it_with_each_clearing_and_with_no_retry(tmp_path: Path) -> None:
    """In whichever state the task is cleared."""
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "cleared.py").write_text(DAG)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")},
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.airflow_side.clearings", str(tmp_path / "dags")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    found = json.loads(done.stdout.strip().splitlines()[-1])
    retry = found.pop("retry")
    assert retry[0] == retry[1] != ""
    assert sorted(found) == ["deferred", "failed", "running", "success", "up_for_retry"]
    assert [what for what, (before, after) in found.items() if before == after or not after] == []
