"""Looking at jobs for many people at once, over stores that fail or hang. No Airflow runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi import HTTPException

from airflow_provider.core.errors import JobAlreadyRunning, RecoveryError, StoreUnavailable
from airflow_provider.core.events import AttemptStarted, JobFailed, SparkApplicationStarted, VertexSkipped
from airflow_provider.core.job import JobId
from airflow_provider.core.lease import Lease
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.plugin import watched_jobs as watching
from airflow_provider.plugin.access import TaskInstanceRef
from airflow_provider.plugin.location import Location, parse_location
from airflow_provider.plugin.spark_ui import SparkUi, find_spark_ui
from airflow_provider.plugin.watched_jobs import WatchedJob, WatchedJobs
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.discarding import find_discard
from airflow_provider.storage.event_writer import JobEventWriter
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.heartbeat import heartbeat_key
from airflow_provider.storage.liveness import Liveness
from tests.support.claims import claim_elsewhere
from tests.support.stores import WatchedStore
from tests.support.waiting import wait_until

JOB = JobId(("dag", "run", "task", "-1"))
LOCATION = Location("conn", "file:///somewhere", 30.0)


class Slow:
    """A store that does nothing until it is told how to end."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked, self.fails = 0, True
        self.gate = threading.Event()
        files = FileObjectStore(folder)
        Claims(files, JOB.prefix).claim()
        store = WatchedStore(files, self._before)
        monkeypatch.setattr(watching, "open_location", lambda _: store)

    def _before(self, operation: str, key: str) -> None:
        self.asked += 1
        self.gate.wait(20)
        if self.fails:
            raise StoreUnavailable("the store does not answer")


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slow:
    return Slow(tmp_path, monkeypatch)


def test_a_store_that_fails_is_asked_once_for_all_who_look(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits, and whoever comes soon after, is told what the first one was told; later it is asked again."""
    jobs = WatchedJobs()
    with ThreadPoolExecutor(6) as pool:
        looks = [pool.submit(jobs.look, LOCATION, JOB) for _ in range(6)]
        slow.gate.set()
        assert all(isinstance(look.exception(20), StoreUnavailable) for look in looks)
    with pytest.raises(StoreUnavailable):
        jobs.look(LOCATION, JOB)
    assert slow.asked == 1
    slow.fails = False
    monkeypatch.setattr(watching, "_FAILED_FOR", 0.0)
    assert jobs.look(LOCATION, JOB).claimed == 1


def test_a_store_that_hangs_holds_a_few_threads_only(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many who look at jobs in it, all but a few are soon told to look again."""
    monkeypatch.setattr(watching, "_TURN", 0.05)
    jobs, others = WatchedJobs(), [JobId(("dag", "run", f"task{number}", "-1")) for number in range(40)]
    with ThreadPoolExecutor(40) as pool:
        looks = [pool.submit(jobs.look, LOCATION, job) for job in others]
        wait_until(lambda: sum(look.done() for look in looks) == 40 - watching._AT_ONCE, "the others to be told")
        told = [look for look in looks if look.done()]
        slow.fails = False
        slow.gate.set()
        assert {type(look.exception(20)) for look in told} == {RecoveryError}
        assert sum(look.exception(20) is None for look in looks) == watching._AT_ONCE


@contextmanager
def all_turns_taken(jobs: WatchedJobs, slow: Slow) -> Iterator[list[Future[Any]]]:
    """Looks of others, which hold all turns until the store answers."""
    with ThreadPoolExecutor(watching._AT_ONCE) as pool:
        looks = [pool.submit(jobs.look, LOCATION, JobId(("dag", "run", f"other{number}", "-1"))) for number in range(8)]
        wait_until(lambda: slow.asked == watching._AT_ONCE, "all turns to be taken")
        yield looks


def test_a_page_of_many_jobs_waits_for_one_turn(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """A DAG run's page looks at 32 jobs. While others have all turns, who opens it waits as long as for one job."""
    monkeypatch.setattr(watching, "_TURN", 1.0)
    jobs = WatchedJobs()
    with all_turns_taken(jobs, slow) as looks:
        began = time.monotonic()
        found = jobs.look_at([(LOCATION, JobId(("dag", "run", f"task{number}", "-1"))) for number in range(32)])
        assert time.monotonic() - began < 3.5
        slow.fails = False
        slow.gate.set()
        assert all(look.exception(20) is None for look in looks)
    assert {type(each) for each in found} == {RecoveryError}


def test_a_store_that_fails_for_one_job_is_not_asked_for_others(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong with the store is wrong for all jobs in it; later, and in another store, it is asked again."""
    jobs, other = WatchedJobs(), JobId(("dag", "run", "other", "-1"))
    slow.gate.set()
    for job in (JOB, other):
        with pytest.raises(StoreUnavailable):
            jobs.look(LOCATION, job)
    assert slow.asked == 1
    with pytest.raises(StoreUnavailable):
        jobs.look(replace(LOCATION, event_store="file:///another"), other)
    assert slow.asked == 2
    slow.fails = False
    monkeypatch.setattr(watching, "_FAILED_FOR", 0.0)
    assert jobs.look(LOCATION, JOB).claimed == 1


def test_who_presses_a_button_waits_for_a_turn_too(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """*Discard* and *Release* ask the store, and take as long as it does."""
    monkeypatch.setattr(watching, "_TURN", 0.05)
    jobs = WatchedJobs()
    with all_turns_taken(jobs, slow) as looks:
        with pytest.raises(RecoveryError, match="Look again in a moment"):
            jobs.give_up(LOCATION, JOB, "ann", 1, delete=True)
        slow.fails = False
        slow.gate.set()
        assert all(look.exception(20) is None for look in looks)


@pytest.mark.parametrize("delete", [False, True])
def test_nobody_waits_for_a_driver_that_may_be_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delete: bool
) -> None:
    """Its claim allows it an hour of silence; a request that waited for that would hold a thread of Airflow's. When the
    page has watched for that long, the button does what it says.
    """
    clock, files = [0.0], FileObjectStore(tmp_path)
    monkeypatch.setattr(watching, "open_location", lambda _: files)
    monkeypatch.setattr(watching, "Liveness", partial(Liveness, clock=lambda: clock[0]))
    Claims(files, JOB.prefix).take(1, lease=Lease.lasting(3600))
    claim_elsewhere(files, JOB.prefix, 1)
    jobs = WatchedJobs()
    began = time.monotonic()
    with pytest.raises(JobAlreadyRunning, match="has not stood still for 3610 s yet"):
        jobs.give_up(LOCATION, JOB, "ann", 1, delete=delete)
    assert time.monotonic() - began < 10
    assert find_discard(files, JOB.prefix, 1) is None
    clock[0] += 3700
    made, _ = jobs.give_up(LOCATION, JOB, "ann", 1, delete=delete)
    assert (made.epoch, made.by) == (1, "ann")


def test_who_opens_the_spark_ui_waits_for_a_turn_too(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of forty requests to a store that hangs all but a few are soon told to come again."""
    monkeypatch.setattr(watching, "_TURN", 0.05)
    jobs, tasks = WatchedJobs(), [TaskInstanceRef("dag", "run", f"task{number}", -1) for number in range(40)]
    with ThreadPoolExecutor(40) as pool:
        asked = [pool.submit(find_spark_ui, jobs, LOCATION, task) for task in tasks]
        wait_until(lambda: sum(each.done() for each in asked) == 40 - watching._AT_ONCE, "the others to be told")
        told = [each.exception(20) for each in asked if each.done()]
        assert slow.asked <= watching._AT_ONCE
        slow.fails = False
        slow.gate.set()
        assert [each.exception(20) for each in asked].count(None) == watching._AT_ONCE
    assert {type(error) for error in told} == {HTTPException}


@pytest.mark.parametrize("state", ["runs", "states no page", "ended"])
def test_the_spark_ui_of_the_newest_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    """While it runs, what its driver has stated, if that is a page; else its page on the history server."""
    files = FileObjectStore(tmp_path)
    monkeypatch.setattr(watching, "open_location", lambda _: files)
    task = TaskInstanceRef("dag", "run", "task", -1)
    writer = JobEventWriter(
        files,
        task.job.prefix,
        Claims(files, task.job.prefix).claim(),
        RecoveryOptions(),
        on_fenced=lambda _: None,
        on_broken=lambda _: None,
    )
    writer.begin(lambda _: AttemptStarted(epoch=1))
    url = "javascript:alert(1)" if state == "states no page" else "http://driver:4040"
    writer.append(SparkApplicationStarted(epoch=1, application_id="app 1", ui_url=url))
    if state == "ended":
        writer.append(JobFailed(epoch=1, error=""))
    writer.close()
    found = find_spark_ui(WatchedJobs(), replace(LOCATION, history_server="history:18080"), task)
    stated = SparkUi("http://driver:4040", configured=False)
    assert found == (stated if state == "runs" else SparkUi("http://history:18080/history/app%201/", configured=True))


@pytest.mark.parametrize(
    ("said", "timeout"),
    [(40, 40.0), (86_400, 86_400.0), (1e12, 30.0), (float("nan"), 30.0), (float("inf"), 30.0), (-1, 30.0), (0, 30.0)],
)
def test_a_time_out_that_makes_no_sense_is_not_believed(said: float, timeout: float) -> None:
    """Whoever can write an XCom cannot make the page wait for years."""
    location = parse_location({"recovery_conn_id": "c", "event_store": "s3://b/p", "timeout": said})
    assert location is not None
    assert location.timeout == timeout


def test_a_view_that_takes_long_is_built_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each change the view waits ten times as long as it took to build; a button's press does not wait."""
    files, built, clock = FileObjectStore(tmp_path), list[int](), [0.0]
    claim = Claims(files, JOB.prefix).claim()
    writer = JobEventWriter(
        files, JOB.prefix, claim, RecoveryOptions(), on_fenced=lambda _: None, on_broken=lambda _: None
    )
    writer.begin(lambda _: AttemptStarted(epoch=1))

    def slowly(*_: object) -> dict[str, int]:
        built.append(1)
        clock[0] += 4.0
        return {"number": len(built)}

    monkeypatch.setattr(watching, "job_view", slowly)
    monkeypatch.setattr("airflow_provider.plugin.watched_jobs.time.monotonic", lambda: clock[0])
    watched = WatchedJob(files, JOB, 30.0)
    assert watched.look().view == {"number": 1}
    for number, (passed, anew) in enumerate([(20.0, False), (21.0, False), (2.0, True)]):
        writer.append(VertexSkipped(epoch=1, name=f"{number}", reason=""))
        assert writer.flush()
        clock[0] += passed
        watched.look(anew=anew)
    assert len(built) == 3
    writer.close()


def test_the_end_is_seen_though_a_snapshot_has_replaced_what_comes_before(tmp_path: Path) -> None:
    """The first look after a driver's last word shows the end that it has recorded."""
    files = FileObjectStore(tmp_path)
    claim = Claims(files, JOB.prefix).claim()
    watched = WatchedJob(files, JOB, 30.0)
    writer = JobEventWriter(
        files, JOB.prefix, claim, RecoveryOptions(), on_fenced=lambda _: None, on_broken=lambda _: None
    )
    graph = writer.begin(lambda _: AttemptStarted(epoch=1))
    watched.look()
    for event in (VertexSkipped(epoch=1, name="a", reason=""), JobFailed(epoch=1, error="a bug")):
        graph.apply(event)
        writer.append(event)
        assert writer.flush()
        writer.snapshot(graph.copy())
        assert writer.flush()
    writer.close()
    files.put(heartbeat_key(JOB.prefix, 1), b'{"beat": 9, "state": "FAILED"}')
    seen = watched.look(anew=True)
    assert seen.view is not None
    assert (seen.pulse, seen.view["state"]) == ("FAILED", "FAILED")
