"""Heartbeats: a living owner is seen alive, a dead one dead, and a fenced one learns of it."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider.core.errors import Fenced, OwnershipUnconfirmed, StoreUnavailable
from airflow_provider.core.lease import Lease
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.storage.cancelling import cancel_unclaimed
from airflow_provider.storage.claims import Claim, Claims, claim_key
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.heartbeat import Heartbeat, heartbeat_key
from airflow_provider.storage.object_store import ObjectStore
from tests.storage.conftest import PREFIX, wait_until
from tests.support.stores import WatchedStore
from tests.support.watching import watch


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
    """Watching ends as soon as the heartbeat changes, and at once when it says that it has stopped."""
    claim = Claims(store, PREFIX).claim()
    heartbeat = Heartbeat(store, PREFIX, claim, 0.05, _never)
    heartbeat.start()
    began = time.monotonic()
    assert watch(store, PREFIX, claim.epoch, timeout=60)
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
        assert 0.3 <= time.monotonic() - began < 5


def test_a_heartbeat_that_appears_is_a_sign_of_life(files: FileObjectStore) -> None:
    """An owner that has claimed and not beaten yet is alive once it beats."""
    claim = Claims(files, PREFIX).claim()
    watched = WatchedStore(files)
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch, watched, PREFIX, claim.epoch, 10)
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
        watching = pool.submit(watch, watched, PREFIX, 1, 10)
        wait_until(lambda: watched.calls["get"] >= 2)
        files.put(key, b'{"beat": 2, "state": "FENCED"}')
        assert not watching.result(10)


def test_a_heartbeat_that_is_removed_is_no_sign_of_life(files: FileObjectStore) -> None:
    """Whoever tidies up does not make a dead owner look alive."""
    key = heartbeat_key(PREFIX, 1)
    files.put(key, b'{"beat": 1, "state": "ALIVE"}')
    watched = WatchedStore(files)
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch, watched, PREFIX, 1, 0.3)
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
    assert fence.event.wait(60)
    for _ in range(2):
        with pytest.raises(Fenced, match="replaced by attempt") as caught:
            heartbeat.check()
    assert watch(store, PREFIX, 1, timeout=60)
    heartbeat.stop("FENCED")
    assert fence.epochs == [caught.value.ids["newer"]]
    assert fence.epochs[0] in {2, 3}


def test_a_gap_between_claims_hides_no_successor(store: ObjectStore) -> None:
    """A stray claim of a high number stands between an owner and its successor: the owner is fenced all the same."""
    claims = Claims(store, PREFIX)
    fence = Fence()
    heartbeat = Heartbeat(store, PREFIX, claims.claim(), 0.02, fence)
    heartbeat.start()
    wait_until(lambda: heartbeat._confirmed_at is not None)
    store.put_new(claim_key(PREFIX, 200_000), b"")
    successor = claims.claim()
    assert successor.epoch == 200_001
    assert fence.event.wait(60)
    with pytest.raises(Fenced):
        heartbeat.confirm()
    heartbeat.stop("FENCED")
    assert fence.epochs == [200_001]
    assert next(claims.drivers_before(200_000)) == claims.get(1), "a fence is no driver"


def test_a_gap_is_fenced_once(files: FileObjectStore) -> None:
    """Later claims look at the fence, and set no other one behind it; without a gap nobody looks."""
    watched = WatchedStore(files)
    claims = Claims(watched, PREFIX)
    claims.claim()
    claims.claim()
    assert watched.calls["get"] == 0
    files.put_new(claim_key(PREFIX, 200_000), b"")
    for _ in range(3):
        claims.claim()
    names = [info.key.rpartition("/")[2] for info in files.list(f"{PREFIX}/claims/")]
    assert names == [f"{epoch:08d}.json" for epoch in (1, 2, 3, 200_000, 200_001, 200_002, 200_003)]


@pytest.mark.parametrize("moment", ["before the fence", "behind the fence"])
def test_who_claims_into_a_gap_meets_its_fence(files: FileObjectStore, moment: str) -> None:
    """One that had listed the claims before the stray one came is fenced by, or comes behind, the one that saw it."""
    Claims(files, PREFIX).claim()
    late: list[Claim] = []

    def stray_first(operation: str, key: str) -> None:
        if operation == "put_new" and key == claim_key(PREFIX, 2) and not late:
            late.append(Claims(files, PREFIX).claim())  # a placeholder, which makes this happen once
            files.delete([claim_key(PREFIX, 2)])
            files.put_new(claim_key(PREFIX, 200_000), b"")
            if moment == "behind the fence":
                late.append(Claims(files, PREFIX).claim())

    slow = WatchedStore(files, stray_first)
    first = Claims(slow, PREFIX).claim()
    if moment == "behind the fence":
        assert (late[1].epoch, first.epoch) == (200_001, 200_002)
        return
    assert first.epoch == 2
    Claims(files, PREFIX).claim()
    with pytest.raises(Fenced):
        Heartbeat(files, PREFIX, first, 60, _never).check()


def test_a_cancellation_follows_a_fence_to_its_driver(files: FileObjectStore) -> None:
    """The driver that was submitted behind attempt 1 has claimed behind a stray claim: it is the one to end."""
    Claims(files, PREFIX).claim()
    files.put_new(claim_key(PREFIX, 200_000), b"")
    driver = Claims(files, PREFIX).claim()
    assert cancel_unclaimed(files, PREFIX, after=1) == driver
    with pytest.raises(Fenced):
        Heartbeat(files, PREFIX, driver, 60, _never).check()


def test_being_checked_first_does_not_silence_the_thread(files: FileObjectStore) -> None:
    """A fence that check() has seen is still told to on_fenced."""
    claims = Claims(files, PREFIX)
    fence = Fence()
    heartbeat = Heartbeat(files, PREFIX, claims.claim(), 0.02, fence)
    claims.claim()
    with pytest.raises(Fenced):
        heartbeat.check()
    heartbeat.start()
    assert fence.event.wait(60)
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
    before = watched.calls["exists"]
    wait_until(lambda: watched.calls["exists"] >= before + 5)
    assert len(caplog.records) == 1
    assert str(error) in caplog.text
    failing.clear()
    assert watch(files, PREFIX, 1, timeout=60)
    Claims(files, PREFIX).claim()
    assert fence.event.wait(60)
    heartbeat.stop("FENCED")


def test_a_listener_that_fails_does_not_end_the_beats(files: FileObjectStore) -> None:
    """A bug in on_fenced must not make a living driver look dead."""
    claims = Claims(files, PREFIX)
    heartbeat = Heartbeat(files, PREFIX, claims.claim(), 0.02, _never)
    heartbeat.start()
    claims.claim()
    for _ in range(3):
        assert watch(files, PREFIX, 1, timeout=60)
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
    assert reached.wait(60)
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
    """Two requests per beat, ten seconds between beats by default; one more to begin with, and nothing else. Writes
    that fall into the lease ask once in a beat's time.
    """
    assert 2 / RecoveryOptions().heartbeat_interval <= 0.2
    claim = Claims(files, PREFIX).claim()
    watched = WatchedStore(files)
    heartbeat = Heartbeat(watched, PREFIX, claim, 0.02, _never)
    heartbeat.start()
    wait_until(lambda: watched.calls["put"] >= 5)
    assert not watched.calls["get"]
    began = time.monotonic()
    for _ in range(100):
        heartbeat.confirm()
    assert watched.calls.pop("get") <= (time.monotonic() - began) / 0.02 + 1
    heartbeat.stop("FINISHED")
    beats = watched.calls["put"] - 1
    assert watched.calls == {"put": beats + 1, "exists": beats + 1}


class Time:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def refuse(operation: str, key: str) -> None:
    raise StoreUnavailable("down")


@pytest.mark.parametrize("wakes", [False, True])
def test_an_owner_whose_job_was_deleted_and_begun_anew_writes_nothing(files: FileObjectStore, wakes: bool) -> None:
    """Epochs begin at 1 again there, so that nobody takes the next one. It is noticed by the next write, and by a
    driver whose lease has run out; what has its number in the store is another's, and stays as it is.
    """
    clock, fence = Time(), Fence()
    claims = Claims(files, PREFIX)
    claims.claim()
    heartbeat = Heartbeat(files, PREFIX, claims.claim(), 10, fence, clock=clock)
    heartbeat._look_and_beat()
    heartbeat.confirm()
    files.delete([info.key for info in files.list(PREFIX)])
    clock.now += 11
    heartbeat.confirm()  # nobody has begun anew
    assert claims.claim().epoch == 1
    if not wakes:
        claims.claim()
    files.put(heartbeat_key(PREFIX, 2), b"another's")
    clock.now += 60 if wakes else 11
    if wakes:
        heartbeat._look_and_beat()
        assert fence.epochs == [1]
    with pytest.raises(Fenced, match="deleted from the event store") as caught:
        heartbeat.confirm()
    assert caught.value.ids["newer"] == (1 if wakes else 2)
    assert heartbeat.left == 0
    heartbeat.stop("FENCED")
    assert files.get(heartbeat_key(PREFIX, 2)) == b"another's"


def test_the_owner_looks_before_it_beats(files: FileObjectStore) -> None:
    """One that wakes up after it was replaced learns of that before it leaves a sign of life."""
    called: list[str] = []
    claim = Claims(files, PREFIX).claim()
    Claims(files, PREFIX).claim()
    fence = Fence()

    def note(operation: str, key: str) -> None:
        called.append(operation)

    heartbeat = Heartbeat(WatchedStore(files, note), PREFIX, claim, 60, fence)
    heartbeat.start()
    assert fence.event.wait(60)
    heartbeat.stop("FENCED")
    assert called[0] == "exists"
    assert "put" not in called[: called.index("get")]


def test_a_lease_lasts_from_before_the_confirmed_beat(files: FileObjectStore) -> None:
    """Within it ownership needs no store; the moment it is over, ownership cannot be confirmed without one."""
    clock = Time()
    claim = Claims(files, PREFIX).claim(Lease(interval=1, duration=3))
    watched = WatchedStore(files)

    def slow(operation: str, key: str) -> None:
        if operation == "put":
            clock.now += 2  # on its way to the store

    watched.before = slow
    heartbeat = Heartbeat(watched, PREFIX, claim, 3600, _never, patience=0, clock=clock)
    heartbeat._look_and_beat()
    watched.before = refuse
    clock.now += 0.5
    heartbeat.confirm()
    clock.now += 0.5
    with pytest.raises(OwnershipUnconfirmed, match=r"Attempt 1 cannot confirm that it owns job .* Nothing was written"):
        heartbeat.confirm()


def test_a_beat_without_a_look_behind_it_prolongs_no_lease(files: FileObjectStore) -> None:
    """The claim that came between the look and the beat may belong to somebody who saw no beat."""
    clock = Time()
    claims = Claims(files, PREFIX)
    claim = claims.claim(Lease(interval=1, duration=3))
    watched = WatchedStore(files)
    fence = Fence()
    heartbeat = Heartbeat(watched, PREFIX, claim, 3600, fence, patience=0, clock=clock)
    heartbeat._look_and_beat()
    clock.now += 2

    def claimed_meanwhile(operation: str, key: str) -> None:
        if operation == "put":
            watched.before = refuse
            claims.claim()

    watched.before = claimed_meanwhile
    heartbeat._look_and_beat()
    clock.now += 1
    with pytest.raises(OwnershipUnconfirmed):
        heartbeat.confirm()
    watched.before = lambda operation, key: None
    heartbeat._look_and_beat()
    with pytest.raises(Fenced):
        heartbeat.confirm()
    assert fence.epochs == [2]


def test_a_read_that_succeeds_is_no_lease_where_beats_fail(files: FileObjectStore) -> None:
    """Observers see beats and nothing else: an owner that may read and not write loses its lease."""
    claim = Claims(files, PREFIX).claim(Lease(interval=0.01, duration=0.05))

    def read_only(operation: str, key: str) -> None:
        if operation == "put":
            raise StoreUnavailable("read only")

    heartbeat = Heartbeat(WatchedStore(files, read_only), PREFIX, claim, 0.01, _never, patience=0.2)
    heartbeat.start()
    with pytest.raises(OwnershipUnconfirmed, match="read only"):
        heartbeat.confirm()
    heartbeat.stop("FAILED")


def test_a_write_waits_for_the_store_and_goes_on_at_once(files: FileObjectStore) -> None:
    """While it waits the store is asked again and again, whatever the interval."""
    claim = Claims(files, PREFIX).claim(Lease(interval=0.01, duration=0.03))
    watched = WatchedStore(files)
    heartbeat = Heartbeat(watched, PREFIX, claim, 3600, _never, patience=60)
    heartbeat.start()
    heartbeat.confirm()
    watched.before = refuse
    before = watched.calls["exists"]
    wait_until(lambda: not heartbeat._lasts())
    with ThreadPoolExecutor(2) as pool:
        runs_out = time.monotonic() + 0.05
        wait_until(lambda: time.monotonic() > runs_out)
        writes = [pool.submit(heartbeat.confirm) for _ in range(2)]
        wait_until(lambda: watched.calls["exists"] > before)
        assert not any(write.done() for write in writes)
        watched.before = lambda operation, key: None
        for write in writes:
            write.result(10)
    heartbeat.stop("FINISHED")


def test_an_attempt_that_has_said_its_last_word_writes_nothing(files: FileObjectStore) -> None:
    """Its successor begins at once."""
    claim = Claims(files, PREFIX).claim()
    heartbeat = Heartbeat(files, PREFIX, claim, 60, _never)
    heartbeat.start()
    heartbeat.confirm()
    heartbeat.stop("FAILED")
    with pytest.raises(OwnershipUnconfirmed, match="has ended"):
        heartbeat.confirm()


def test_a_lease_that_was_never_confirmed_has_not_lapsed(files: FileObjectStore) -> None:
    """It has once it was, and ran out; what is left of it is told in seconds."""
    moment = 100.0
    claim = Claims(files, PREFIX).claim(Lease(interval=1, duration=3))
    heartbeat = Heartbeat(files, PREFIX, claim, 3600, _never, clock=lambda: moment)
    assert (heartbeat.lapsed, heartbeat.left) == (False, 0)
    heartbeat.start()
    heartbeat.confirm()
    assert (heartbeat.lapsed, heartbeat.left) == (False, 3)
    moment += 2.5
    assert (heartbeat.lapsed, heartbeat.left) == (False, 0.5)
    moment += 1.5
    assert (heartbeat.lapsed, heartbeat.left) == (True, -1)
    heartbeat.stop("FINISHED")
    assert heartbeat.left == 0
