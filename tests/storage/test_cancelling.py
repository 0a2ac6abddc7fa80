"""Ending a job from outside: its driver is fenced, one that comes late does not begin, and nobody else is touched."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider.core.errors import Fenced
from airflow_provider.job.job_master import JobMaster
from airflow_provider.storage.cancelling import CANCELLED, cancel, cancel_unclaimed
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.heartbeat import heartbeat_key
from airflow_provider.storage.object_store import ObjectStore
from tests.support.small_driver import REQUEST, VERTICES, computed, run_job, run_vertices
from tests.support.watching import watch

PREFIX = REQUEST.job.prefix
SUBMITTED = replace(REQUEST, supervised=True)


def test_a_driver_at_work_learns_that_it_is_cancelled(store: ObjectStore) -> None:
    """At its next heartbeat, and before anything is committed outside of the store."""
    told = threading.Event()
    master = JobMaster(SUBMITTED, store, on_fenced=lambda _: told.set())
    master.start()
    cancelled = cancel(store, PREFIX, 1)
    assert cancelled is not None
    assert cancelled.epoch == 1
    assert told.wait(60)
    with pytest.raises(Fenced):
        master.check_now()
    master.stop_heartbeat("FENCED")


@pytest.mark.few(1)
def test_the_next_driver_reuses_what_the_cancelled_one_stored(store: ObjectStore, tmp_path: Path) -> None:
    """A cancellation ends a driver; it discards nothing, and nobody waits for the one who cancelled."""
    master = JobMaster(SUBMITTED, store, on_fenced=lambda _: None)
    master.start()
    run_vertices(master, store, ["a"], tmp_path / "computed")
    cancel(store, PREFIX, 1)
    master.stop_heartbeat("FENCED")
    assert not watch(store, PREFIX, 2, timeout=60), "a cancellation is seen to have ended at once"
    run_job(store, REQUEST, tmp_path / "computed")
    assert {vertex for vertex, _ in computed(tmp_path / "computed", 3)} == set(VERTICES) - {"a"}


def test_a_driver_that_was_cancelled_before_it_claimed_does_not_begin(files: FileObjectStore) -> None:
    """It was submitted when there was no attempt, waited in a queue, and was cancelled meanwhile."""
    assert cancel_unclaimed(files, PREFIX, after=0) is None
    late = JobMaster(SUBMITTED, files, on_fenced=lambda _: None)
    with pytest.raises(Fenced, match="cancelled before it began"):
        late.start()
    assert b"FAILED" in files.get(heartbeat_key(PREFIX, 2))


def test_a_driver_that_was_submitted_after_the_cancellation_runs(files: FileObjectStore) -> None:
    """The operator tells it the newest epoch of that moment; a run by hand is asked for on purpose in any case."""
    cancel_unclaimed(files, PREFIX, after=0)
    master = JobMaster(replace(SUBMITTED, previous_lost=1), files, on_fenced=lambda _: None)
    assert master.start()
    master.failed("by chance")
    by_hand = JobMaster(REQUEST, files, on_fenced=lambda _: None)
    assert by_hand.start()
    by_hand.failed("by chance")


def test_a_driver_that_claims_at_the_same_moment_is_cancelled_too(files: FileObjectStore) -> None:
    """The claim came first: then that attempt is the one to end."""
    claim = Claims(files, PREFIX).claim()
    assert cancel_unclaimed(files, PREFIX, after=0) == claim
    newest = Claims(files, PREFIX).newest()
    assert newest is not None
    assert (newest.epoch, newest.cancels) == (2, True)
    assert CANCELLED.encode() in files.get(heartbeat_key(PREFIX, 2))


def test_neither_an_ended_attempt_nor_a_newer_one_is_cancelled(files: FileObjectStore, tmp_path: Path) -> None:
    """What has ended stays as it is, twice is once, and somebody else's driver goes on."""
    run_job(files, REQUEST, tmp_path / "computed")
    assert cancel(files, PREFIX, 1) is None
    claims = Claims(files, PREFIX)
    assert not claims.taken(2)
    claims.claim()
    claims.claim()
    assert cancel(files, PREFIX, 2) is None
    assert not claims.taken(4)
    assert cancel(files, PREFIX, 3) is not None
    assert cancel(files, PREFIX, 3) is None
    assert not claims.taken(5)
