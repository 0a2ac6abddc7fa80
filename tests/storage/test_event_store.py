"""The job event store: what is appended is read back, by one owner at a time, and no failure is silent."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider.recovery.errors import (
    AccessDenied,
    Fenced,
    ObjectExists,
    ObjectNotFound,
    StoreError,
    StoreUnavailable,
)
from airflow_provider.recovery.events import AttemptStarted, JobEvent, JobFinished, JobStateChanged, VertexSkipped
from airflow_provider.recovery.graph import ExecutionGraph, JobState
from airflow_provider.recovery.options import RecoveryOptions
from airflow_provider.storage.blocks import BlockHeader, decode_block, encode_block
from airflow_provider.storage.claims import Claim, Claims
from airflow_provider.storage.event_store import JobEventLog, JobEventWriter
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.object_store import ObjectStore
from tests.storage.conftest import PREFIX, wait_until
from tests.support.stores import WatchedStore

SLOW = RecoveryOptions(write_buffer_flush_interval=3600)
"""Nothing is written but on demand."""
QUICK = RecoveryOptions(write_buffer_flush_interval=0.01)


class Attempt:
    """A driver's side of the event store, with what it was told."""

    def __init__(self, store: ObjectStore, options: RecoveryOptions = SLOW, claim: Claim | None = None) -> None:
        self.claim = claim or Claims(store, PREFIX).claim()
        self.fenced: list[int] = []
        self.broken: list[StoreError] = []
        self.writer = JobEventWriter(
            store, PREFIX, self.claim, options, on_fenced=self.fenced.append, on_broken=self.broken.append
        )

    def begin(self) -> ExecutionGraph:
        return self.writer.begin(lambda graph: AttemptStarted(epoch=self.claim.epoch))

    def event(self, number: int) -> JobEvent:
        return VertexSkipped(epoch=self.claim.epoch, name=f"event {number}", reason="")

    def append(self, *numbers: int) -> None:
        for number in numbers:
            self.writer.append(self.event(number))


def _names(events: list[JobEvent]) -> list[str]:
    return [event.name if isinstance(event, VertexSkipped) else type(event).__name__ for event in events]


def _key(block: int) -> str:
    return f"{PREFIX}/events/{block:010d}.jsonl"


def _blocks(store: ObjectStore) -> list[str]:
    return [info.key for info in store.list(f"{PREFIX}/events/")]


# -- writing and reading ----------------------------------------------------------------------------------------------


def test_what_is_flushed_is_read_back_in_order(store: ObjectStore) -> None:
    """flush() returns once everything appended is stored; the log gives it back, with the next block's number."""
    attempt = Attempt(store)
    graph = attempt.begin()
    assert graph.newest is not None
    assert graph.newest.epoch == 1
    attempt.append(1, 2)
    assert attempt.writer.flush()
    attempt.append(3)
    assert attempt.writer.flush()
    logged = JobEventLog(store, PREFIX).read()
    assert _names(logged.events) == ["AttemptStarted", "event 1", "event 2", "event 3"]
    assert (logged.next_block, logged.problems, logged.lost_blocks, logged.newest_epoch) == (4, [], [], 1)
    assert _blocks(store) == [_key(1), _key(2), _key(3)]
    attempt.writer.close()


def test_an_empty_store_reads_as_nothing(store: ObjectStore) -> None:
    """A job that was never started has no events and begins at block 1."""
    logged = JobEventLog(store, PREFIX).read()
    assert (logged.events, logged.next_block, logged.problems, logged.newest_epoch) == ([], 1, [], 0)


def test_the_next_attempt_begins_with_all_that_was_recorded(store: ObjectStore) -> None:
    """begin() replays the earlier attempts and hands the graph to whoever makes the first event."""
    first = Attempt(store)
    first.begin()
    first.writer.append(JobStateChanged(epoch=1, state="RUNNING"))
    first.writer.close()
    second = Attempt(store)
    seen: list[JobState] = []

    def make_first(graph: ExecutionGraph) -> AttemptStarted:
        assert graph.newest is not None
        seen.append(graph.newest.state)
        return AttemptStarted(epoch=2, fresh=True, reason="because")

    graph = second.writer.begin(make_first)
    assert seen == [JobState.RUNNING]
    assert sorted(graph.attempts) == [1, 2]
    assert graph.base_epoch == 2
    assert graph.problems == []
    second.writer.close()
    assert not first.fenced + second.fenced + first.broken + second.broken


def test_nothing_pending_nothing_written(files: FileObjectStore) -> None:
    """An idle writer sends no request at all, flushed or closed."""
    watched = WatchedStore(files)
    attempt = Attempt(watched, RecoveryOptions(write_buffer_flush_interval=0.001))
    attempt.begin()
    calls = dict(watched.calls)
    assert attempt.writer.flush()
    assert attempt.writer.flush()
    attempt.writer.close()
    assert dict(watched.calls) == calls


def test_an_event_waits_no_longer_than_the_interval(files: FileObjectStore) -> None:
    """Without a flush, events appear by themselves."""
    attempt = Attempt(files, RecoveryOptions(write_buffer_flush_interval=0.05))
    attempt.begin()
    attempt.append(1)
    wait_until(lambda: len(_blocks(files)) == 2)
    attempt.append(2)
    wait_until(lambda: len(_blocks(files)) == 3)
    attempt.writer.close()


def test_a_full_buffer_is_written_at_once(files: FileObjectStore) -> None:
    """write_buffer_size triggers a block, and no block holds much more than that."""
    attempt = Attempt(files, RecoveryOptions(write_buffer_size=1000, write_buffer_flush_interval=3600))
    attempt.begin()
    for number in range(100):
        attempt.append(number)
    wait_until(lambda: len(_blocks(files)) >= 5)
    attempt.writer.close()
    sizes = [info.size for info in files.list(f"{PREFIX}/events/")]
    assert max(sizes) < 1000 + 400
    assert _names(JobEventLog(files, PREFIX).read().events)[1:] == [f"event {number}" for number in range(100)]


def test_an_event_larger_than_the_buffer_is_written_whole(files: FileObjectStore) -> None:
    """At least one event goes into a block."""
    attempt = Attempt(files, RecoveryOptions(write_buffer_size=10))
    attempt.begin()
    event = VertexSkipped(epoch=1, name="x" * 5000, reason="")
    attempt.writer.append(event)
    assert attempt.writer.flush()
    assert JobEventLog(files, PREFIX).read().events[-1] == event
    attempt.writer.close()


@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(st.one_of(st.integers(1, 5), st.just("flush"), st.just("close")), max_size=12),
    size=st.sampled_from([1, 200, 2**20]),
)
def test_any_split_of_events_into_blocks_reads_back_the_same(steps: list[int | str], size: int) -> None:
    """However events are flushed, cut into blocks and spread over attempts, the log is their sequence."""
    memory = Path("/dev/shm")  # hundreds of flushes to a disk would take seconds
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        store = FileObjectStore(Path(folder))
        options = RecoveryOptions(write_buffer_size=size, write_buffer_flush_interval=3600)
        numbers = itertools.count()
        expected = ["AttemptStarted"]
        attempt = Attempt(store, options)
        attempt.begin()
        for step in steps:
            if step == "flush":
                assert attempt.writer.flush()
            elif step == "close":
                attempt.writer.close()
                attempt = Attempt(store, options)
                attempt.begin()
                expected.append("AttemptStarted")
            else:
                for number in itertools.islice(numbers, int(step)):
                    attempt.append(number)
                    expected.append(f"event {number}")
        attempt.writer.close()
        logged = JobEventLog(store, PREFIX).read()
        assert _names(logged.events) == expected
        assert logged.problems == []
        assert logged.next_block == len(_blocks(store)) + 1


def test_a_follower_reads_only_what_is_new(store: ObjectStore) -> None:
    """read(next_block) goes on where the last one ended, and where nothing is new it costs one request."""
    watched = WatchedStore(store)
    log = JobEventLog(watched, PREFIX)
    attempt = Attempt(store)
    attempt.begin()
    logged = log.read()
    watched.calls.clear()
    again = log.read(logged.next_block)
    assert (again.events, again.next_block) == ([], logged.next_block)
    assert watched.calls == {"get": 1}
    for number in range(3):
        attempt.append(number)
        attempt.writer.flush()
    news = log.read(logged.next_block)
    assert _names(news.events) == ["event 0", "event 1", "event 2"]
    assert log.read(news.next_block).next_block == news.next_block == 5
    attempt.writer.close()


def test_appending_never_waits_for_the_store(files: FileObjectStore) -> None:
    """While a block is being written, append() returns at once, and the events follow later in order."""
    gate, reached = threading.Event(), threading.Event()
    gate.set()

    def hold(operation: str, key: str) -> None:
        if operation == "put_new" and not gate.is_set():
            reached.set()
            gate.wait(20)

    attempt = Attempt(WatchedStore(files, hold))
    attempt.begin()
    gate.clear()
    attempt.append(0)
    assert not attempt.writer.flush(timeout=0.05)
    assert reached.wait(10)
    began = time.monotonic()
    attempt.append(*range(1, 1001))
    assert time.monotonic() - began < 5
    assert not attempt.writer.flush(timeout=0)
    gate.set()
    assert attempt.writer.flush()
    assert _names(JobEventLog(files, PREFIX).read().events)[1:] == [f"event {n}" for n in range(1001)]
    attempt.writer.close()


def test_many_threads_append_and_flush_at_once(files: FileObjectStore) -> None:
    """Each thread's events keep their order, and a flush covers what its thread has appended."""
    attempt = Attempt(files, QUICK)
    attempt.begin()

    def work(thread: int) -> None:
        for turn in range(20):
            attempt.append(thread * 100 + turn)
            if turn % 5 == 4:
                assert attempt.writer.flush()
                stored = _names(JobEventLog(files, PREFIX).read().events)
                assert f"event {thread * 100 + turn}" in stored

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    attempt.writer.close()
    names = _names(JobEventLog(files, PREFIX).read().events)[1:]
    assert len(names) == 160
    for thread in range(8):
        mine = [int(name.split()[1]) for name in names if int(name.split()[1]) // 100 == thread]
        assert mine == sorted(mine)


def test_closing_stores_what_is_pending_and_again_does_nothing(files: FileObjectStore) -> None:
    """close() is a last flush; afterwards nothing is taken any more and flush() says so at once."""
    attempt = Attempt(files)
    attempt.begin()
    attempt.append(1)
    attempt.writer.close()
    attempt.writer.close()
    assert attempt.writer.flush()
    attempt.append(2)
    assert not attempt.writer.flush()
    attempt.writer.close()
    assert _names(JobEventLog(files, PREFIX).read().events) == ["AttemptStarted", "event 1"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("job-event-writer")]


def test_a_writer_that_never_began_can_be_closed(files: FileObjectStore) -> None:
    """Cleaning up after a failed start neither hangs nor raises."""
    attempt = Attempt(files)
    attempt.append(1)
    assert not attempt.writer.flush()
    attempt.writer.close()
    assert _blocks(files) == []


# -- two drivers ------------------------------------------------------------------------------------------------------


def test_a_zombie_is_fenced_by_its_successors_first_block(store: ObjectStore) -> None:
    """After it nothing of the zombie lands, the zombie is told once, and its flush fails at once."""
    zombie = Attempt(store)
    zombie.begin()
    zombie.append(1)
    assert zombie.writer.flush()
    successor = Attempt(store)
    successor.begin()
    zombie.append(2)
    assert not zombie.writer.flush()
    zombie.append(3)
    assert not zombie.writer.flush()
    wait_until(lambda: zombie.fenced)
    zombie.writer.close()
    successor.append(4)
    assert successor.writer.flush()
    successor.writer.close()
    assert zombie.fenced == [2]
    assert zombie.writer.fenced_by == 2
    assert zombie.broken == []
    logged = JobEventLog(store, PREFIX).read()
    assert _names(logged.events) == ["AttemptStarted", "event 1", "AttemptStarted", "event 4"]
    assert logged.problems == []


def test_a_zombie_that_writes_between_its_successors_read_and_first_write_is_read_too(files: FileObjectStore) -> None:
    """The successor finds the number taken, reads on, asks for its first event again, and writes behind."""
    zombie = Attempt(files)
    zombie.begin()
    watched = WatchedStore(files)
    successor = Attempt(watched)
    graphs: list[int] = []
    late = iter([1, 2])

    def make_first(graph: ExecutionGraph) -> AttemptStarted:
        newest = graph.newest
        assert newest is not None
        graphs.append(len(newest.skipped))
        for number in itertools.islice(late, 1):
            zombie.append(number)
            assert zombie.writer.flush()
        return AttemptStarted(epoch=2)

    graph = successor.writer.begin(make_first)
    assert graphs == [0, 1, 2]
    assert [skip.name for skip in graph.attempts[1].skipped] == ["event 1", "event 2"]
    zombie.append(3)
    assert not zombie.writer.flush()
    successor.writer.close()
    zombie.writer.close()
    names = _names(JobEventLog(files, PREFIX).read().events)
    assert names == ["AttemptStarted", "event 1", "event 2", "AttemptStarted"]


@pytest.mark.parametrize("store", ["file", pytest.param("gateway", marks=pytest.mark.process)], indirect=True)
def test_drivers_that_begin_at_once_leave_one_order(store: ObjectStore) -> None:
    """Of drivers that begin at the same moment each either follows the older ones or is fenced by a newer one."""
    for round_ in range(5):
        attempts = [Attempt(store, QUICK) for _ in range(4)]
        start = threading.Barrier(4)

        def begin(attempt: Attempt, start: threading.Barrier = start) -> bool:
            start.wait()
            try:
                attempt.begin()
            except Fenced:
                return False
            attempt.append(attempt.claim.epoch)
            return attempt.writer.flush()

        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(begin, attempts))
        for attempt in attempts:
            attempt.writer.close()
            assert attempt.broken == []
        assert done[-1], "the newest one is never fenced"
        logged = JobEventLog(store, PREFIX).read()
        epochs = [event.epoch for event in logged.events]
        assert epochs == sorted(epochs)
        assert epochs[-1] == attempts[-1].claim.epoch == 4 * (round_ + 1)
        assert logged.problems == []


def test_whoever_comes_too_late_to_begin_is_fenced(store: ObjectStore) -> None:
    """An attempt that claimed first and begins last writes nothing."""
    old = Attempt(store)
    new = Attempt(store)
    new.begin()
    with pytest.raises(Fenced, match="Attempt 1 has been replaced by attempt 2"):
        old.begin()
    old.writer.close()
    new.writer.close()
    assert [event.epoch for event in JobEventLog(store, PREFIX).read().events] == [2]


def test_whoever_is_overtaken_while_beginning_is_fenced(files: FileObjectStore) -> None:
    """The newer attempt's first block comes between the read and the first write."""
    old = Attempt(files)
    new = Attempt(files)

    def make_first(graph: ExecutionGraph) -> AttemptStarted:
        new.begin()
        return AttemptStarted(epoch=1)

    with pytest.raises(Fenced):
        old.writer.begin(make_first)
    new.writer.close()
    assert [event.epoch for event in JobEventLog(files, PREFIX).read().events] == [2]


# -- failures ---------------------------------------------------------------------------------------------------------


class FailingStore(WatchedStore):
    """Fails every create-only write from a chosen moment on."""

    def __init__(self, store: ObjectStore, error: BaseException) -> None:
        super().__init__(store, self._fail)
        self.failing = False
        self.error = error

    def _fail(self, operation: str, key: str) -> None:
        if self.failing and operation == "put_new":
            raise self.error


@pytest.mark.parametrize(
    "error", [StoreUnavailable("the store is gone"), AccessDenied("not any more"), RuntimeError("a bug"), SystemExit(1)]
)
def test_a_store_that_fails_for_good_ends_the_recording_and_says_so(
    files: FileObjectStore, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    """Once: a warning, on_broken, .broken; flush() returns False at once, append() and close() do no harm."""
    store = FailingStore(files, error)
    attempt = Attempt(store)
    attempt.begin()
    attempt.append(1)
    assert attempt.writer.flush()
    assert attempt.writer.broken is None
    store.failing = True
    attempt.append(2)
    assert not attempt.writer.flush()
    wait_until(lambda: attempt.broken)
    store.failing = False  # even if it comes back: what was lost in between would make the rest lie
    began = time.monotonic()
    attempt.append(3)
    assert not attempt.writer.flush()
    assert time.monotonic() - began < 1
    attempt.writer.close()
    attempt.writer.close()
    assert len(attempt.broken) == 1
    assert attempt.writer.broken is attempt.broken[0]
    assert str(error.args[0]) in str(attempt.writer.broken)
    assert attempt.fenced == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "The job goes on" in caplog.text
    assert _names(JobEventLog(files, PREFIX).read().events) == ["AttemptStarted", "event 1"]


def test_waiting_flushes_are_released_when_the_store_breaks(files: FileObjectStore) -> None:
    """Nobody waits for a writer that has given up."""
    gate, reached = threading.Event(), threading.Event()
    store = FailingStore(files, StoreUnavailable("gone"))
    attempt = Attempt(store)
    attempt.begin()

    def fail(operation: str, key: str) -> None:
        reached.set()
        gate.wait(20)
        raise store.error

    store.before = fail
    attempt.append(1)
    with ThreadPoolExecutor(4) as pool:
        flushes = [pool.submit(attempt.writer.flush) for _ in range(4)]
        assert reached.wait(10)
        gate.set()
        assert [flush.result(10) for flush in flushes] == [False] * 4
    attempt.writer.close()


def test_a_listener_that_fails_does_not_hide_the_fact(files: FileObjectStore) -> None:
    """Exceptions of on_broken stay in the log."""
    store = FailingStore(files, StoreUnavailable("gone"))

    def bug(error: StoreError) -> None:
        raise RuntimeError("a bug in the listener")

    writer = JobEventWriter(
        store, PREFIX, Claims(files, PREFIX).claim(), SLOW, on_fenced=lambda epoch: None, on_broken=bug
    )
    writer.begin(lambda graph: AttemptStarted(epoch=1))
    store.failing = True
    writer.append(JobFinished(epoch=1))
    assert not writer.flush()
    writer.close()
    assert writer.broken is store.error


def test_a_listener_may_use_the_writer(files: FileObjectStore) -> None:
    """on_broken and on_fenced may flush, append and close without waiting for themselves."""
    store = FailingStore(files, StoreUnavailable("gone"))
    results: list[bool] = []
    writer: JobEventWriter

    def use(error: StoreError) -> None:
        writer.append(JobFinished(epoch=1))
        results.append(writer.flush())
        writer.close()

    writer = JobEventWriter(
        store, PREFIX, Claims(files, PREFIX).claim(), SLOW, on_fenced=lambda epoch: None, on_broken=use
    )
    writer.begin(lambda graph: AttemptStarted(epoch=1))
    store.failing = True
    writer.append(JobFinished(epoch=1))
    assert not writer.flush()
    writer.close()
    assert results == [False]


def test_an_event_that_cannot_be_encoded_ends_the_recording(files: FileObjectStore) -> None:
    """append() does not raise, but the others would lie without it."""
    attempt = Attempt(files)
    attempt.begin()
    for _ in range(2):
        attempt.writer.append(VertexSkipped(epoch=1, at=float("nan"), name="x", reason=""))
    assert len(attempt.broken) == 1
    attempt.append(1)
    assert not attempt.writer.flush()
    attempt.writer.close()
    assert _names(JobEventLog(files, PREFIX).read().events) == ["AttemptStarted"]


def test_a_store_that_fails_at_the_beginning_is_the_callers_to_judge(files: FileObjectStore) -> None:
    """begin() raises, starts nothing, and what was appended is not stored."""
    store = FailingStore(files, StoreUnavailable("gone"))
    attempt = Attempt(store)
    store.failing = True
    with pytest.raises(StoreUnavailable):
        attempt.begin()
    attempt.append(1)
    assert not attempt.writer.flush()
    attempt.writer.close()
    assert attempt.broken == []


def test_a_claim_without_a_first_block_leaves_room_for_the_next(files: FileObjectStore) -> None:
    """Claimed, then the first PUT failed: the next attempt finds no trace but the claim."""
    store = FailingStore(files, StoreUnavailable("gone"))
    attempt = Attempt(store)
    store.failing = True
    with pytest.raises(StoreUnavailable):
        attempt.begin()
    successor = Attempt(files)
    assert sorted(successor.begin().attempts) == [2]
    successor.writer.close()


def test_a_block_whose_answer_was_lost_is_recognised(files: FileObjectStore) -> None:
    """A repeated PUT that meets our own block is success, in begin() and in the writer thread."""

    class LosingStore(WatchedStore):
        def put_new(self, key: str, body: bytes) -> None:
            super().put_new(key, body)
            raise ObjectExists("as after a repeated request")

    attempt = Attempt(LosingStore(files), claim=Claims(files, PREFIX).claim())
    attempt.begin()
    attempt.append(1)
    assert attempt.writer.flush()
    attempt.append(2)
    attempt.writer.close()
    assert attempt.fenced + attempt.broken == []
    assert _names(JobEventLog(files, PREFIX).read().events) == ["AttemptStarted", "event 1", "event 2"]


@pytest.mark.parametrize("content", [b"", b"rubbish", encode_block(BlockHeader("jobs/b/@job", 2, 9, "x", 0), [])])
def test_a_number_taken_by_rubbish_breaks_the_recording_but_fences_nobody(
    files: FileObjectStore, content: bytes
) -> None:
    """Something that no attempt has written: the store is unusable, the job goes on."""
    attempt = Attempt(files)
    attempt.begin()
    files.put_new(_key(2), content)
    attempt.append(1)
    assert not attempt.writer.flush()
    wait_until(lambda: attempt.broken)
    attempt.writer.close()
    assert attempt.fenced == []
    assert "no newer attempt" in str(attempt.writer.broken)


def test_a_number_taken_by_rubbish_fences_if_the_job_was_claimed(files: FileObjectStore) -> None:
    """A successor's block may be half written where files cannot be linked; its claim tells."""
    attempt = Attempt(files)
    attempt.begin()
    Claims(files, PREFIX).claim()
    files.put_new(_key(2), b"half a bl")
    attempt.append(1)
    assert not attempt.writer.flush()
    wait_until(lambda: attempt.fenced)
    attempt.writer.close()
    assert attempt.fenced == [2]
    assert attempt.broken == []


# -- damage -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(files: FileObjectStore) -> FileObjectStore:
    """Blocks 1 to 5: the start, and two events in each of the others."""
    attempt = Attempt(files)
    attempt.begin()
    for number in range(2, 6):
        attempt.append(number * 10, number * 10 + 1)
        assert attempt.writer.flush()
    attempt.writer.close()
    return files


def _damage(store: FileObjectStore, block: int, change: Callable[[bytes], bytes]) -> None:
    body = store.get(_key(block))
    store.put(_key(block), change(body))


def test_a_missing_block_is_said_and_the_rest_is_read(recorded: FileObjectStore) -> None:
    """A gap is a problem in the answer, not an error."""
    recorded.delete([_key(3)])
    logged = JobEventLog(recorded, PREFIX).read()
    assert _names(logged.events)[1:] == ["event 20", "event 21", "event 40", "event 41", "event 50", "event 51"]
    assert logged.lost_blocks == [3]
    assert "block 3 " in logged.problems[0]
    assert "missing" in logged.problems[0]
    assert logged.next_block == 6


def test_the_newest_epoch_is_the_highest(files: FileObjectStore) -> None:
    """Also where an older attempt's block stands behind, which only a store without create-only writes could do."""
    for number, epoch in enumerate([1, 3, 2], start=1):
        files.put_new(_key(number), encode_block(BlockHeader(PREFIX, number, epoch, "o", 0), []))
    assert JobEventLog(files, PREFIX).read().newest_epoch == 3


def test_a_torn_block_gives_the_lines_before_the_tear(recorded: FileObjectStore) -> None:
    """Half a block keeps its first event."""
    _damage(recorded, 5, lambda body: body[:-10])
    logged = JobEventLog(recorded, PREFIX).read()
    assert _names(logged.events)[-1] == "event 50"
    assert logged.lost_blocks == [5]
    assert "its first 1 events are used" in logged.problems[0]
    assert logged.next_block == 6


def test_a_corrupt_block_is_not_trusted(recorded: FileObjectStore) -> None:
    """A flipped bit in the header loses the block, and is said."""
    _damage(recorded, 2, lambda body: body.replace(b'"records":2', b'"records":3'))
    logged = JobEventLog(recorded, PREFIX).read()
    assert "event 20" not in _names(logged.events)
    assert "event 30" in _names(logged.events)
    assert logged.lost_blocks == [2]
    assert "nothing of it is used" in logged.problems[0]


def test_another_jobs_block_is_not_trusted(recorded: FileObjectStore) -> None:
    """A block copied from elsewhere, sound in itself, is foreign; so is one under another number."""
    other = decode_block(recorded.get(_key(4)), PREFIX, 4).header
    assert other is not None
    recorded.put(_key(4), encode_block(BlockHeader("jobs/x/@job", 4, 1, "o", 0), []))
    recorded.put(_key(5), recorded.get(_key(2)))
    logged = JobEventLog(recorded, PREFIX).read()
    assert _names(logged.events)[1:] == ["event 20", "event 21", "event 30", "event 31"]
    assert logged.lost_blocks == [4, 5]
    assert "jobs/x/@job" in logged.problems[0]


def test_strange_names_among_the_blocks_are_ignored(recorded: FileObjectStore) -> None:
    """Only numbered blocks are read."""
    for name in ("readme.txt", "0.jsonl", "x.jsonl", "0000000009.json", "0000000009.jsonl.bak"):
        recorded.put_new(f"{PREFIX}/events/{name}", b"x")
    logged = JobEventLog(recorded, PREFIX).read()
    assert (logged.problems, logged.next_block) == ([], 6)


def test_the_next_attempt_goes_on_behind_the_damage_and_reports_it(recorded: FileObjectStore) -> None:
    """begin() neither fails on damaged blocks nor writes over them; the graph's problems tell of them."""
    recorded.delete([_key(2)])
    _damage(recorded, 5, lambda body: body[:3])
    attempt = Attempt(recorded)
    graph = attempt.begin()
    attempt.writer.close()
    assert len(graph.problems) == 2
    assert _blocks(recorded)[-1] == _key(6)
    assert graph.newest is not None
    assert graph.newest.epoch == 2


def test_a_block_that_vanishes_while_it_is_read_is_a_missing_block(recorded: FileObjectStore) -> None:
    """Between the listing and the read somebody may tidy up."""

    def vanish(operation: str, key: str) -> None:
        if operation == "get" and key == _key(3):
            raise ObjectNotFound("gone")

    assert JobEventLog(WatchedStore(recorded, vanish), PREFIX).read().lost_blocks == [3]


def test_a_log_that_cannot_be_read_is_an_error(recorded: FileObjectStore) -> None:
    """Damage is tolerated, silence is not: a store that does not answer must not look like an empty job."""

    def fail(operation: str, key: str) -> None:
        if operation == "get":
            raise StoreUnavailable("down")

    with pytest.raises(StoreUnavailable):
        JobEventLog(WatchedStore(recorded, fail), PREFIX).read()


# -- SIGKILL ----------------------------------------------------------------------------------------------------------

_DRIVER = """
import sys; from pathlib import Path
from airflow_provider.recovery.events import AttemptStarted, VertexSkipped
from airflow_provider.recovery.options import RecoveryOptions
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.event_store import JobEventWriter
from airflow_provider.storage.files import FileObjectStore
store, prefix = FileObjectStore(Path(sys.argv[1])), sys.argv[2]
claim = Claims(store, prefix).claim()
options = RecoveryOptions(write_buffer_flush_interval=3600)
writer = JobEventWriter(store, prefix, claim, options, on_fenced=print, on_broken=print)
writer.begin(lambda graph: AttemptStarted(epoch=claim.epoch))
for number in range(5):
    writer.append(VertexSkipped(epoch=claim.epoch, name=f"event {number}", reason=""))
    if writer.flush():
        print(f"event {number}", flush=True)
"""


@pytest.mark.parametrize(
    ("fault", "stored"),
    [
        ("before-first-event", []),
        ("before-flush@3", ["AttemptStarted", "event 0", "event 1"]),
        ("after-flush@3", ["AttemptStarted", "event 0", "event 1", "event 2"]),
    ],
)
def test_a_kill_loses_at_most_what_was_never_confirmed(files: FileObjectStore, fault: str, stored: list[str]) -> None:
    """SIGKILL before the first event and on both sides of a flush: what flush() confirmed is there, nothing is torn."""
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER, str(files.path_of("x").parent), PREFIX],
        env=os.environ | {"SPARK_RECOVERY_FAULT": fault},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == -9, done.stderr
    logged = JobEventLog(files, PREFIX).read()
    assert _names(logged.events) == stored
    assert set(done.stdout.split("\n")) - {""} <= set(stored)
    assert logged.problems == []
    successor = Attempt(files)
    assert max(successor.begin().attempts) == 2
    successor.writer.close()
