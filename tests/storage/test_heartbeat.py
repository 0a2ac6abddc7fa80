"""Heartbeats: a living owner is seen alive, a dead one dead, and a fenced one learns of it."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider.recovery.errors import Fenced, StoreUnavailable
from airflow_provider.recovery.options import RecoveryOptions
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.heartbeat import Heartbeat, heartbeat_key, watch
from airflow_provider.storage.object_store import ObjectStore
from tests.storage.conftest import PREFIX, wait_until
from tests.support.stores import WatchedStore


class Fence:
    """Collects what on_fenced is told."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.event = threading.Event()

    def __call__(self, epoch: int) -> None:
        self.epochs.append(epoch)
        self.event.set()


def _never(epoch: int) -> None:
    raise AssertionError(f"fenced by {epoch}")


def test_a_beating_owner_is_seen_alive_and_a_stopped_one_is_not(store: ObjectStore) -> None:
    """watch() returns as soon as the heartbeat changes, and at once when it says that it has stopped."""
    claim = Claims(store, PREFIX).claim()
    heartbeat = Heartbeat(store, PREFIX, claim, 0.05, _never)
    heartbeat.start()
    began = time.monotonic()
    assert watch(store, PREFIX, claim.epoch, timeout=30, poll=0.01)
    heartbeat.stop("FINISHED")
    assert not watch(store, PREFIX, claim.epoch, timeout=30)
    assert time.monotonic() - began < 10
    assert json.loads(store.get(heartbeat_key(PREFIX, 1)))["state"] == "FINISHED"


def test_a_heartbeat_that_stands_still_is_given_the_whole_timeout(files: FileObjectStore) -> None:
    """Neither less nor much more than the time-out is waited, whatever the heartbeat's content or age."""
    for key, body in {1: b'{"beat": 3, "state": "ALIVE"}', 2: b"unreadable", 3: None}.items():
        if body is not None:
            files.put(heartbeat_key(PREFIX, key), body)
        began = time.monotonic()
        assert not watch(files, PREFIX, key, timeout=0.3)
        assert 0.3 <= time.monotonic() - began < 1.5


def test_a_heartbeat_that_appears_is_a_sign_of_life(files: FileObjectStore) -> None:
    """An owner that has claimed and not beaten yet is alive once it beats."""
    claim = Claims(files, PREFIX).claim()
    watched = WatchedStore(files)
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch, watched, PREFIX, claim.epoch, 30, poll=0.01)
        wait_until(lambda: watched.calls["get"] >= 2)
        heartbeat = Heartbeat(files, PREFIX, claim, 60, _never)
        heartbeat.start()
        assert watching.result(10)
        heartbeat.stop("FINISHED")


def test_a_last_word_during_the_watch_is_believed(files: FileObjectStore) -> None:
    """A change to a final state means stopped, not alive."""
    key = heartbeat_key(PREFIX, 1)
    files.put(key, b'{"beat": 1, "state": "ALIVE"}')
    watched = WatchedStore(files)
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch, watched, PREFIX, 1, 30, poll=0.01)
        wait_until(lambda: watched.calls["get"] >= 2)
        files.put(key, b'{"beat": 2, "state": "FENCED"}')
        assert not watching.result(10)


def test_a_heartbeat_that_is_removed_is_no_sign_of_life(files: FileObjectStore) -> None:
    """Whoever tidies up does not make a dead owner look alive."""
    key = heartbeat_key(PREFIX, 1)
    files.put(key, b'{"beat": 1, "state": "ALIVE"}')
    watched = WatchedStore(files)
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch, watched, PREFIX, 1, 0.3, poll=0.01)
        wait_until(lambda: watched.calls["get"] >= 2)
        files.delete([key])
        assert not watching.result(10)


def test_a_store_that_cannot_be_read_does_not_declare_an_owner_dead(files: FileObjectStore) -> None:
    """No answer is no evidence: the error goes to whoever decides."""

    def fail(operation: str, key: str) -> None:
        raise StoreUnavailable("down")

    with pytest.raises(StoreUnavailable):
        watch(WatchedStore(files, fail), PREFIX, 1, timeout=0.1)


def test_a_new_claim_fences_the_old_owner_once(store: ObjectStore) -> None:
    """The thread tells it once with the newest epoch, check() says it each time, and the old owner goes on beating."""
    claims = Claims(store, PREFIX)
    fence = Fence()
    heartbeat = Heartbeat(store, PREFIX, claims.claim(), 0.02, fence)
    heartbeat.check()
    heartbeat.start()
    claims.claim()
    claims.claim()
    assert fence.event.wait(10)
    for _ in range(2):
        with pytest.raises(Fenced, match="replaced by attempt") as caught:
            heartbeat.check()
    assert watch(store, PREFIX, 1, timeout=10, poll=0.01)
    heartbeat.stop("FENCED")
    assert fence.epochs == [caught.value.ids["newer"]]
    assert fence.epochs[0] in {2, 3}


def test_being_checked_first_does_not_silence_the_thread(files: FileObjectStore) -> None:
    """A fence that check() has seen is still told to on_fenced."""
    claims = Claims(files, PREFIX)
    fence = Fence()
    heartbeat = Heartbeat(files, PREFIX, claims.claim(), 0.02, fence)
    claims.claim()
    with pytest.raises(Fenced):
        heartbeat.check()
    heartbeat.start()
    assert fence.event.wait(10)
    heartbeat.stop("FENCED")
    assert fence.epochs == [2]


def test_check_passes_a_store_error_on(files: FileObjectStore) -> None:
    """A store that cannot say whether we are fenced is neither yes nor no."""
    claim = Claims(files, PREFIX).claim()

    def fail(operation: str, key: str) -> None:
        raise StoreUnavailable("down")

    with pytest.raises(StoreUnavailable):
        Heartbeat(WatchedStore(files, fail), PREFIX, claim, 1, _never).check()


@pytest.mark.parametrize("error", [StoreUnavailable("down"), RuntimeError("a bug")], ids=["store", "bug"])
def test_an_outage_is_survived_and_said_once(
    files: FileObjectStore, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """While the store fails the thread goes on trying with one warning; afterwards it beats and looks again."""
    claim = Claims(files, PREFIX).claim()
    failing = threading.Event()

    def fail(operation: str, key: str) -> None:
        if failing.is_set():
            raise error

    watched = WatchedStore(files, fail)
    fence = Fence()
    heartbeat = Heartbeat(watched, PREFIX, claim, 0.01, fence)
    heartbeat.start()
    wait_until(lambda: watched.calls["exists"] >= 2)
    failing.set()
    before = watched.calls["put"]
    wait_until(lambda: watched.calls["put"] >= before + 5)
    assert len(caplog.records) == 1
    assert str(error) in caplog.text
    failing.clear()
    assert watch(files, PREFIX, 1, timeout=10, poll=0.01)
    Claims(files, PREFIX).claim()
    assert fence.event.wait(10)
    heartbeat.stop("FENCED")


def test_a_listener_that_fails_does_not_end_the_beats(files: FileObjectStore) -> None:
    """A bug in on_fenced must not make a living driver look dead."""
    claims = Claims(files, PREFIX)
    heartbeat = Heartbeat(files, PREFIX, claims.claim(), 0.02, _never)
    heartbeat.start()
    claims.claim()
    for _ in range(3):
        assert watch(files, PREFIX, 1, timeout=10, poll=0.01)
    heartbeat.stop("FENCED")


def test_the_last_word_is_last_and_said_once(files: FileObjectStore) -> None:
    """stop() waits for a beat under way and is idempotent; later calls and states change nothing."""
    claim = Claims(files, PREFIX).claim()
    slow = threading.Event()
    reached = threading.Event()

    def hold(operation: str, key: str) -> None:
        if operation == "put" and not slow.is_set():
            reached.set()
            slow.wait(10)

    others = set(threading.enumerate())
    heartbeat = Heartbeat(WatchedStore(files, hold), PREFIX, claim, 0.01, _never)
    heartbeat.start()
    assert reached.wait(10)
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(heartbeat.stop, "FINISHED")
        slow.set()
        stopping.result(10)
    heartbeat.stop("FAILED")
    assert json.loads(files.get(heartbeat_key(PREFIX, 1)))["state"] == "FINISHED"
    assert set(threading.enumerate()) <= others


def test_a_last_word_that_cannot_be_written_is_only_logged(
    files: FileObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    """stop() never raises for the store's sake."""
    claim = Claims(files, PREFIX).claim()

    def fail(operation: str, key: str) -> None:
        raise StoreUnavailable("down")

    Heartbeat(WatchedStore(files, fail), PREFIX, claim, 1, _never).stop("FAILED")
    assert "down" in caplog.text


def test_an_idle_job_costs_at_most_a_fifth_of_a_request_per_second(files: FileObjectStore) -> None:
    """Two requests per beat, ten seconds between beats by default; nothing else."""
    assert 2 / RecoveryOptions().heartbeat_interval <= 0.2
    claim = Claims(files, PREFIX).claim()
    watched = WatchedStore(files)
    heartbeat = Heartbeat(watched, PREFIX, claim, 0.02, _never)
    heartbeat.start()
    wait_until(lambda: watched.calls["put"] >= 5)
    heartbeat.stop("FINISHED")
    beats = watched.calls["put"] - 1
    assert watched.calls == {"put": beats + 1, "exists": beats}
