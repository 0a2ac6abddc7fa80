"""Following a job by looks: what its driver writes with its own modules is seen, at the price of few requests."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider.airflow.job_watch import JobWatch
from airflow_provider.airflow.order import FAILED, FINISHED, LOST, SILENT, UNCLAIMED, Order, Outcome
from airflow_provider.airflow.triggerer import Pace, RenewedStore
from airflow_provider.core.errors import AccessDenied, ConfigurationError, StoreUnavailable
from airflow_provider.job.job_master import JobMaster
from airflow_provider.storage.cancelling import cancel
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.triggers.job_trigger import SparkRecoveryTrigger
from tests.airflow_side.deferring import first_event
from tests.support.small_driver import REQUEST, run_job, run_vertices
from tests.support.stores import WatchedStore
from tests.support.waiting import wait_until

ORDER = Order(job=str(REQUEST.job), event_store="file:///unused", epoch=1, timeout=1.0)
LOG = logging.getLogger("test")


@pytest.fixture
def files(tmp_path: Path) -> FileObjectStore:
    (tmp_path / "store").mkdir()
    return FileObjectStore(tmp_path / "store")


def master_of(store: ObjectStore) -> JobMaster:
    return JobMaster(REQUEST, store, on_fenced=lambda _: None)


def fall_silent(master: JobMaster) -> None:
    """Beat no more, as if the process had been killed."""
    heartbeat = master._heartbeat
    assert heartbeat is not None
    with heartbeat._changed:
        heartbeat._ending = True
        heartbeat._changed.notify_all()
    heartbeat._thread.join()


def test_progress_is_told_until_the_end(
    files: FileObjectStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """From the claim, which comes later than the trigger, to the last event."""
    caplog.set_level(logging.INFO)
    watch = JobWatch(files, replace(ORDER, epoch=0), LOG)
    assert watch.look() is None
    master = master_of(files)
    master.start()
    assert watch.look() is None
    assert watch.epoch == 1
    run_vertices(master, files, ["a"], tmp_path / "computed")
    for _ in range(5):  # a snapshot may have replaced the events, which is noticed at the fourth look
        assert watch.look() is None
    assert caplog.text.count("recovery point 'a': finished") == 1
    master.finished()
    assert watch.look() == Outcome(FINISHED, 1)


def test_a_failure_is_told(files: FileObjectStore) -> None:
    """By the driver's last event."""
    master = master_of(files)
    master.start()
    master.failed("bad")
    assert JobWatch(files, ORDER, LOG).look() == Outcome(FAILED, 1)


def test_a_job_that_nobody_claims_is_told_after_a_while(files: FileObjectStore) -> None:
    """By the observer's own clock."""
    now = [0.0]
    watch = JobWatch(files, replace(ORDER, epoch=0, claim_within=60.0), LOG, clock=lambda: now[0])
    now[0] = 59.0
    assert watch.look() is None
    now[0] = 60.0
    assert watch.look() == Outcome(UNCLAIMED, 0)


def test_a_driver_that_falls_silent_is_lost(files: FileObjectStore) -> None:
    """It ended without a last word; whoever lives in this process is not taken for it."""
    master = master_of(files)
    master.start()
    watch = JobWatch(files, ORDER, LOG)
    assert watch.look() is None
    fall_silent(master)
    found: list[Outcome] = []
    wait_until(lambda: (seen := watch.look()) is not None and not found.append(seen), "the loss", timeout=20)
    assert replace(found[0], beat=-1) == Outcome(SILENT, 1, "attempt 1: its heartbeat has stopped")
    assert found[0].beat > 0


def test_a_cancelled_driver_is_lost_and_a_replaced_one_leads_to_its_successor(files: FileObjectStore) -> None:
    """A cancellation runs nothing; a newer driver is followed to its end."""
    first = master_of(files)
    first.start()
    watch = JobWatch(files, ORDER, LOG)
    cancel(files, REQUEST.job.prefix, 1)
    first.stop_heartbeat("FENCED")
    assert watch.look() == Outcome(LOST, 1, "attempt 1: its last word was FENCED")
    second = master_of(files)
    second.start()
    assert watch.look() is None
    assert watch.epoch == 3
    second.finished()
    assert watch.look() == Outcome(FINISHED, 3)


def test_a_quiet_look_costs_two_requests(files: FileObjectStore) -> None:
    """A job that is followed every 15 s costs less than 0.2 requests a second, the rare full looks included."""
    master = master_of(files)
    master.start()
    store = WatchedStore(files)
    watch = JobWatch(store, replace(ORDER, timeout=60.0), LOG)
    watch.look()
    calls = []
    for _ in range(30):
        before = store.calls.total()
        assert watch.look() is None
        calls.append(store.calls.total() - before)
    assert sorted(calls)[len(calls) // 2] == 2
    assert sum(calls) / (30 * 15) < 0.2
    master.failed("by chance")


def test_after_an_outage_of_the_store_life_is_judged_anew(files: FileObjectStore) -> None:
    """Neither driver nor observer could reach it: the heartbeat is old, which proves nothing."""
    master = master_of(files)
    master.start()
    watch = JobWatch(files, replace(ORDER, timeout=0.3), LOG)
    assert watch.look() is None
    fall_silent(master)
    deadline = time.monotonic() + REQUEST.options.lease.silence
    wait_until(lambda: time.monotonic() > deadline, "the outage to last longer than the time-out")
    watch.start_over()
    assert watch.look() is None
    wait_until(lambda: watch.look() is not None, "the loss, if it stays silent", timeout=20)


class Outage:
    """Fails the first calls of an operation."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self, operation: str, _: str) -> None:
        if operation == "list" and self.left:
            self.left -= 1
            raise StoreUnavailable("not now")


def test_a_failed_look_loses_nothing(files: FileObjectStore, tmp_path: Path) -> None:
    """The next one sees all."""
    run_job(files, REQUEST, tmp_path / "computed")
    watch = JobWatch(WatchedStore(files, Outage(1)), ORDER, LOG)
    with pytest.raises(StoreUnavailable):
        watch.look()
    assert watch.look() == Outcome(FINISHED, 1)


@pytest.mark.integration
def test_the_trigger_has_patience_with_its_store(
    files: FileObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two looks fail: one warning, and then the one event that tells how the job has ended."""
    run_job(files, REQUEST, tmp_path / "computed")
    trigger, store = SparkRecoveryTrigger(**replace(ORDER, pause=0.5).to_kwargs()), WatchedStore(files, Outage(2))
    monkeypatch.setattr(trigger._store, "_open", lambda: store)
    assert first_event(trigger) == Outcome(FINISHED, 1).to_payload()
    assert capsys.readouterr().out.count("cannot be followed, trying again: not now") == 1


class Rotated:
    """A connection whose credentials change: stores that were opened with earlier ones are refused, if it says so."""

    def __init__(self, files: FileObjectStore, refuses: bool) -> None:
        self.files, self.refuses = files, refuses
        self.opened = self.current = 0
        self.broken = 0
        self.asked: list[int] = []

    def open(self) -> ObjectStore:
        if self.broken:
            self.broken -= 1
            raise ConfigurationError("The connection is being replaced.")
        self.opened += 1
        return WatchedStore(self.files, lambda *_, own=self.opened: self._request(own))

    def _request(self, own: int) -> None:
        self.asked.append(own)
        if self.refuses and own < self.current:
            raise AccessDenied("The key has expired.")

    def rotate(self) -> None:
        self.current = self.opened + 1
        self.asked.clear()


def looking(trigger: SparkRecoveryTrigger) -> Outcome | None:
    return asyncio.run(trigger._look_patiently())


@pytest.fixture
def rotated(files: FileObjectStore, monkeypatch: pytest.MonkeyPatch) -> Rotated:
    made = Rotated(files, refuses=True)
    monkeypatch.setattr(SparkRecoveryTrigger, "_open", lambda _: made.open())
    monkeypatch.setattr("airflow_provider.triggers.job_trigger.PATIENCE", 8.0)
    return made


@pytest.mark.integration
def test_credentials_that_are_refused_are_asked_for_anew(
    files: FileObjectStore, rotated: Rotated, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were rotated while the task was deferred; a connection that is missing for a moment is no end either."""
    master = master_of(files)
    master.start()
    trigger = SparkRecoveryTrigger(**replace(ORDER, pause=0.1).to_kwargs())
    assert looking(trigger) is None
    rotated.rotate()
    rotated.broken = 1
    master.finished()
    assert looking(trigger) == Outcome(FINISHED, 1)
    assert rotated.opened == 2
    assert capsys.readouterr().out.count("Following attempt 1") == 1


def test_credentials_are_not_kept_for_life(
    files: FileObjectStore, rotated: Rotated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ten minutes the connection is asked again, though nothing was refused; so it is to end the driver."""
    monkeypatch.setattr("airflow_provider.triggers.job_trigger.same_machine", lambda _: False)  # it is ourselves
    now = [0.0]
    master = master_of(files)
    master.start()
    trigger = SparkRecoveryTrigger(**ORDER.to_kwargs())
    trigger._store = RenewedStore(trigger._open, clock=lambda: now[0])
    for moment, opened in ((0, 1), (590, 1), (600, 2), (1190, 2), (1200, 3)):
        now[0] = moment
        assert looking(trigger) is None
        assert rotated.opened == opened, moment
    rotated.rotate()
    trigger._cancel()
    assert set(rotated.asked) == {4}
    master.stop_heartbeat("FENCED")


def test_a_trigger_can_be_cancelled_in_the_middle_of_a_look(files: FileObjectStore) -> None:
    """Airflow says why it cancels by a message, which must come through: on_kill depends on it."""
    looking, over = threading.Event(), threading.Event()

    def block(*_: str) -> None:
        looking.set()
        over.wait(30)

    async def run() -> asyncio.CancelledError:
        trigger = SparkRecoveryTrigger(**ORDER.to_kwargs())
        trigger._store = RenewedStore(lambda: WatchedStore(files, block))
        task = asyncio.ensure_future(trigger.run().__anext__())
        await asyncio.to_thread(looking.wait, 30)
        task.cancel("a user wants it")
        try:
            await task
        except asyncio.CancelledError as error:
            return error
        finally:
            over.set()
        raise AssertionError("it went on")

    assert asyncio.run(run()).args == ("a user wants it",)


def test_no_event_comes_before_airflow_knows_that_the_task_was_deferred(files: FileObjectStore, tmp_path: Path) -> None:
    """Airflow would fail the task of a job that has ended by then."""
    run_job(files, REQUEST, tmp_path / "computed")
    trigger = SparkRecoveryTrigger(**ORDER.to_kwargs())
    trigger._store = RenewedStore(lambda: files)
    began = time.monotonic()
    assert first_event(trigger, earliest=0.5) == Outcome(FINISHED, 1).to_payload()
    assert time.monotonic() - began >= 0.5
    assert SparkRecoveryTrigger._earliest > 5, "for as long a worker lives on at most"


def test_many_triggers_take_turns() -> None:
    """However many look at the same moment, they are spread over time."""

    async def run() -> float:
        pace, began = Pace(per_second=100.0), time.monotonic()
        await asyncio.gather(*(pace.turn() for _ in range(21)))
        return time.monotonic() - began

    assert asyncio.run(run()) >= 0.2
