"""Garbage collection takes what nobody will resume, and never what somebody works at."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from airflow_provider.cli import main as cli
from airflow_provider.core.events import AttemptStarted, CoordinatorSnapshot
from airflow_provider.core.job import JobId
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.core.task_output import kept_beside
from airflow_provider.core.unfinished_write import UnfinishedWrite
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.event_writer import JobEventWriter
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.garbage import Verdict, collect, judge, remove_job, store_time, stored_jobs
from airflow_provider.storage.heartbeat import Heartbeat
from airflow_provider.storage.object_store import ObjectStore
from tests.storage.conftest import wait_until
from tests.support.stores import WatchedStore

OPTIONS = RecoveryOptions(previous_worker_recovery_timeout=0.3)
WEEK = 7 * 86400.0


def make_job(
    store: ObjectStore, name: str, *, ended: bool = True, outputs: dict[str, UnfinishedWrite] | None = None
) -> str:
    """A job with one attempt, as a driver leaves it: claim, heartbeat, block, partition, acknowledgement."""
    prefix = f"jobs/{name}/@job"
    claims = Claims(store, prefix)
    claim = claims.claim(OPTIONS.lease)
    writer = JobEventWriter(store, prefix, claim, OPTIONS, on_fenced=lambda _: None, on_broken=lambda _: None)
    writer.begin(lambda graph: AttemptStarted(epoch=claim.epoch))
    for name, write in (outputs or {}).items():
        writer.append(CoordinatorSnapshot(epoch=claim.epoch, coordinator=name, state=write.to_state()))
    writer.close()
    beat = Heartbeat(store, prefix, claim, 3600, lambda _: None)
    beat.stop("FINISHED" if ended else "ALIVE")
    store.put_new(f"{prefix}/partitions/v/l/000000-of-000001.e1.t0.r1.c00000000.ms1.parquet", b"rows")
    claims.acknowledge(claim.epoch, {"state": "FINISHED"})
    return prefix


def age(store: FileObjectStore, prefix: str, seconds: float) -> None:
    for info in list(store.list(f"{prefix}/")):
        path = store.path_of(info.key)
        os.utime(path, (info.modified_at - seconds,) * 2)


def actions(verdicts: list[Verdict]) -> dict[str, str]:
    return {verdict.job.name: verdict.action for verdict in verdicts}


def test_what_a_listing_tells_of_jobs(store: ObjectStore) -> None:
    """Each job once, with its objects, bytes and attempts; foreign objects are nobody's job."""
    make_job(store, "etl/run-1/task/-1")
    prefix = make_job(store, "etl/run-2/task/-1")
    Claims(store, prefix).claim()
    store.put_new("jobs/readme.txt", b"foreign")
    store.put_new("elsewhere/x", b"foreign")
    first, second = stored_jobs(store)
    assert (first.name, first.epoch, first.acknowledged) == ("etl/run-1/task/-1", 1, True)
    assert (second.name, second.epoch) == ("etl/run-2/task/-1", 2)
    own = list(store.list(f"{prefix}/"))
    assert (second.objects, second.bytes) == (len(own), sum(info.size for info in own))


@pytest.mark.parametrize("part", ["manual__2026-01-01T00:00:00+00:00", "ä ~/_.~2E", "_", ""])
def test_a_listed_job_can_be_looked_at(files: FileObjectStore, part: str) -> None:
    """What is listed is its id, as ``inspect``, ``discard`` and the others take it."""
    job = JobId(("etl", part, "task", "-1"))
    make_job(files, job.prefix.removeprefix("jobs/").removesuffix("/@job"))
    (listed,) = stored_jobs(files)
    assert JobId.parse(listed.name) == job


def test_only_what_is_older_than_the_retention_goes(files: FileObjectStore) -> None:
    """And without being told to delete, nothing does."""
    old, young = make_job(files, "old"), make_job(files, "young")
    age(files, old, WEEK + 60)
    age(files, young, WEEK - 60)
    before = [info.key for info in files.list("")]
    assert actions(collect(files, older_than=WEEK, delete=False, options=OPTIONS)) == {"old": "delete", "young": "keep"}
    assert [info.key for info in files.list("")] == before
    assert actions(collect(files, older_than=WEEK, delete=True, options=OPTIONS)) == {"old": "deleted", "young": "keep"}
    assert [info.key for info in files.list("")] == [key for key in before if key.startswith(young)]


def test_what_killed_writes_left_beside_their_targets_goes_too(
    files: FileObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder of committed tasks that a retry has moved out of its target goes with its job. One on a file system
    that this machine does not have is named, and so is nothing that was not moved, nor a name that Spark never draws.
    """
    write, lake = "0f8fad5b-d9cb-469f-a165-70867728950e", tmp_path / "lake"

    def to(location: str, name: str = write, *, kept: bool = True) -> UnfinishedWrite:
        return UnfinishedWrite(
            location, 1, 7, location, existed=True, before="", mode="append", writes=(name,), kept=kept
        )

    here, far = f"file:{lake}/daily", "hdfs://lake/daily"
    strange = to(f"file:{lake}/strange", "..")
    outputs = {"sink/a": to(here), "sink/b": to(far), "sink/c": to(f"file:{lake}/x", kept=False), "sink/d": strange}
    for folder in ("daily", f".spark-recovery-{write}/7/task_1", ".spark-recovery-.."):
        (lake / folder).mkdir(parents=True)
    store = FileObjectStore(tmp_path / "store")
    age(store, make_job(store, "old", outputs=outputs), WEEK + 60)
    command = ["gc", "--event-store", f"file://{tmp_path}/store", "--older-than", "7d"]
    assert cli.main(command) == 0
    assert f"  {kept_beside(here, write)}\n  {kept_beside(far, write)}" in capsys.readouterr().out
    assert (lake / f".spark-recovery-{write}").exists()
    assert cli.main([*command, "--delete", "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (job["action"], job["beside_outputs"]) == (
        "deleted",
        [kept_beside(far, write), f"file:{lake}/.spark-recovery-.."],
    )
    assert sorted(path.name for path in lake.iterdir()) == [".spark-recovery-..", "daily"]


def test_one_young_object_keeps_the_whole_job(files: FileObjectStore) -> None:
    """A driver that computes for weeks changes its heartbeat only."""
    prefix = make_job(files, "long")
    age(files, prefix, 2 * WEEK)
    files.put(f"{prefix}/heartbeats/00000001.json", b'{"state": "ALIVE"}')
    (verdict,) = collect(files, older_than=WEEK, delete=True, options=OPTIONS)
    assert (verdict.action, verdict.reason) == ("keep", "younger than the retention")


@pytest.mark.few(1)
def test_a_job_whose_heartbeat_moves_is_kept_whatever_the_retention(store: ObjectStore) -> None:
    """With no retention at all the heartbeat is watched."""
    living, dead = make_job(store, "living", ended=False), make_job(store, "dead", ended=False)
    claim = Claims(store, living).get(1)
    assert claim is not None
    beat = Heartbeat(store, living, claim, 0.02, lambda _: None)
    beat.start()
    try:
        verdicts = collect(store, older_than=0, delete=True, options=OPTIONS)
    finally:
        beat.stop("FINISHED")
    assert actions(verdicts) == {"dead": "deleted", "living": "keep"}
    assert not list(store.list(f"{dead}/"))
    assert Claims(store, living).newest() == claim


def test_an_old_job_whose_heartbeat_moves_is_at_work(files: FileObjectStore) -> None:
    """Older than the retention by the listing: a heartbeat that stands still keeps nothing, one that moves does."""
    prefix = make_job(files, "job", ended=False)
    (job,) = stored_jobs(files)
    now = job.modified_at + 60
    assert judge(files, job, now, 30, 0.1).action == "delete"
    claim = Claims(files, prefix).get(1)
    assert claim is not None
    beat = Heartbeat(files, prefix, claim, 0.02, lambda _: None)
    beat.start()
    try:
        verdict = judge(files, job, now, 30, 0.1)
    finally:
        beat.stop("FINISHED")
    assert (verdict.action, verdict.reason) == ("keep", "its driver is at work")


def test_removing_tells_of_nothing_that_is_no_problem(files: FileObjectStore, caplog: pytest.LogCaptureFixture) -> None:
    """The folder of heartbeats is not taken from under the remover's own first one."""
    names = [f"job{number}" for number in range(8)]
    for name in names:
        make_job(files, name)
    assert actions(collect(files, older_than=0, delete=True, options=OPTIONS)) == dict.fromkeys(names, "deleted")
    assert caplog.text == ""


def test_claims_go_last_and_the_removers_own_at_the_very_end(files: FileObjectStore) -> None:
    """Whatever the moment of a crash, a zombie still finds a newer claim, and the next collection finds the job."""
    prefix = make_job(files, "job")
    Claims(files, prefix).claim()
    deleted: list[str] = []

    class OneByOne(WatchedStore):
        def delete(self, keys: object) -> None:
            for key in keys:  # type: ignore[attr-defined]
                deleted.append(str(key).removeprefix(f"{prefix}/"))
                self.store.delete([key])
                if "claims/00000003.json" not in deleted:
                    assert Claims(self.store, prefix).taken(3)

    (job,) = stored_jobs(files)
    assert remove_job(OneByOne(files), job, OPTIONS)
    assert [re.match(r"\w+", key)[0] for key in deleted] == [  # type: ignore[index]
        "partitions", "events", "acks", "heartbeats", "claims", "claims", "heartbeats", "claims",
    ]  # fmt: skip
    assert deleted[-1] == "claims/00000003.json"
    assert list(files.list("")) == []


def test_a_job_that_somebody_has_taken_up_meanwhile_is_left_alone(files: FileObjectStore) -> None:
    """A driver that claimed the next epoch after the listing is neither fenced nor robbed."""
    prefix = make_job(files, "job")
    (job,) = stored_jobs(files)
    driver = Claims(files, prefix).claim()
    before = [info.key for info in files.list("")]
    assert not remove_job(files, job, OPTIONS)
    assert [info.key for info in files.list("")] == before
    assert Claims(files, prefix).newest() == driver


def test_a_driver_that_comes_during_a_removal_stops_it(files: FileObjectStore) -> None:
    """Its claim is newer, so the remover deletes nothing more, and says with its heartbeat that it is gone."""
    prefix = make_job(files, "job")
    (job,) = stored_jobs(files)

    def claim_next(operation: str, key: str) -> None:
        if operation == "abort_uploads":
            Claims(files, prefix).claim()

    assert not remove_job(WatchedStore(files, claim_next), job, OPTIONS)
    newest = Claims(files, prefix).newest()
    assert newest is not None
    assert newest.epoch == 3
    assert b"FAILED" in files.get(f"{prefix}/heartbeats/00000002.json")
    assert files.exists(f"{prefix}/events/0000000001.jsonl")


def test_a_zombie_of_a_job_that_is_being_removed_is_fenced(files: FileObjectStore) -> None:
    """The remover's claim tells it."""
    prefix = make_job(files, "job", ended=False)
    claim = Claims(files, prefix).get(1)
    assert claim is not None
    told: list[int] = []
    zombie = Heartbeat(files, prefix, claim, 0.01, told.append)
    (job,) = stored_jobs(files)

    def wake(operation: str, key: str) -> None:
        if operation == "abort_uploads":
            zombie.start()
            wait_until(lambda: told)
            zombie.stop("FENCED")

    assert remove_job(WatchedStore(files, wake), job, OPTIONS)
    assert told == [2]


def test_ages_are_told_by_the_stores_clock(files: FileObjectStore) -> None:
    """Of a small object that is removed again."""
    written: list[str] = []
    watched = WatchedStore(files, lambda operation, key: written.append(key) if operation == "put_new" else None)
    files.put_new("reference", b"")
    assert store_time(watched) >= next(info.modified_at for info in files.list("reference"))
    assert len(written) == 1
    assert not files.exists(written[0])


def test_a_job_of_this_moment_is_kept_by_any_retention(files: FileObjectStore) -> None:
    """A clock that is slightly behind makes no job older."""
    make_job(files, "job")
    (job,) = stored_jobs(files)
    assert judge(files, job, job.modified_at - 5, 1, 0.1).action == "keep"


def test_the_command_lists_and_deletes(files: FileObjectStore, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run by default, as a table or as JSON; --delete does what they announce."""
    prefix = make_job(files, "etl/run/task/-1")
    age(files, prefix, WEEK + 86400)
    line = ["gc", "--event-store", files.uri]
    assert cli.main(line) == 0
    shown = capsys.readouterr()
    assert re.search(r"etl/run/task/-1 +1 +yes +8\.0 d .* delete$", shown.out, re.MULTILINE)
    assert "1 of 1 jobs are garbage" in shown.out
    assert shown.err == "", "no progress bar where nobody watches"
    assert cli.main([*line, "--json", "--older-than", "9d"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["garbage"], told["jobs"][0]["action"], told["jobs"][0]["prefix"]) == (0, "keep", prefix)
    assert cli.main([*line, "--delete"]) == 0
    assert "Deleted 1 of 1 jobs" in capsys.readouterr().out
    assert list(files.list("")) == []
    assert cli.main(line) == 0
    assert "0 of 0 jobs" in capsys.readouterr().out


def test_a_terminal_sees_progress(
    files: FileObjectStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On standard error, so that JSON on standard output stays whole."""
    make_job(files, "one")
    make_job(files, "two")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert cli.main(["gc", "--event-store", files.uri, "--json"]) == 0
    shown = capsys.readouterr()
    assert "1 of 2 jobs" in shown.err
    assert shown.err.endswith("2 of 2 jobs\n")
    assert len(json.loads(shown.out)["jobs"]) == 2


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["gc"], "--event-store"),
        (["gc", "--event-store", "file:///x", "--older-than", "long"], "older_than"),
        (["gc", "--event-store", "file:///x", "--older-than", "7"], "7 days"),  # would be seconds
        (["gc", "--event-store", "nowhere"], "nowhere"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(line: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the exit code of a wrong configuration."""
    try:
        code = cli.main(line)
    except SystemExit as end:
        code = int(str(end.code))
    assert code == 2
    assert says in capsys.readouterr().err


def test_a_partly_removed_job_is_finished_next_time(files: FileObjectStore, tmp_path: Path) -> None:
    """A remover that died leaves a job like any other, with one attempt more."""
    prefix = make_job(files, "job")
    (job,) = stored_jobs(files)

    class Dying(WatchedStore):
        def delete(self, keys: object) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        remove_job(Dying(files), job, OPTIONS)
    age(files, prefix, 2 * WEEK)
    assert actions(collect(files, older_than=WEEK, delete=True, options=OPTIONS)) == {"job": "deleted"}
    assert list(files.list("")) == []
