"""Giving up what a job has stored: the next attempt computes everything, and no driver at work is ever harmed."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider.cli import main as cli
from airflow_provider.core.errors import ConfigurationError, Fenced, JobAlreadyRunning, StoreUnavailable
from airflow_provider.core.events import AttemptStarted, JobFinished
from airflow_provider.core.partitions import StoredPartition
from airflow_provider.core.report import JobReport, build_report
from airflow_provider.core.takeover import StartAfresh
from airflow_provider.job.claiming import decide_alone, read_graph
from airflow_provider.job.job_master import JobMaster
from airflow_provider.storage.cancelling import refuse_cancelled
from airflow_provider.storage.claims import Claim, Claims, claim_key
from airflow_provider.storage.discarding import discard, discard_in_force, find_discard, take_notice
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.heartbeat import Heartbeat
from airflow_provider.storage.inspection import look_at_last
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.partition_store import PartitionStore
from tests.storage.conftest import PREFIX
from tests.storage.failed_jobs import JOB, fail_after
from tests.support.replaying import replay
from tests.support.small_driver import PARTITIONS, REQUEST, VERTICES, computed, run_job
from tests.support.stores import WatchedStore

ALL = {(name, index) for name in VERTICES for index in range(PARTITIONS)}


def stored_by(store: ObjectStore) -> set[int]:
    return {p.epoch for found in PartitionStore(store, JOB.prefix).survivors().values() for p in found}


@pytest.mark.few(1)
def test_after_a_discard_everything_is_computed_again(store: ObjectStore, tmp_path: Path) -> None:
    """Without one the next attempt reuses what was stored; with one nothing, and it says who decided that."""
    fail_after(store, tmp_path, "a")
    assert computed(tmp_path / "computed", 1) == {("a", index) for index in range(PARTITIONS)}
    discard(store, JOB.prefix, by="ann", timeout=5)
    run_job(store, REQUEST, tmp_path / "computed")
    assert computed(tmp_path / "computed", 2) == ALL
    fail = JobMaster(REQUEST, store, on_fenced=lambda _: None)
    fail.start()
    assert "discarded by ann" in fail.graph.attempts[2].reason
    fail.failed("")


def test_a_discard_counts_for_one_attempt_only(files: FileObjectStore, tmp_path: Path) -> None:
    """What the fresh attempt stores is reused by the one after it."""
    fail_after(files, tmp_path, "a")
    discard(files, JOB.prefix, by="", timeout=5)
    fail_after(files, tmp_path, "a", "b")
    run_job(files, REQUEST, tmp_path / "computed")
    assert computed(tmp_path / "computed", 3) == {("c", index) for index in range(PARTITIONS)}


def test_a_discard_outlives_an_attempt_that_died_before_its_first_event(files: FileObjectStore, tmp_path: Path) -> None:
    """The one that claimed and died has not dealt with it, so the next one does."""
    fail_after(files, tmp_path, "a")
    discard(files, JOB.prefix, by="", timeout=5)
    lost = Claims(files, JOB.prefix).claim()
    Heartbeat(files, JOB.prefix, lost, 3600, lambda _: None).stop("FAILED")
    assert isinstance(decide_alone(REQUEST, files), StartAfresh)
    run_job(files, REQUEST, tmp_path / "computed")
    assert computed(tmp_path / "computed", 3) == ALL


def test_a_success_that_nobody_saw_can_be_discarded(files: FileObjectStore, tmp_path: Path) -> None:
    """The next try computes it again in place of taking it over."""
    supervised = replace(REQUEST, supervised=True)
    run_job(files, supervised, tmp_path / "computed")
    discard(files, JOB.prefix, by="ann", timeout=5)
    assert isinstance(decide_alone(REQUEST, files), StartAfresh)


def test_a_driver_at_work_is_left_alone(store: ObjectStore) -> None:
    """Its heartbeat moves: refused, nothing written, and the message says where it runs and what to do."""
    claim = elsewhere(store)
    beat = Heartbeat(store, JOB.prefix, claim, 0.05, lambda _: None)
    beat.start()
    try:
        for delete in (False, True):
            with pytest.raises(JobAlreadyRunning, match=r"Attempt 1 is at work .* End it first"):
                discard(store, JOB.prefix, by="ann", timeout=30, delete=delete)
    finally:
        beat.stop("FAILED")
    assert find_discard(store, JOB.prefix, 1) is None
    assert list(store.list(f"{JOB.prefix}/discards/")) == []


def test_a_driver_that_begins_at_the_same_moment_keeps_its_partitions(files: FileObjectStore, tmp_path: Path) -> None:
    """Claimed just before the discard is written: that is said, and nothing is deleted."""
    fail_after(files, tmp_path, "a")

    def claim_first(operation: str, key: str) -> None:
        if operation == "put_new" and "/discards/" in key:
            Claims(files, JOB.prefix).claim()

    with pytest.raises(JobAlreadyRunning, match="Attempt 2 has begun at the same moment"):
        discard(WatchedStore(files, claim_first), JOB.prefix, by="ann", timeout=5, delete=True)
    assert stored_by(files) == {1}


@pytest.mark.integration
def test_a_driver_that_had_decided_to_resume_sees_the_discard_all_the_same(
    files: FileObjectStore, tmp_path: Path
) -> None:
    """Discarded between the operator's decision and the driver's claim: the driver looks again after its claim."""
    fail_after(files, tmp_path, "a")

    def discard_first(operation: str, key: str) -> None:
        if operation == "put_new" and key.endswith("claims/00000002.json"):
            discard(files, JOB.prefix, by="ann", timeout=5)

    supervised = replace(REQUEST, supervised=True, previous_lost=1)
    run_job(WatchedStore(files, discard_first), supervised, tmp_path / "computed")
    assert computed(tmp_path / "computed", 2) == ALL


@pytest.mark.few(1)
def test_release_deletes_what_was_discarded_and_nothing_else(store: ObjectStore, tmp_path: Path) -> None:
    """The partitions and files of those attempts go; the story of the job stays, and again is harmless."""
    fail_after(store, tmp_path, "a", "b")
    made, partitions = discard(store, JOB.prefix, by="ann", timeout=5, delete=True)
    assert (made.epoch, made.by, partitions) == (1, "ann", 2 * PARTITIONS)
    assert stored_by(store) == set()
    assert list(store.list(f"{JOB.prefix}/events/")) != []
    again, none = discard(store, JOB.prefix, by="bob", timeout=5, delete=True)
    assert (again.by, none) == ("ann", 0)
    run_job(store, REQUEST, tmp_path / "computed")
    assert stored_by(store) == {2}


def test_what_was_never_claimed_cannot_be_discarded(store: ObjectStore) -> None:
    """It says so in place of leaving an object under a mistyped name."""
    with pytest.raises(ConfigurationError, match="stored nothing yet"):
        discard(store, JOB.prefix, by="ann", timeout=5)
    assert list(store.list("jobs/")) == []


def test_a_discard_that_cannot_be_read_still_counts(files: FileObjectStore, tmp_path: Path) -> None:
    """That it is there says what matters."""
    fail_after(files, tmp_path, "a")
    files.put_new(f"{JOB.prefix}/discards/00000001.json", b"\xff")
    run_job(files, REQUEST, tmp_path / "computed")
    assert computed(tmp_path / "computed", 2) == ALL


@pytest.mark.parametrize("command", ["discard", "release"])
def test_on_the_command_line(
    files: FileObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """One line says what was done; without --yes nothing is, and one line says what it would do."""
    fail_after(files, tmp_path, "a")
    line = [command, "--event-store", files.uri, "--job-id", str(JOB)]
    assert cli.main(line) == 2
    warned = capsys.readouterr().err
    assert f"{command} deletes {'all' if command == 'release' else 'nothing'}" in warned
    assert "--yes" in warned
    assert find_discard(files, JOB.prefix, 1) is None
    assert cli.main([*line, "--yes"]) == 0
    said = capsys.readouterr().out
    assert "The next attempt starts afresh." in said
    assert ("4 partitions deleted" in said) == (command == "release")
    assert find_discard(files, JOB.prefix, 1) is not None
    assert stored_by(files) == (set() if command == "release" else {1})


def elsewhere(store: ObjectStore) -> Claim:
    """A claim by a process of another machine."""
    claim = Claims(store, JOB.prefix).claim()
    other = replace(claim, host="other", boot_id="other")
    store.put(f"{JOB.prefix}/claims/{claim.epoch:08d}.json", json.dumps(vars(other)).encode())
    return other


def test_a_stray_claim_of_a_high_epoch_costs_no_request_per_epoch(files: FileObjectStore, tmp_path: Path) -> None:
    """To begin behind it, to look at the job, and to ask for cancellations takes a listing, not 200,000 requests."""
    fail_after(files, tmp_path, "a")
    discard(files, JOB.prefix, by="ann", timeout=5)
    files.put_new(claim_key(JOB.prefix, 200_000), b"")
    graph = read_graph(files, JOB.prefix)
    claim = Claims(files, JOB.prefix).claim()

    def few(operation: str, key: str) -> None:
        assert watched.calls.total() < 10, "too many requests"

    watched = WatchedStore(files, few)
    found = discard_in_force(watched, JOB.prefix, graph, before=claim.epoch)
    assert found is not None
    assert (found.epoch, found.by) == (1, "ann")
    watched.calls.clear()
    refuse_cancelled(watched, JOB.prefix, claim, submitted_after=1)
    Claims(files, JOB.prefix).take(claim.epoch + 1, cancels=True)
    watched.calls.clear()
    late = Claims(files, JOB.prefix).claim()
    with pytest.raises(Fenced, match="cancelled before it began"):
        refuse_cancelled(watched, JOB.prefix, late, submitted_after=1)


@pytest.mark.parametrize("epoch", [1, 200_000])
def test_to_look_at_a_job_behind_a_stray_claim_takes_few_requests(
    files: FileObjectStore, tmp_path: Path, epoch: int
) -> None:
    """The page's look, whatever the number of the newest claim is."""
    fail_after(files, tmp_path, "a")
    if epoch > 1:
        files.put_new(claim_key(JOB.prefix, epoch), b"")
    watched = WatchedStore(files)
    graph, newest = read_graph(files, JOB.prefix), Claims(files, JOB.prefix).newest()
    assert newest is not None
    last = look_at_last(watched, JOB.prefix, newest, graph, lives=lambda: False)
    assert (last.epoch, last.discarded) == (epoch, "")
    assert watched.calls.total() < 10


LOG = logging.getLogger("tests")


@pytest.fixture
def report() -> JobReport:
    return build_report("job", replay([AttemptStarted(epoch=1), JobFinished(epoch=1)]))


def store_one(store: ObjectStore, folder: Path, epoch: int = 1) -> StoredPartition:
    path = folder / "partition"
    path.write_bytes(b"rows")
    partition = StoredPartition("v-f", "l", 0, 1, epoch, task=0, rows=1, checksum="00000000", millis=1)
    PartitionStore(store, PREFIX).put(partition, path)
    return partition


def test_partitions_go_before_the_success_is_noted(files: FileObjectStore, tmp_path: Path, report: JobReport) -> None:
    """At the moment of the acknowledgement nothing is stored any more, so a death before it leaves it unseen."""
    store_one(files, tmp_path)
    left: list[int] = []

    def look(operation: str, key: str) -> None:
        if "/acks/" in key:
            left.append(len(PartitionStore(files, PREFIX).survivors()))

    take_notice(WatchedStore(files, look), PREFIX, report, LOG)
    assert left == [0]
    assert Claims(files, PREFIX).acknowledged(1) is not None


def test_kept_partitions_stay(files: FileObjectStore, tmp_path: Path, report: JobReport) -> None:
    """Whoever wants to look at them says so; the success is noted all the same."""
    store_one(files, tmp_path)
    take_notice(files, PREFIX, report, LOG, keep=True)
    assert list(PartitionStore(files, PREFIX).survivors()) == ["v-f"]
    assert Claims(files, PREFIX).acknowledged(1) is not None


def test_a_store_that_cannot_delete_does_not_hide_the_success(
    files: FileObjectStore, tmp_path: Path, report: JobReport, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be released is a warning; what cannot be noted is another."""
    store_one(files, tmp_path)
    broken = {"delete"}

    def fail(operation: str, key: str) -> None:
        if operation in broken:
            raise StoreUnavailable(f"no {operation}")

    take_notice(WatchedStore(files, fail), PREFIX, report, LOG)
    assert Claims(files, PREFIX).acknowledged(1) is not None
    assert "could not be released: no delete" in caplog.text
    broken.add("put_new")
    take_notice(WatchedStore(files, fail), PREFIX, report, LOG)
    assert "could not take note of that: no put_new" in caplog.text
