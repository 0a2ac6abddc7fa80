"""What a page says that a retry would keep, checked against what a kill at that moment really costs."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.job import JobId
from airflow_provider.core.options import StorageOptions
from airflow_provider.core.report import JobReport, build_report
from airflow_provider.storage.inspection import inspect_job
from airflow_provider.storage.uris import open_store
from tests.spark.killed_jobs import result
from tests.support.driver import JOBS, DriverHarness
from tests.support.parameters import thinned
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.process]

MODES = {"shuffled": "auto", "named": "explicit"}
OPTIONS = {"overhead-budget": "0.04", "write-buffer-flush-interval": "100 ms"}
"""What has taken less than 3.75 s of task time is not worth keeping."""


def graph_of(driver: DriverHarness) -> ExecutionGraph | None:
    """What the event store tells now; ``None`` before the driver has begun."""
    try:
        return inspect_job(open_store(driver.event_store, StorageOptions()), JobId.parse(driver.job_id))
    except ConfigurationError:
        return None


def stored_but_one(driver: DriverHarness) -> ExecutionGraph | None:
    """The graph, once a vertex above a complete one is stored but for the partition that waits."""
    graph = graph_of(driver)
    vertices = graph.vertices.values() if graph is not None else ()
    missing = [len(vertex.missing) for vertex in vertices if not vertex.released]
    return graph if sorted(missing) == [0, 1] else None


def killed(driver: DriverHarness, *arguments: str, options: dict[str, str]) -> JobReport:
    """Kill an attempt when some of a step is stored; return what a page says at that moment."""
    running = driver.start("lost_now.py", *arguments, options=options)
    try:
        wait_until(lambda: stored_but_one(driver), "all but one partition are stored")
        graph = stored_but_one(driver)
    finally:
        os.kill(running.pid, signal.SIGKILL)
        log, _ = running.communicate()
    assert running.returncode == -signal.SIGKILL, log
    assert graph is not None
    return build_report("job", graph)


def seconds_of(rows: Path) -> float:
    """What the rows that were computed have taken, as far as that is known in advance."""
    return sum(map(float, rows.read_text().split()))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an uninterrupted run without recovery leaves: its outputs, and the rows that it has computed."""
    driver = DriverHarness(tmp_path_factory.mktemp("plain"), "")
    gate, target, rows = (driver.folder / name for name in ("gate", "target", "rows"))
    gate.touch()
    command = [driver.python, str(JOBS / "lost_now.py"), "shuffled", str(gate), str(target), str(rows)]
    subprocess.run(command, env=driver.env(), check=True, timeout=180)
    return driver.folder


@pytest.mark.parametrize("mode", thinned(MODES, 2))
def test_what_a_retry_keeps_is_what_was_shown(driver: DriverHarness, tmp_path: Path, plain: Path, mode: str) -> None:
    """Of a job killed when one output is committed, one step is stored whole and another in part, a retry spends as
    much less task time than an uninterrupted run as report and page said that it would keep.

    What it spends less is counted by rows that sleep for a known time. Shown is what tasks took: at least that, and
    as much more as all tasks of the killed attempt took beside, by Spark's own event log, give or take a fifth. The
    time of what the retry itself ran has to be that of its event log, but for the 2 % that drivers may not record.
    """
    gate, target, first, second = (tmp_path / name for name in ("gate", "target", "first", "second"))
    options = {**OPTIONS, "recovery-points": MODES[mode]}
    shown = killed(driver, mode, str(gate), str(target), str(first), options=options).retry.work
    assert shown is not None
    first.rename(tmp_path / "killed")
    first.symlink_to(second)  # the function has the name of the file in it
    gate.touch()
    retry = driver.run("lost_now.py", mode, str(gate), str(target), str(first), options=options)
    assert retry.code == 0, retry.log
    for output in ("one", "two"):
        assert result(target / output) == result(plain / "target" / output)

    spared = seconds_of(plain / "rows") - seconds_of(second)
    beside = driver.task_seconds(1) / seconds_of(tmp_path / "killed")
    assert spared <= shown.kept <= spared * beside * 1.2
    lost = seconds_of(tmp_path / "killed") - spared
    assert shown.spent - shown.kept >= lost, "what the retry ran again was said to be lost"
    graph = graph_of(driver)
    assert graph is not None
    all_of_it = build_report("job", graph).retry.work
    assert all_of_it is not None
    assert all_of_it.spent == pytest.approx(shown.kept + driver.task_seconds(2), rel=0.02)
