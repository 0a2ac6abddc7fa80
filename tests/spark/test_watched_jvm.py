"""Real drivers whose JVM dies or hangs, while their script catches every error and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_provider.core.graph import Attempt, JobState
from airflow_provider.core.job import JobId
from airflow_provider.core.run_request import EXIT_FAILED
from airflow_provider.storage.heartbeat import Beat, heartbeat_key
from airflow_provider.storage.inspection import inspect_job
from airflow_provider.storage.processes import Process, process, process_tree
from airflow_provider.storage.uris import open_store
from tests.support.driver import SPARK_SETTINGS, DriverHarness, Submitted
from tests.support.waiting import signal_quietly, wait_until

pytestmark = [pytest.mark.process, pytest.mark.integration]


class GoingOn:
    """A driver that asks Spark again and again, and its JVM."""

    python: Process

    def __init__(self, driver: DriverHarness) -> None:
        self.driver = driver
        self.started, self.stopped, self.opened = (driver.folder / name for name in ("started", "stopped", "opened"))

    @contextmanager
    def start(self, **options: str) -> Iterator[tuple[subprocess.Popen[str], Process]]:
        paths = [str(path) for path in (self.started, self.stopped, self.opened)]
        given = {name.replace("_", "-"): value for name, value in options.items()}
        running = self.driver.start("going_on.py", *paths, options=given)
        tree: list[int] = []
        try:
            wait_until(lambda: running.poll() is not None or self.started.exists(), "Spark's first answer")
            tree = process_tree(running.pid)
            jvm, python = map(process, map(int, self.started.read_text().split()))
            assert jvm is not None
            assert python is not None
            self.python = python
            yield running, jvm
        finally:
            for pid in {*tree, *process_tree(running.pid)}:
                if running.poll() is None or pid != running.pid:
                    signal_quietly(pid, signal.SIGKILL)
            running.communicate()

    def end(self, running: subprocess.Popen[str]) -> str:
        """Wait until the driver has ended, with and without its JVM; return what it said."""
        log, _ = running.communicate(timeout=60)
        assert self.python.wait(60), log
        return log

    def answers(self) -> int:
        path = Path(f"{self.started}.answers")
        return int(path.read_text() or 0) if path.exists() else 0

    def attempt(self) -> Attempt:
        return inspect_job(open_store(self.driver.event_store), JobId.parse(self.driver.job_id)).attempts[1]

    def last_word(self) -> str:
        key = heartbeat_key(JobId.parse(self.driver.job_id).prefix, 1)
        return Beat.parse(open_store(self.driver.event_store).get(key)).state


@pytest.fixture(params=["its own", "its parent"])
def going_on(request: pytest.FixtureRequest, driver: DriverHarness) -> GoingOn:
    """The JVM is the Python driver's child, or ``spark-submit``, which has started it."""
    if request.param == "its parent":
        driver = Submitted(driver.folder, driver.event_store)
    return GoingOn(driver)


@pytest.mark.few(1)
@pytest.mark.parametrize("points", ["auto", pytest.param("explicit", marks=pytest.mark.walk)])
def test_a_dead_jvm_ends_the_attempt(going_on: GoingOn, points: str) -> None:
    """At once, although the script goes on, with one line and a record that say why; Airflow may retry."""
    with going_on.start(recovery_points=points) as (running, jvm):
        jvm.kill()
        log = going_on.end(running)
    attempt = going_on.attempt()
    assert (attempt.state, attempt.unrecoverable) == (JobState.FAILED, False), log
    assert "The driver's JVM has ended" in attempt.error
    assert "spark.driver.memory" in attempt.error
    assert going_on.last_word() == "FAILED"
    if running.returncode != -signal.SIGKILL:  # that of the JVM, where it is spark-submit
        assert running.returncode == EXIT_FAILED
        assert log.count("The driver's JVM has ended: SIGKILL") == 1


def test_a_script_that_fails_with_its_jvm_says_that_it_is_dead(driver: DriverHarness) -> None:
    """Not that a connection was refused, which is all that the script can know. Here the JVM runs out of memory."""
    name = "spark.driver.extraJavaOptions"
    driver.settings = {name: f"{SPARK_SETTINGS[name]} -XX:+ExitOnOutOfMemoryError"}
    script = driver.folder / "out_of_memory.py"
    script.write_text(
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        "gateway = spark.sparkContext._gateway\n"
        "gateway.new_array(gateway.jvm.long, 2**31 - 10)\n"
    )
    ended = driver.run(script)
    assert ended.code == EXIT_FAILED, ended.log
    assert "The driver's JVM has ended: exit code 3" in GoingOn(driver).attempt().error


@pytest.mark.few(1)
def test_a_jvm_that_hangs_ends_the_attempt(going_on: GoingOn) -> None:
    """When it has not answered for ``jvm_timeout``: it is ended first, so that it writes nothing if it should wake."""
    with going_on.start(jvm_timeout="3s") as (running, jvm):
        os.kill(jvm.pid, signal.SIGSTOP)
        log = going_on.end(running)
        assert jvm.is_gone()
    attempt = going_on.attempt()
    assert (attempt.state, attempt.unrecoverable) == (JobState.FAILED, False), log
    assert "The driver's JVM has not answered for 3 s" in attempt.error
    assert "jvm_timeout" in attempt.error
    assert going_on.last_word() == "FAILED"
    assert log.count("has not answered for 3 s") == 1


def test_a_jvm_that_answers_again_goes_on(driver: DriverHarness) -> None:
    """A pause that is shorter than ``jvm_timeout``, and one of the whole machine however long, end nothing."""
    job = GoingOn(driver)
    with job.start(jvm_timeout="6s") as (running, jvm):
        for pids, seconds in (([jvm.pid], 2.0), (process_tree(running.pid), 8.0)):
            before, until = job.answers(), time.monotonic() + seconds
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            wait_until(lambda until=until: time.monotonic() >= until, "the pause is over")  # type: ignore[misc]
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            wait_until(
                lambda before=before: running.poll() is not None or job.answers() > before + 2,  # type: ignore[misc]
                "Spark answers again",
            )
        job.opened.touch()
        log = job.end(running)
        assert running.returncode == 0, log


def test_a_jvm_that_is_not_needed_any_more_may_end(driver: DriverHarness) -> None:
    """The script has stopped Spark and goes on without it."""
    job = GoingOn(driver)
    with job.start(jvm_timeout="2s") as (running, jvm):
        job.stopped.touch()
        wait_until(lambda: running.poll() is not None or Path(f"{job.stopped}.done").exists(), "Spark is stopped")
        jvm.kill()
        until = time.monotonic() + 4
        wait_until(lambda: time.monotonic() >= until, "somebody could have noticed")
        job.opened.touch()
        log = job.end(running)
        assert running.returncode == 0, log
