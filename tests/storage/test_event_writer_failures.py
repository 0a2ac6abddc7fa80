"""The store fails, or the driver is killed: no failure is silent, and what was confirmed is there."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider.core.errors import (
    AccessDenied,
    ObjectExists,
    StoreError,
    StoreUnavailable,
)
from airflow_provider.core.events import AttemptStarted, JobFinished, VertexSkipped
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.storage import event_writer
from airflow_provider.storage.blocks import BlockHeader, encode_block
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.event_writer import JobEventWriter
from airflow_provider.storage.files import FileObjectStore
from tests.storage.conftest import PREFIX, wait_until
from tests.storage.writing_attempts import QUICK, SLOW, Attempt, FailingStore, block_key, names
from tests.support.stores import WatchedStore


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_writer, "_FIRST_PAUSE", 0.01)


def away(files: FileObjectStore, error: StoreError, options: RecoveryOptions = SLOW) -> tuple[FailingStore, Attempt]:
    """An attempt whose first event waits, because the store has begun to fail behind its beginning."""
    store = FailingStore(files, error)
    attempt = Attempt(store, options)
    attempt.begin()
    store.failing = True
    attempt.append(1)
    assert not attempt.writer.flush()
    return store, attempt


@pytest.mark.parametrize("error", [StoreUnavailable("the store is gone"), AccessDenied("the role has expired")])
def test_events_wait_for_a_store_that_does_not_answer(
    files: FileObjectStore, caplog: pytest.LogCaptureFixture, error: StoreError
) -> None:
    """Nobody waits for it who does not want to, nothing is lost, and all is stored in its order once it answers."""
    store, attempt = away(files, error, QUICK)
    assert attempt.writer.away is error
    attempt.append(2)
    attempt.writer.snapshot(ExecutionGraph())
    assert not attempt.writer.flush()
    assert not attempt.writer.flush(patience=0.05)
    with ThreadPoolExecutor(1) as pool:
        patient = pool.submit(attempt.writer.flush, 20)
        attempt.append(3)
        store.failing = False
        assert patient.result(20)
    assert attempt.writer.flush(patience=20)
    assert attempt.writer.away is None
    attempt.writer.close()
    assert attempt.broken + attempt.fenced == []
    assert names(JobEventLog(files, PREFIX).read().events) == ["AttemptStarted", "event 1", "event 2", "event 3"]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert str(error.args[0]) in caplog.text
    assert "The event store answers again after" in caplog.text


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
def test_events_wait_for_room_on_the_disk(files: FileObjectStore, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """A full disk, or a file server that is away, ends no recording: all is stored once writes go through again."""
    broken, flush = threading.Event(), os.fsync

    def fsync(descriptor: int) -> None:
        if broken.is_set():
            raise OSError(code, os.strerror(code))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    attempt = Attempt(files, QUICK)
    attempt.begin()
    broken.set()
    attempt.append(1)
    assert not attempt.writer.flush()
    wait_until(lambda: attempt.writer.away or attempt.broken)
    assert attempt.broken == []
    attempt.append(2)
    broken.clear()
    assert attempt.writer.flush(patience=20)
    attempt.writer.close()
    assert attempt.broken + attempt.fenced == []
    assert names(JobEventLog(files, PREFIX).read().events) == ["AttemptStarted", "event 1", "event 2"]


def test_a_successor_fences_whoever_could_not_write(files: FileObjectStore) -> None:
    """Events that have waited are never written behind those of a newer attempt."""
    store, attempt = away(files, StoreUnavailable("cut off"))
    successor = Attempt(files)
    successor.begin()
    store.failing = False
    wait_until(lambda: attempt.fenced)
    assert attempt.fenced == [2]
    for writer in (attempt.writer, successor.writer):
        writer.close()
    assert names(JobEventLog(files, PREFIX).read().events) == ["AttemptStarted"] * 2


def test_only_so_much_waits(files: FileObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the events take too much memory, recording ends; so it does at the end of the job, after one more try."""
    monkeypatch.setattr(event_writer, "_MOST_WAITING", 1000)
    for many in (False, True):
        store, attempt = away(files, StoreUnavailable("gone"))
        assert attempt.broken == []
        if many:
            attempt.append(*range(2, 100))
            wait_until(lambda attempt=attempt: attempt.broken)  # type: ignore[misc]
        attempt.writer.close()
        assert attempt.broken == [store.error]


@pytest.mark.parametrize("error", [StoreError("the bucket is gone"), RuntimeError("a bug"), SystemExit(1)])
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
    assert time.monotonic() - began < 10
    attempt.writer.close()
    attempt.writer.close()
    assert len(attempt.broken) == 1
    assert attempt.writer.broken is attempt.broken[0]
    assert str(error.args[0]) in str(attempt.writer.broken)
    assert attempt.fenced == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "The job goes on" in caplog.text
    assert names(JobEventLog(files, PREFIX).read().events) == ["AttemptStarted", "event 1"]


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
        assert reached.wait(60)
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
    assert names(JobEventLog(files, PREFIX).read().events) == ["AttemptStarted"]


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
    assert names(JobEventLog(files, PREFIX).read().events) == ["AttemptStarted", "event 1", "event 2"]


@pytest.mark.parametrize("content", [b"", b"rubbish", encode_block(BlockHeader("jobs/b/@job", 2, 9, "x", 0), [])])
def test_a_number_taken_by_rubbish_breaks_the_recording_but_fences_nobody(
    files: FileObjectStore, content: bytes
) -> None:
    """Something that no attempt has written: the store is unusable, the job goes on."""
    attempt = Attempt(files)
    attempt.begin()
    files.put_new(block_key(2), content)
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
    files.put_new(block_key(2), b"half a bl")
    attempt.append(1)
    assert not attempt.writer.flush()
    wait_until(lambda: attempt.fenced)
    attempt.writer.close()
    assert attempt.fenced == [2]
    assert attempt.broken == []


_DRIVER = """
import sys; from pathlib import Path
from airflow_provider.core.events import AttemptStarted, VertexSkipped
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.event_writer import JobEventWriter
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
    assert names(logged.events) == stored
    assert set(done.stdout.split("\n")) - {""} <= set(stored)
    assert logged.problems == []
    successor = Attempt(files)
    assert max(successor.begin().attempts) == 2
    successor.writer.close()
