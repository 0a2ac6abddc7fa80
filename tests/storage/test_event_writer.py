"""The job event store: what is appended is read back, in order, without anybody waiting for the store."""

from __future__ import annotations

import itertools
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider.core.events import AttemptStarted, JobStateChanged, VertexSkipped
from airflow_provider.core.graph import ExecutionGraph, JobState
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.object_store import ObjectStore
from tests.storage.conftest import PREFIX, wait_until
from tests.storage.writing_attempts import QUICK, Attempt, block_key, block_keys, names
from tests.support.stores import WatchedStore


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
    assert names(logged.events) == ["AttemptStarted", "event 1", "event 2", "event 3"]
    assert (logged.next_block, logged.problems, logged.lost_blocks) == (4, [], [])
    assert block_keys(store) == [block_key(1), block_key(2), block_key(3)]
    attempt.writer.close()


def test_an_empty_store_reads_as_nothing(store: ObjectStore) -> None:
    """A job that was never started has no events and begins at block 1."""
    logged = JobEventLog(store, PREFIX).read()
    assert (logged.events, logged.next_block, logged.problems) == ([], 1, [])


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
    wait_until(lambda: len(block_keys(files)) == 2)
    attempt.append(2)
    wait_until(lambda: len(block_keys(files)) == 3)
    assert names(JobEventLog(files, PREFIX).read().events)[1:] == ["event 1", "event 2"]
    attempt.writer.close()


def test_a_full_buffer_is_written_at_once(files: FileObjectStore) -> None:
    """write_buffer_size triggers a block, and no block holds much more than that."""
    attempt = Attempt(files, RecoveryOptions(write_buffer_size=1000, write_buffer_flush_interval=3600))
    attempt.begin()
    for number in range(100):
        attempt.append(number)
    wait_until(lambda: len(block_keys(files)) >= 5)
    attempt.writer.close()
    sizes = [info.size for info in files.list(f"{PREFIX}/events/")]
    assert max(sizes) < 1000 + 400
    assert names(JobEventLog(files, PREFIX).read().events)[1:] == [f"event {number}" for number in range(100)]


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
        assert names(logged.events) == expected
        assert logged.problems == []
        assert logged.next_block == len(block_keys(store)) + 1


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
    assert names(news.events) == ["event 0", "event 1", "event 2"]
    assert log.read(news.next_block).next_block == news.next_block == 5
    attempt.writer.close()


def test_appending_never_waits_for_the_store(files: FileObjectStore) -> None:
    """While a block is being written, append() returns at once, and the events follow later in order."""
    gate, reached = threading.Event(), threading.Event()
    gate.set()
    opened: list[bool] = []

    def hold(operation: str, key: str) -> None:
        if operation == "put_new" and not gate.is_set():
            reached.set()
            opened.append(gate.wait(20))

    attempt = Attempt(WatchedStore(files, hold))
    attempt.begin()
    gate.clear()
    attempt.append(0)
    with ThreadPoolExecutor(1) as pool:
        flush = pool.submit(attempt.writer.flush)
        assert reached.wait(60)
        attempt.append(*range(1, 1001))
        assert not flush.done()
        gate.set()
        assert flush.result(10)
    assert opened == [True], "whoever appended has waited for the store to give up"
    assert attempt.writer.flush()
    assert names(JobEventLog(files, PREFIX).read().events)[1:] == [f"event {n}" for n in range(1001)]
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
                so_far = names(JobEventLog(files, PREFIX).read().events)
                assert f"event {thread * 100 + turn}" in so_far

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    attempt.writer.close()
    stored = names(JobEventLog(files, PREFIX).read().events)[1:]
    assert len(stored) == 160
    for thread in range(8):
        mine = [int(name.split()[1]) for name in stored if int(name.split()[1]) // 100 == thread]
        assert mine == sorted(mine)


def test_closing_stores_what_is_pending_and_again_does_nothing(files: FileObjectStore) -> None:
    """close() is a last flush; afterwards nothing is taken any more and flush() says so at once."""
    others = set(threading.enumerate())
    attempt = Attempt(files)
    attempt.begin()
    attempt.append(1)
    attempt.writer.close()
    attempt.writer.close()
    assert attempt.writer.flush()
    attempt.append(2)
    assert not attempt.writer.flush()
    attempt.writer.close()
    assert names(JobEventLog(files, PREFIX).read().events) == ["AttemptStarted", "event 1"]
    assert set(threading.enumerate()) <= others


def test_a_writer_that_never_began_can_be_closed(files: FileObjectStore) -> None:
    """Cleaning up after a failed start neither hangs nor raises."""
    attempt = Attempt(files)
    attempt.append(1)
    assert not attempt.writer.flush()
    attempt.writer.close()
    assert block_keys(files) == []
