"""Two drivers of one job: the newer one finishes it, the older one stops and commits nothing."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from airflow_provider.core.events import AttemptStarted, JobEvent, JobFinished
from airflow_provider.core.job import JobId
from airflow_provider.core.run_request import EXIT_FENCED
from airflow_provider.storage.cancelling import cancel
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.heartbeat import heartbeat_key
from airflow_provider.storage.uris import open_store
from tests.support.driver import DriverHarness
from tests.support.waiting import signal_tree, wait_until

pytestmark = [pytest.mark.process, pytest.mark.integration]

# Heartbeats come every second, so that a driver learns quickly that it is fenced.
OPTIONS = {"previous-worker-recovery-timeout": "3s", "keep-partitions": ""}


class Race:
    """Two drivers of one job, and what they leave."""

    def __init__(self, driver: DriverHarness) -> None:
        self.driver = driver
        self.out, self.vertex_gate, self.output_gate = (driver.folder / name for name in ("out", "vertex", "output"))
        self.prefix = JobId.parse(driver.job_id).prefix

    @contextmanager
    def start(self) -> Iterator[subprocess.Popen[str]]:
        arguments = [str(path) for path in (self.out, self.vertex_gate, self.output_gate)]
        process = self.driver.start("gated.py", *arguments, options=OPTIONS)
        try:
            yield process
        finally:
            if process.poll() is None:
                signal_tree(process, signal.SIGKILL)
            process.communicate()

    def events(self) -> list[JobEvent]:
        return JobEventLog(open_store(self.driver.event_store), self.prefix).read().events

    def object(self, key: str) -> Path:
        return self.driver.folder / "store" / self.prefix / key

    def committed(self) -> dict[str, tuple[int, bytes]]:
        """All that counts as committed: output files and event blocks, with their times of change."""
        files = [*self.out.rglob("*"), *self.object("events").iterdir()]
        return {str(file): (file.stat().st_mtime_ns, file.read_bytes()) for file in files if file.is_file()}

    def elsewhere(self) -> None:
        """Let the first driver look as if it ran on another machine, where nobody can end it."""
        claim = self.object("claims/00000001.json")
        claim.write_text(json.dumps({**json.loads(claim.read_text()), "host": "elsewhere"}))

    def check_result(self) -> None:
        assert sorted(pq.read_table(self.out)["id"].to_pylist()) == [2 * i for i in range(400)]
        assert len([*self.out.glob("part-*.parquet")]) == 1
        epochs = [event.epoch for event in self.events()]
        assert epochs == sorted(epochs), "an event of the fenced attempt follows the newer attempt's"
        assert [event.epoch for event in self.events() if isinstance(event, JobFinished)] == [2]


def said_once(log: str) -> None:
    """One line says why the driver stopped, and no stack trace hides it."""
    errors = [line for line in log.splitlines() if "ERROR" in line or "Traceback" in line]
    assert len(errors) == 1, log
    assert "Attempt 1 is fenced: attempt 2 owns job" in errors[0]


@pytest.fixture
def race(driver: DriverHarness) -> Race:
    return Race(driver)


def test_of_two_living_drivers_the_older_one_stops(race: Race) -> None:
    """A second driver waits until the first, in the middle of a vertex, has noticed and stopped; then it finishes."""
    with race.start() as old:
        wait_until(lambda: len(race.driver.partitions("doubled")) == 2, "half of the vertex is stored")
        with race.start() as new:
            log, _ = old.communicate(timeout=120)
            assert old.returncode == EXIT_FENCED, log
            said_once(log)
            assert not race.out.exists()
            race.vertex_gate.touch()
            race.output_gate.touch()
            new_log, _ = new.communicate(timeout=120)
            assert new.returncode == 0, new_log
    assert "watching its heartbeat" in new_log
    race.check_result()
    # The new driver's first block was written only after the old one's last word.
    last_word = race.object("heartbeats/00000001.json")
    assert "FENCED" in last_word.read_text()
    first = next(event for event in race.events() if isinstance(event, AttemptStarted) and event.epoch == 2)
    assert first.at >= last_word.stat().st_mtime
    # What the old one had stored before that was kept.
    assert {p.epoch for p in race.driver.partitions("doubled")} == {1, 2}
    assert race.driver.tasks(2)["checkpoint doubled"] == 2


def test_a_driver_that_wakes_up_after_it_was_replaced_commits_nothing(race: Race) -> None:
    """A driver of another machine that was suspended right before its write is replaced; when it goes on, it stops
    without writing.
    """
    race.vertex_gate.touch()
    with race.start() as old:
        wait_until(lambda: len(race.driver.partitions("doubled")) == 4, "the vertex is stored")
        wait_until(lambda: any(type(event).__name__ == "VertexFinished" for event in race.events()), "and recorded")
        race.elsewhere()
        stopped = signal_tree(old, signal.SIGSTOP)
        race.output_gate.touch()
        with race.start() as new:
            new_log, _ = new.communicate(timeout=120)
            assert new.returncode == 0, new_log
        race.check_result()
        committed = race.committed()
        signal_tree(old, signal.SIGCONT)
        log, _ = old.communicate(timeout=120)
    assert old.returncode == EXIT_FENCED, log
    assert len(stopped) >= 2, "the driver and its JVM"
    said_once(log)
    assert race.committed() == committed
    assert race.driver.tasks(2)["checkpoint doubled"] == 0


@pytest.mark.walk
def test_two_threads_that_learn_of_a_successor_do_not_wait_for_each_other(driver: DriverHarness) -> None:
    """The heartbeat's thread and the script's: the driver ends within seconds, with its last word."""
    reached, prefix = driver.folder / "reached", JobId.parse(driver.job_id).prefix
    process = driver.start("stopped_by_two.py", str(reached), options=OPTIONS)
    try:
        wait_until(lambda: process.poll() is not None or reached.exists(), "the script to begin")
        store = open_store(driver.event_store)
        assert cancel(store, prefix, 1) is not None
        log, _ = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            signal_tree(process, signal.SIGKILL)
    assert process.returncode == EXIT_FENCED, log
    assert b"FENCED" in store.get(heartbeat_key(prefix, 1))
