"""What the operator sees of the last attempt, and decides, in every situation a real store can be in."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.airflow.job_watch import JobWatch
from airflow_provider.airflow.order import UNCLAIMED, Order, Outcome
from airflow_provider.airflow.supervisor import Ending, JobSupervisor
from airflow_provider.core import events as ev
from airflow_provider.core.errors import JobAlreadyRunning, JobOfAnotherDeployment, StoreError
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.job import JobId
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.core.takeover import Attach, Decision, Resume, StartAfresh, Succeed, decide
from airflow_provider.core.task_time import ANY, TASK_TIME, Use, state_of
from airflow_provider.storage.cancelling import cancel_unclaimed
from airflow_provider.storage.claims import Claim, Claims
from airflow_provider.storage.event_writer import JobEventWriter
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.heartbeat import Heartbeat
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.uris import open_store
from tests.support.waiting import wait_until

OURS, THEIRS = "0@2026-11-23T01:00:00.123456+00:00", "0@2026-11-23T01:00:07.654321+00:00"
CLEARED = "1@2026-11-24T09:30:00+00:00"
OPTIONS = RecoveryOptions(previous_worker_recovery_timeout=0.3, write_buffer_flush_interval=0.01)
JOB = JobId.of_task_instance("dag ü", "manual__2026-01-01T00:00:00+00:00/é", "gruppe.aufgabe", 3)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(f"file://{tmp_path}/store")


def supervisor(store: ObjectStore, run: str = "", deployment: str = "") -> JobSupervisor:
    return JobSupervisor(store, JOB, replace(OPTIONS, deployment=deployment), logging.getLogger("test"), run)


def attempt(
    store: ObjectStore,
    *events: Callable[[int], ev.JobEvent],
    fresh: bool = False,
    run: str = "",
    deployment: str = "",
) -> Claim:
    """Claim the job and record events, as a driver does; then be gone without a word."""
    claim = Claims(store, JOB.prefix).claim(OPTIONS.lease, run, deployment)
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


def test_a_driver_of_another_deployment_is_left_alone(store: ObjectStore) -> None:
    """A DAG run of the same name that began at another moment is another deployment's: its living driver is neither
    attached to nor replaced, and the error says what to do.
    """
    claim = attempt(store, run=THEIRS)
    heartbeat = Heartbeat(store, JOB.prefix, claim, 0.02, on_fenced=lambda _: None)
    heartbeat.start()
    try:
        with pytest.raises(JobAlreadyRunning, match=r"another DAG run of the same name: attempt 1 on .*another prefix"):
            supervisor(store, OURS).last_attempt()
        for run in (THEIRS, ""):
            assert decide(supervisor(store, run).last_attempt(), "auto") == Attach(1)
    finally:
        heartbeat.stop("FAILED")


@pytest.mark.few(1)
@pytest.mark.parametrize("events", [(), (failed,), (finished,)], ids=["lost", "failed", "finished"])
def test_nothing_of_another_deployment_is_believed(
    store: ObjectStore, events: tuple[Callable[[int], ev.JobEvent], ...]
) -> None:
    """Neither its success nor what it has stored: the job starts afresh. After a clearing the same run goes on."""
    attempt(store, *events, run=THEIRS)
    last = supervisor(store, OURS).last_attempt()
    assert decide(last, "auto") == StartAfresh("attempt 1 was made for another DAG run of the same name")
    for run in (THEIRS, CLEARED, ""):
        assert not isinstance(decide(supervisor(store, run).last_attempt(), "auto"), StartAfresh)


def test_a_cancelled_driver_of_another_deployment(store: ObjectStore) -> None:
    """The claim that cancels it says nothing of its run; the driver's own does."""
    claim = attempt(store, run=THEIRS)
    supervisor(store, THEIRS).fence(claim)
    last = supervisor(store, OURS).last_attempt()
    assert last is not None
    assert (last.epoch, last.cancelled, last.another_run) == (2, True, True)


@pytest.mark.parametrize("events", [(), (failed,), (finished,)], ids=["at work or lost", "failed", "finished"])
@pytest.mark.parametrize("run", [OURS, THEIRS, CLEARED, ""], ids=["the same moment", "another", "cleared", "unknown"])
def test_a_job_of_another_deployment_is_left_alone(
    store: ObjectStore, events: tuple[Callable[[int], ev.JobEvent], ...], run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever became of it, and however often either run was cleared: also a copy of a deployment, whose runs began at
    the same moments, is another one. Nothing is watched or claimed, and the error says both names and what to do.
    """
    attempt(store, *events, run=run, deployment="a.example")
    before = [info.key for info in store.list("")]

    def never(*_: object, **__: object) -> bool:
        raise AssertionError("the heartbeat was watched")

    monkeypatch.setattr("airflow_provider.airflow.supervisor.Liveness.wait", never)
    with pytest.raises(JobOfAnotherDeployment, match=r"'a\.example'.*'b\.example'.*'deployment'") as refused:
        supervisor(store, OURS, "b.example").last_attempt()
    assert not refused.value.retryable
    with pytest.raises(JobOfAnotherDeployment):
        attempt(store, run=OURS, deployment="b.example")
    assert [info.key for info in store.list("")] == before


@pytest.mark.parametrize(("first", "second"), [("a.example", "a.example"), ("", "b.example"), ("a.example", "")])
def test_one_deployment_goes_on(store: ObjectStore, first: str, second: str) -> None:
    """Also after a clearing; and with what an earlier release has left, which names none."""
    attempt(store, failed, run=OURS, deployment=first)
    for run in (OURS, CLEARED):
        assert isinstance(decide(supervisor(store, run, second).last_attempt(), "auto"), Resume)
    assert attempt(store, run=CLEARED, deployment=second).epoch == 2


def test_a_cancelled_job_of_another_deployment(store: ObjectStore) -> None:
    """The cancellation names no deployment; the driver's claim before it does."""
    claim = attempt(store, run=THEIRS, deployment="a.example")
    supervisor(store, THEIRS, "a.example").fence(claim)
    with pytest.raises(JobOfAnotherDeployment):
        supervisor(store, OURS, "b.example").last_attempt()
    with pytest.raises(JobOfAnotherDeployment):
        attempt(store, run=OURS, deployment="b.example")


def test_a_deployment_that_comes_in_between_is_not_fenced(tmp_path: Path) -> None:
    """Another deployment's driver claims the job behind our look at it: our driver meets the claim, and stops."""

    class Contested(FileObjectStore):
        contested = False

        def put_new(self, key: str, body: bytes) -> None:
            if not self.contested:
                self.contested = True
                attempt(self, run=OURS, deployment="a.example")
            super().put_new(key, body)

    store = Contested(tmp_path / "store")
    with pytest.raises(JobOfAnotherDeployment):
        attempt(store, run=OURS, deployment="b.example")
    assert not Claims(store, JOB.prefix).taken(2)


def test_a_driver_that_was_submitted_is_not_ended_for_anothers(store: ObjectStore) -> None:
    """Another deployment's driver has come first: it is neither followed nor cancelled in the place of our own."""
    attempt(store, run=THEIRS, deployment="a.example")
    assert cancel_unclaimed(store, JOB.prefix, 0, "b.example") is None
    assert not Claims(store, JOB.prefix).taken(2)
    order = Order(job=str(JOB), event_store=store.uri, epoch=1, deployment="b.example", claim_within=0.0)
    assert JobWatch(store, order, logging.getLogger("test")).look() == Outcome(UNCLAIMED, 0)
    assert cancel_unclaimed(store, JOB.prefix, 0, "a.example") is not None


def test_a_cancelled_driver_is_resumed_when_it_has_ended(store: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
    """It is fenced, wherever it runs; a new driver is started only when it has noticed that and ended."""
    caplog.set_level(logging.INFO)
    claim = replace(attempt(store), host="elsewhere")
    store.put(f"{JOB.prefix}/claims/00000001.json", json.dumps(asdict(claim)).encode())
    fenced = threading.Event()
    heartbeat = Heartbeat(store, JOB.prefix, claim, 0.02, on_fenced=lambda _: fenced.set())
    heartbeat.start()
    supervisor(store).fence(claim)
    assert fenced.wait(10)
    ending = threading.Thread(
        target=lambda: (wait_until(lambda: "still at work" in caplog.text, "a look"), heartbeat.stop("FENCED"))
    )
    ending.start()
    assert decision(store) == Resume(2, "attempt 1 was ended when its task was marked or cleared")
    ending.join()
    assert "still at work" in caplog.text
    assert isinstance(decision(store, "never"), StartAfresh)


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

    monkeypatch.setattr("airflow_provider.airflow.supervisor.Liveness.wait", never)
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
    Claims(store, JOB.prefix).claim(OPTIONS.lease)
    assert isinstance(decision(store), StartAfresh)


def beat(store: ObjectStore, claim: Claim, last_word: str) -> None:
    """Leave a last heartbeat, as a driver does that stops in an orderly way."""
    heartbeat = Heartbeat(store, JOB.prefix, claim, 10, on_fenced=lambda _: None)
    heartbeat.start()
    heartbeat.stop(last_word)


@pytest.mark.parametrize(("last_event", "ending"), [(finished, Ending.FINISHED), (failed, Ending.FAILED)])
def test_following_ends_with_the_job(store: ObjectStore, last_event: Any, ending: Ending) -> None:
    """A follower hears how the job ended."""
    assert supervisor(store).follow(attempt(store, last_event), lambda: False) is ending


def test_following_tells_nothing_of_earlier_attempts(store: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
    """Who attaches to the second attempt reads about that one."""
    caplog.set_level(logging.INFO)
    attempt(store, failed)
    supervisor(store).follow(attempt(store, finished), lambda: False)
    assert "Attempt 2: FINISHED" in caplog.text
    assert "Attempt 1" not in caplog.text


@pytest.mark.parametrize(
    ("last_word", "ending"),
    [("FINISHED", Ending.FINISHED), ("FAILED", Ending.FAILED), ("FENCED", Ending.LOST)],
)
def test_following_believes_the_last_heartbeat_where_the_events_lack_the_end(
    store: ObjectStore, last_word: str, ending: Ending
) -> None:
    """A driver whose recording broke says how it ended with its last heartbeat; nobody waits for a time-out."""
    claim = attempt(store)
    beat(store, claim, last_word)
    patient = replace(OPTIONS, previous_worker_recovery_timeout=3600)
    watcher = JobSupervisor(store, JOB, patient, logging.getLogger("test"))
    assert watcher.follow(claim, lambda: False) is ending
    if ending is Ending.FINISHED:
        assert not watcher.recorded(watcher.report())


def test_following_outlasts_an_outage_of_the_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As the driver itself and a trigger do; nothing is said twice."""
    store = open_store(f"file://{tmp_path}/store")
    claim = attempt(store)
    events, gone = tmp_path / "store" / JOB.prefix / "events", tmp_path / "gone"
    events.rename(gone)
    events.symlink_to(events)
    patient = JobSupervisor(
        store, JOB, replace(OPTIONS, previous_worker_recovery_timeout=3600), logging.getLogger("test")
    )
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(patient.follow, claim, lambda: False)
        wait_until(lambda: "cannot be followed" in caplog.text or ending.done(), "the warning")
        events.unlink()
        gone.rename(events)
        beat(store, claim, "FINISHED")
        assert ending.result(60) is Ending.FINISHED
    assert caplog.text.count("cannot be followed") == 1


def test_following_tells_of_an_outage_that_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task ends, and says why; a retry attaches to the driver."""
    monkeypatch.setattr("airflow_provider.airflow.supervisor.PATIENCE", 0.0)
    store = open_store(f"file://{tmp_path}/store")
    claim = attempt(store)
    events = tmp_path / "store" / JOB.prefix / "events"
    events.rename(tmp_path / "gone")
    events.symlink_to(events)
    with pytest.raises(StoreError):
        supervisor(store).follow(claim, lambda: False)


def test_following_a_driver_that_is_lost(store: ObjectStore) -> None:
    """A driver that falls silent while it is followed counts as lost after the time-out."""
    assert supervisor(store).follow(attempt(store), lambda: False) is Ending.LOST


def test_following_a_driver_whose_process_is_gone(store: ObjectStore) -> None:
    """The process table of this machine says it at once."""
    claim = replace(attempt(store), pid_started=1)
    patient = JobSupervisor(
        store, JOB, replace(OPTIONS, previous_worker_recovery_timeout=3600), logging.getLogger("test")
    )
    assert patient.follow(claim, lambda: False) is Ending.LOST


def test_who_was_lost_is_not_watched_again_but_a_successor_is(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a loss the newest attempt is judged anew: another worker may have started one that lives."""
    lost = attempt(store)

    def never(*_: object, **__: object) -> bool:
        raise AssertionError("the heartbeat was watched")

    with monkeypatch.context() as patch:
        patch.setattr("airflow_provider.airflow.supervisor.Liveness.wait", never)
        assert isinstance(decide(supervisor(store).last_attempt(lost=lost.epoch), "auto"), Resume)
    successor = Heartbeat(store, JOB.prefix, attempt(store), 0.02, on_fenced=lambda _: None)
    successor.start()
    try:
        assert decide(supervisor(store).last_attempt(lost=lost.epoch), "auto") == Attach(2)
    finally:
        successor.stop("FAILED")


def test_progress_is_told_of_new_attempts_only(store: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
    """While a cluster runs the driver, its events become lines of the task log; what was before stays silent."""
    caplog.set_level(logging.INFO)
    attempt(store, failed)
    with supervisor(store).narrating(after=1):
        attempt(store, finished)
    assert "Attempt 2: FINISHED" in caplog.text
    assert "Attempt 1" not in caplog.text


def test_progress_tells_of_failures_and_what_is_kept(store: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
    """A restart inside the application, one that is refused, a step that has finished: each is a line of the log."""
    caplog.set_level(logging.INFO)
    told: list[Callable[[int], ev.JobEvent]] = [
        lambda epoch: ev.FailureHandled(epoch=epoch, vertex="v", error="it broke", restarted=("v",)),
        lambda epoch: ev.FailureHandled(epoch=epoch, vertex="v", error="it broke", refused="enough is enough"),
        lambda epoch: ev.CoordinatorSnapshot(epoch=epoch, coordinator="step/train", state={}),
    ]
    with supervisor(store).narrating(after=0):
        attempt(store, *told, finished)
    assert "recovery point 'v' failed: it broke; vertices restarted: 1" in caplog.text
    assert "recovery point 'v' failed: it broke; enough is enough" in caplog.text
    assert "step/train: kept" in caplog.text


def test_progress_tells_what_a_retry_would_keep(
    store: ObjectStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once in a while, when the driver has said what its tasks have taken; as a number, it is no line by itself."""
    monkeypatch.setattr("airflow_provider.airflow.progress._SHARE_PAUSE", 0.0)
    caplog.set_level(logging.INFO)
    used = {Use(ANY, ("step/train",)): 30.0, Use(ANY, (ANY,)): 10.0}
    told: list[Callable[[int], ev.JobEvent]] = [
        lambda epoch: ev.CoordinatorSnapshot(epoch=epoch, coordinator="step/train", state={}),
        lambda epoch: ev.CoordinatorSnapshot(epoch=epoch, coordinator=TASK_TIME, state=state_of(epoch, used)),
    ]
    with supervisor(store).narrating(after=0):
        attempt(store, *told, finished)
    assert "A retry now would keep 75 % of the work so far: 30 s of 40 s of task time." in caplog.text
    assert "task-time" not in caplog.text


def test_progress_that_cannot_be_read_harms_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The narrator warns once about a store that fails, and ends with the job."""
    store = open_store(f"file://{tmp_path}/store")
    attempt(store)
    events = tmp_path / "store" / JOB.prefix / "events"
    events.rename(tmp_path / "gone")
    events.symlink_to(events)
    with supervisor(store).narrating(after=0):
        wait_until(lambda: "Cannot read the progress" in caplog.text, "the warning")
    assert caplog.text.count("Cannot read the progress") == 1


def test_a_success_is_acknowledged_last(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that dies while it releases partitions leaves a success that the next try still finds."""
    attempt(store, finished)
    watched = supervisor(store)
    report = watched.report()

    def die(_: object, **__: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr("airflow_provider.storage.partition_store.PartitionStore.release", die)
        with pytest.raises(KeyboardInterrupt):
            watched.acknowledge(report)
    assert decision(store) == Succeed(1)
    watched.acknowledge(report)
    assert isinstance(decision(store), StartAfresh)


def test_a_success_of_an_earlier_attempt_is_not_taken_for_the_newest(store: ObjectStore) -> None:
    """An attempt that recorded nothing, not even its start, has no recorded success."""
    attempt(store, finished)
    watched = supervisor(store)
    assert watched.recorded(watched.report())
    Claims(store, JOB.prefix).claim(OPTIONS.lease)
    assert not watched.recorded(watched.report())


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
