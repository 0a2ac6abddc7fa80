"""What the operator sees of the last attempt, and decides, in every situation a real store can be in."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.operators.supervisor import Ending, JobSupervisor
from airflow_provider.recovery import events as ev
from airflow_provider.recovery.graph import ExecutionGraph
from airflow_provider.recovery.job import JobId
from airflow_provider.recovery.options import RecoveryOptions
from airflow_provider.recovery.takeover import Attach, Decision, Resume, StartAfresh, Succeed, decide
from airflow_provider.storage.claims import Claim, Claims
from airflow_provider.storage.event_store import JobEventWriter
from airflow_provider.storage.heartbeat import Heartbeat
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.uris import open_store

OPTIONS = RecoveryOptions(previous_worker_recovery_timeout=0.3, write_buffer_flush_interval=0.01)
JOB = JobId.of_task_instance("dag ü", "manual__2026-01-01T00:00:00+00:00/é", "gruppe.aufgabe", 3)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(f"file://{tmp_path}/store")


def supervisor(store: ObjectStore) -> JobSupervisor:
    return JobSupervisor(store, JOB, OPTIONS, logging.getLogger("test"))


def attempt(store: ObjectStore, *events: Callable[[int], ev.JobEvent], fresh: bool = False) -> Claim:
    """Claim the job and record events, as a driver does; then be gone without a word."""
    claim = Claims(store, JOB.prefix).claim()
    writer = JobEventWriter(store, JOB.prefix, claim, OPTIONS, on_fenced=lambda _: None, on_broken=lambda _: None)

    def first(_: ExecutionGraph) -> ev.AttemptStarted:
        return ev.AttemptStarted(epoch=claim.epoch, fresh=fresh)

    writer.begin(first)
    for event in events:
        writer.append(event(claim.epoch))
    assert writer.flush()
    writer.close()
    return claim


def finished(epoch: int) -> ev.JobEvent:
    return ev.JobFinished(epoch=epoch)


def failed(epoch: int) -> ev.JobEvent:
    return ev.JobFailed(epoch=epoch, error="ValueError: bad")


def decision(store: ObjectStore, resume: str = "auto") -> Decision:
    return decide(supervisor(store).last_attempt(), resume)


def test_no_attempt_yet(store: ObjectStore) -> None:
    """Without an earlier attempt the job starts."""
    assert decision(store) == StartAfresh("first attempt")


def test_a_lost_driver_is_resumed(store: ObjectStore) -> None:
    """A heartbeat that stands still for the time-out means a lost driver."""
    attempt(store)
    assert isinstance(decision(store), Resume)
    assert isinstance(decision(store, "never"), StartAfresh)


def test_a_living_driver_is_attached_to(store: ObjectStore) -> None:
    """A heartbeat that moves means a living driver, whatever ``resume`` says."""
    claim = attempt(store)
    heartbeat = Heartbeat(store, JOB.prefix, claim, 0.02, on_fenced=lambda _: None)
    heartbeat.start()
    try:
        assert decision(store) == Attach(1)
        assert decision(store, "never") == Attach(1)
    finally:
        heartbeat.stop("FAILED")
    assert isinstance(decision(store), Resume)


def test_a_dead_process_of_this_machine_is_known_at_once(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """No heartbeat is watched where the process table already says that the driver is gone."""
    code = (
        "import sys; from airflow_provider.storage.claims import Claims; "
        "from airflow_provider.storage.uris import open_store; "
        "Claims(open_store(sys.argv[1]), sys.argv[2]).claim()"
    )
    subprocess.run([sys.executable, "-c", code, store.uri, JOB.prefix], check=True)

    def never(*_: object, **__: object) -> bool:
        raise AssertionError("the heartbeat was watched")

    monkeypatch.setattr("airflow_provider.operators.supervisor.watch", never)
    assert isinstance(decision(store), Resume)


def test_failed_and_finished(store: ObjectStore) -> None:
    """Failed resumes; finished unseen succeeds; finished and acknowledged starts afresh."""
    attempt(store, failed)
    assert decision(store) == Resume(1, "attempt 1 failed")
    attempt(store, finished)
    assert decision(store) == Succeed(2)
    assert isinstance(decision(store, "never"), StartAfresh)
    watched = supervisor(store)
    watched.acknowledge(watched.report())
    assert isinstance(decision(store), StartAfresh)


def test_a_fresh_start_that_died_before_its_first_event_stays_fresh(store: ObjectStore) -> None:
    """After a cleared green task, a driver that dies at once does not bring the old state back."""
    attempt(store, finished)
    watched = supervisor(store)
    watched.acknowledge(watched.report())
    Claims(store, JOB.prefix).claim()
    assert isinstance(decision(store), StartAfresh)


@pytest.mark.parametrize(("last_word", "ending"), [(finished, Ending.FINISHED), (failed, Ending.FAILED)])
def test_following_ends_with_the_job(store: ObjectStore, last_word: Any, ending: Ending) -> None:
    """A follower hears how the job ended."""
    attempt(store, last_word)
    assert supervisor(store).follow(1, lambda: False) is ending


def test_following_a_driver_that_is_lost(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that falls silent while it is followed counts as lost after the time-out."""
    monkeypatch.setattr("airflow_provider.operators.supervisor._POLL", 0.05)
    attempt(store)
    assert supervisor(store).follow(1, lambda: False) is Ending.LOST


def test_ids_of_any_kind_name_different_jobs() -> None:
    """Run ids with + : and /, mapped tasks and unicode task ids are kept apart; the try number is no part."""
    ids = [
        JobId.of_task_instance("d", "a/b", "t"),
        JobId.of_task_instance("d", "a", "b/t"),
        JobId.of_task_instance("d", "a+b", "t"),
        JobId.of_task_instance("d", "a:b", "t"),
        JobId.of_task_instance("d", "a b", "t"),
        JobId.of_task_instance("d", "a", "t", 0),
        JobId.of_task_instance("d", "a", "t", 1),
        JobId.of_task_instance("d", "a", "täsk"),
    ]
    assert len({job.prefix for job in ids}) == len(ids)
    assert all(JobId.parse(str(job)) == job for job in ids)
    assert replace(ids[0]) == ids[0]
