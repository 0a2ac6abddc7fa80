"""Real drivers that lose sight of their store, are paused, or are replaced: at most one of them writes."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from airflow_provider.core.job import JobId
from airflow_provider.core.options import StorageOptions
from airflow_provider.core.run_request import EXIT_FAILED, EXIT_FENCED
from airflow_provider.storage.cancelling import cancel
from airflow_provider.storage.claims import Claim, Claims, process_is_gone
from airflow_provider.storage.heartbeat import heartbeat_key
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.processes import process_tree
from airflow_provider.storage.uris import open_store
from tests.support.claims import claim_elsewhere
from tests.support.driver import DriverHarness, Submitted
from tests.support.http_faults import Answer, Drop, Fault, FaultyServer, Request, Stall
from tests.support.parameters import thinned
from tests.support.s3_gateway import S3Server
from tests.support.waiting import signal_quietly, signal_tree, wait_until

pytestmark = [pytest.mark.process, pytest.mark.integration]

LEASE = {"previous-worker-recovery-timeout": "3s", "ownership-timeout": "3s", "sinks": "repeat"}
"""Beats every second, and each write is made by whoever may make it."""


class Appends:
    """Drivers of one job that appends 100 rows, each behind a gate of its own."""

    def __init__(self, driver: DriverHarness) -> None:
        self.driver = driver
        self.target = driver.folder / "out"
        self.prefix = JobId.parse(driver.job_id).prefix

    @property
    def store(self) -> ObjectStore:
        return open_store(self.driver.event_store, StorageOptions.from_mapping(self.driver.storage))

    def gate(self, number: int) -> Path:
        return self.driver.folder / f"gate-{number}"

    @contextmanager
    def start(self, how: str = "df", script: str = "one_append.py", **options: str) -> Iterator[subprocess.Popen[str]]:
        number = self.driver.attempts + 1
        given = {**LEASE, **{name.replace("_", "-"): value for name, value in options.items()}}
        # A warehouse of its own, because the driver's working directory is shared.
        self.driver.settings = {"spark.sql.warehouse.dir": str(self.driver.folder / f"warehouse-{number}")}
        process = self.driver.start(script, how, str(self.target), str(self.gate(number)), options=given)
        tree: list[int] = []
        try:
            wait_until(lambda: process.poll() is not None or Path(f"{self.gate(number)}.reached").exists(), "the gate")
            tree = process_tree(process.pid)
            yield process
        finally:
            for pid in {*tree, *process_tree(process.pid)}:
                if process.poll() is None or pid != process.pid:
                    signal_quietly(pid, signal.SIGKILL)
            process.communicate()

    def elsewhere(self, epoch: int) -> None:
        """Let a claim look as if its driver ran on another machine, out of reach."""
        claim_elsewhere(self.store, self.prefix, epoch)

    def claim(self, epoch: int) -> Claim | None:
        return Claims(self.store, self.prefix).get(epoch)

    def rows(self) -> list[int]:
        files = [str(path) for path in self.target.rglob("part-*.parquet") if "_temporary" not in path.parts]
        return sorted(ds.dataset(files).to_table()["id"].to_pylist()) if files else []


ONCE = list(range(100))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def appends(driver: DriverHarness) -> Appends:
    return Appends(driver)


@pytest.fixture
def remote(
    driver: DriverHarness, moto: S3Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Appends, FaultyServer]]:
    """Drivers that reach S3 through a server that does harm."""
    for name, value in moto.environment.items():
        monkeypatch.setenv(name, value)
    with FaultyServer(moto.endpoint).running() as server:
        driver.event_store = f"s3://{moto.create_bucket('lease')}/{uuid.uuid4().hex}"
        driver.storage = {"endpoint-url": server.endpoint, "addressing-style": "path"}
        driver.environment = moto.environment
        yield Appends(driver), server
        server.reset()


@pytest.mark.parametrize("how", ["df", pytest.param("sql", marks=pytest.mark.walk)])
def test_a_driver_whose_role_has_expired_writes_nothing(
    remote: tuple[Appends, FaultyServer], moto: S3Server, how: str
) -> None:
    """Another driver takes the job over and appends; the one that cannot ask who owns the job fails at its write,
    with one clear line, and appends nothing.
    """
    appends, server = remote
    with appends.start(how) as old:
        appends.elsewhere(1)
        server.fault = lambda request: Answer(400, "ExpiredToken")
        appends.driver.storage = {"endpoint-url": moto.endpoint, "addressing-style": "path"}
        appends.gate(2).touch()
        with appends.start(how) as new:
            new_log, _ = new.communicate(timeout=120)
            assert new.returncode == 0, new_log
        assert appends.rows() == ONCE
        appends.gate(1).touch()
        log, _ = old.communicate(timeout=120)
    assert appends.rows() == ONCE, log
    assert old.returncode == EXIT_FAILED, log
    (line,) = [line for line in log.splitlines() if " ERROR spark-recovery: " in line]
    assert "Attempt 1 cannot confirm that it owns job" in line
    assert "Nothing was written" in line


@pytest.mark.parametrize(
    "fault",
    thinned([Stall(), Drop(), Answer(403, "AccessDenied")], 3),
    ids=["hanging", "refused", "denied"],
)
def test_a_write_waits_for_a_store_that_is_away(remote: tuple[Appends, FaultyServer], fault: Fault) -> None:
    """Nobody else has claimed the job: the write is late, and goes through once the store answers again."""
    appends, server = remote
    with appends.start(ownership_timeout="2min") as process:
        server.fault = lambda request: fault
        runs_out = time.monotonic() + 4
        wait_until(lambda: time.monotonic() > runs_out, "the lease to run out")
        appends.gate(1).touch()
        log = ""
        for line in process.stdout or ():
            log += line
            if "the write waits" in line:
                assert appends.rows() == []
                server.reset()
        process.wait(timeout=120)
    assert process.returncode == 0, log
    assert "the write waits" in log
    assert appends.rows() == ONCE


@pytest.mark.parametrize("how", ["df", pytest.param("sql", marks=pytest.mark.walk)])
@pytest.mark.parametrize("end", thinned(["killed", "gives up"], 2))
def test_a_write_begins_when_its_name_is_recorded(remote: tuple[Appends, FaultyServer], how: str, end: str) -> None:
    """The driver owns its job, and the store takes no events: it appends nothing until its patience ends, or it is
    killed meanwhile; the retry appends the rows once, and has nothing to warn of.
    """
    appends, server = remote
    asked = threading.Event()

    def hang(request: Request) -> Fault | None:
        if request.method == "PUT" and "/events/" in request.path:
            asked.set()
            return Stall()
        return None

    patience = "5s" if end == "gives up" else "2min"
    with appends.start(how, sinks="once", ownership_timeout=patience) as process:
        server.fault = hang
        appends.gate(1).touch()
        wait_until(asked.is_set, "the name to be recorded")
        if end == "killed":
            for line in process.stdout or ():
                if "Cannot write to the event store" in line:
                    break
            assert process.poll() is None
        else:
            log, _ = process.communicate(timeout=120)
            assert process.returncode == EXIT_FAILED, log
            assert "has not recorded within 5 s what attempt 1 is about to write. Nothing was written." in log
    assert appends.rows() == []
    server.reset()
    appends.gate(2).touch()
    with appends.start(how, sinks="once") as process:
        log, _ = process.communicate(timeout=120)
        assert process.returncode == 0, log
    assert appends.rows() == ONCE
    assert "twice" not in log


@pytest.mark.parametrize("how", thinned(["files", "jdbc"], 2))
def test_what_was_written_is_known_in_an_outage(remote: tuple[Appends, FaultyServer], how: str) -> None:
    """A retry comes to its append while its events wait for the store: it waits as well, and then looks whether an
    earlier attempt has written it. Files are not added again, and with ``unknown_sinks=fail`` nothing else is.
    """
    appends, server = remote
    options = {"sinks": "once", "unknown_sinks": "fail", "ownership_timeout": "2min"}
    for name in (appends.gate(1), f"{appends.gate(1)}.second", f"{appends.gate(1)}.fails"):
        Path(name).touch()
    with appends.start(how, "noted_append.py", **options) as first:
        log, _ = first.communicate(timeout=120)
        assert "it fails at its end" in log
    with appends.start(how, "noted_append.py", **options) as process:
        server.fault = lambda request: Drop()
        runs_out = time.monotonic() + 4
        appends.gate(2).touch()
        log = ""
        for line in process.stdout or ():
            log += line
            if "Cannot write to the event store" in line:
                wait_until(lambda: time.monotonic() > runs_out, "the lease to run out")
                Path(f"{appends.gate(2)}.second").touch()
            if "the write waits" in line:
                server.reset()
        process.wait(timeout=120)
    assert "the write waits" in log
    if how == "files":
        assert process.returncode == 0, log
        assert appends.rows() == ONCE, log
    else:
        assert process.returncode == EXIT_FAILED, log
        assert "sink jdbc table added of a database: attempt 1 has written it. Writing it again may duplicate" in log


def test_a_script_does_not_go_on_behind_a_write_whose_driver_was_replaced(remote: tuple[Appends, FaultyServer]) -> None:
    """Paused while it records the end of its write, for longer than its lease: the store has the record, the rows stay,
    and the driver ends as soon as it wakes.
    """
    appends, server = remote
    paused = threading.Event()
    with appends.start(sinks="once") as process:

        def pause(request: Request) -> Fault | None:
            recorded = request.method == "PUT" and "/heartbeats/" not in request.path
            if recorded and (appends.target / "_SUCCESS").exists() and not paused.is_set():
                signal_tree(process, signal.SIGSTOP)
                paused.set()
            return None

        server.fault = pause
        appends.gate(1).touch()
        assert paused.wait(60)
        runs_out = time.monotonic() + 4
        wait_until(lambda: time.monotonic() > runs_out, "the lease to run out")
        assert cancel(appends.store, appends.prefix, 1) is not None
        signal_tree(process, signal.SIGCONT)
        log, _ = process.communicate(timeout=120)
        assert process.returncode == EXIT_FENCED, log
    assert not Path(f"{appends.gate(1)}.went-on").exists()
    assert appends.rows() == ONCE


@pytest.mark.parametrize("paused", ["driver", pytest.param("driver and JVM", marks=pytest.mark.walk)])
def test_tasks_of_a_replaced_driver_commit_nothing(appends: Appends, paused: str) -> None:
    """Where tasks move their files into place by themselves (Hadoop's algorithm 2): the JVM of a driver that is paused
    goes on, or wakes up first, and its tasks commit only as long as the lease lasts.
    """
    with appends.start("df", "held_append.py", sinks="once") as old:
        wait_until(lambda: len(appends.rows()) == 33, "two tasks to commit")
        appends.elsewhere(1)
        pids = process_tree(old.pid) if paused == "driver and JVM" else [old.pid]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        appends.gate(2).touch()
        with appends.start("df", "held_append.py", sinks="once") as new:
            log, _ = new.communicate(timeout=120)
            assert new.returncode == 0, log
        assert appends.rows() == ONCE
        appends.gate(1).touch()
        if paused == "driver":
            marks = [Path(f"{appends.gate(1)}.{number}") for number in (2, 3)]
            wait_until(lambda: all(mark.exists() for mark in marks), "the tasks that waited to compute their rows")
        for pid in reversed(pids):
            signal_quietly(pid, signal.SIGCONT)
        log, _ = old.communicate(timeout=60)
        assert old.returncode == EXIT_FENCED, log
    assert appends.rows() == ONCE


def test_an_rdd_is_not_written_by_a_driver_that_is_cut_off(
    remote: tuple[Appends, FaultyServer], moto: S3Server
) -> None:
    """An RDD's writer asks nobody before it commits, and clears away what is pending of others: its tasks do not end
    while nobody can tell whether the driver was replaced.
    """
    appends, server = remote

    def written() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in appends.target.glob("part-*")}

    with appends.start("rdd", "held_append.py", sinks="once") as old:
        wait_until(lambda: len([*appends.target.rglob("task_*/part-*")]) == 2, "two tasks to commit")
        appends.elsewhere(1)
        server.fault = lambda request: Drop()
        appends.driver.storage = {**appends.driver.storage, "endpoint-url": moto.endpoint}
        appends.gate(2).touch()
        with appends.start("rdd", "held_append.py", sinks="once") as new:
            log, _ = new.communicate(timeout=120)
            assert new.returncode == 0, log
        before = written()
        appends.gate(1).touch()
        marks = [Path(f"{appends.gate(1)}.{number}") for number in (4, 5)]
        wait_until(lambda: all(mark.exists() for mark in marks), "tasks that begin now to compute their rows")
        with pytest.raises(AssertionError, match="not within"):
            wait_until(lambda: written() != before, "the replaced driver to write", timeout=5)
        server.reset()
        log, _ = old.communicate(timeout=60)
        assert old.returncode == EXIT_FENCED, log
    assert written() == before
    assert sorted(int(line) for path in appends.target.glob("part-*") for line in path.read_text().split()) == ONCE


@pytest.mark.parametrize("starts", thinned(["python", "spark-submit"], 2))
def test_a_fenced_driver_ends_although_its_jvm_is_paused(appends: Appends, starts: str) -> None:
    """It ends the JVM by a signal and does not ask it: within seconds both are gone, whichever started the other."""
    if starts == "spark-submit":
        appends.driver = Submitted(appends.driver.folder, appends.driver.event_store)
    with appends.start() as process:
        jvm = the_jvm(process.pid)
        os.kill(jvm, signal.SIGSTOP)
        began = time.monotonic()
        assert cancel(appends.store, appends.prefix, 1) is not None
        log, _ = process.communicate(timeout=120)
        assert time.monotonic() - began < 10
        assert process.returncode == (EXIT_FENCED if starts == "python" else -signal.SIGKILL), log
        assert "Attempt 1 is fenced: attempt 2 owns " in log
        assert not is_alive(jvm)
        claim = appends.claim(1)
        assert claim is not None
        wait_until(lambda: process_is_gone(claim), "the driver to end", timeout=60)
        assert b"FENCED" in appends.store.get(heartbeat_key(appends.prefix, 1))
    assert appends.rows() == []


@pytest.mark.parametrize(
    "paused",
    thinned(["JVM of a dead driver", "driver and JVM", "driver of spark-submit and JVM"], 3),
)
def test_what_is_left_of_a_driver_on_this_machine_is_ended_before_it_is_replaced(appends: Appends, paused: str) -> None:
    """A driver that was paused, and a JVM whose driver was killed, are ended before the next attempt begins."""
    if "spark-submit" in paused:
        appends.driver = Submitted(appends.driver.folder, appends.driver.event_store)
    with appends.start() as old:
        claim = appends.claim(1)
        assert claim is not None
        jvm = the_jvm(old.pid)
        if paused != "JVM of a dead driver":
            signal_tree(old, signal.SIGSTOP)
        else:
            os.kill(jvm, signal.SIGSTOP)
            os.kill(old.pid, signal.SIGKILL)
        appends.gate(1).touch()
        appends.gate(2).touch()
        with appends.start() as new:
            log, _ = new.communicate(timeout=120)
            assert new.returncode == 0, log
        old.wait(timeout=60)
        assert [pid for pid in (claim.pid, jvm) if is_alive(pid)] == []
    assert appends.rows() == ONCE


def the_jvm(pid: int) -> int:
    """The JVM that a driver has started."""
    jvms = [child for child in process_tree(pid) if name_of(child) == "java"]
    assert len(jvms) == 1
    return jvms[0]


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
