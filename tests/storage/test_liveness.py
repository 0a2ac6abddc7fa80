"""Whoever looks at a driver judges it alike, and by what the driver's own claim allows."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider.cli import main as cli
from airflow_provider.core.errors import StoreError
from airflow_provider.core.lease import LONGEST, Lease
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.job.claiming import wait_for_previous
from airflow_provider.job.job_master import JobMaster
from airflow_provider.storage.claims import Claim, Claims, claim_key
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.heartbeat import Heartbeat, heartbeat_key
from airflow_provider.storage.liveness import Life, Liveness
from airflow_provider.storage.partition_store import PartitionStore
from airflow_provider.storage.processes import Process, process
from tests.storage.conftest import PREFIX
from tests.storage.s3_faults import s3_store
from tests.support.http_faults import FaultyServer, Request
from tests.support.small_driver import PARTITIONS, REQUEST, run_vertices
from tests.support.stores import WatchedStore
from tests.support.waiting import wait_until

LOG = logging.getLogger("test")
ELSEWHERE = Claim(1, "owner", "elsewhere", "another", 1, 1, 0.0)


def beat(number: int, state: str = "ALIVE") -> bytes:
    return json.dumps({"beat": number, "owner": "o", "state": state}).encode()


def test_a_driver_is_judged_by_change_alone(files: FileObjectStore) -> None:
    """Unknown at first, alive once it moves, silent after the silence that its claim allows, and its last word."""
    now = [0.0]
    liveness = Liveness(files, PREFIX, ELSEWHERE, clock=lambda: now[0])
    steps: list[tuple[float, bytes | None, Life]] = [
        (0, beat(1), Life.WATCHING),
        (39, beat(1), Life.WATCHING),
        (39, beat(2), Life.ALIVE),
        (78, beat(2), Life.ALIVE),
        (79, beat(2), Life.SILENT),
        (80, None, Life.SILENT),
        (81, b"[damaged", Life.ALIVE),
        (82, beat(3, "FAILED"), Life.STOPPED),
    ]
    for moment, body, life in steps:
        now[0] = moment
        assert liveness.judge(body) is life, moment
    assert liveness.word == "FAILED"


def test_a_slow_store_does_not_make_a_driver_silent(files: FileObjectStore) -> None:
    """What counts is when the look began: the heartbeat may have moved while its answer was on its way."""
    now = [0.0]
    files.put(heartbeat_key(PREFIX, 1), beat(1))
    watched = WatchedStore(files)
    liveness = Liveness(watched, PREFIX, ELSEWHERE, clock=lambda: now[0])
    assert liveness.look() is Life.WATCHING

    def slow(operation: str, key: str) -> None:
        now[0] += 60

    watched.before = slow
    assert liveness.look() is Life.WATCHING
    assert liveness.look() is Life.SILENT


@pytest.mark.parametrize("timeout", [0.001, 1, 60])
def test_nobodys_shorter_setting_counts(files: FileObjectStore, timeout: float) -> None:
    """The claim's lease and one beat at least; an observer may only be more patient."""
    claim = Claims(files, PREFIX).claim(RecoveryOptions(previous_worker_recovery_timeout=12).lease)
    stored = Claims(files, PREFIX).get(1)
    assert stored == claim
    assert (claim.beat_interval, claim.lease) == (4, 12)
    assert Liveness(files, PREFIX, claim, timeout).patience == max(16, timeout)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"beat_interval": 1},
        {"beat_interval": 5, "lease": 1},
        {"beat_interval": "1", "lease": "3"},
        {"beat_interval": 1, "lease": LONGEST + 1},
        {"beat_interval": 0, "lease": 1},
        {"beat_interval": 1, "lease": None},
    ],
)
def test_a_claim_without_a_lease_stays_readable(files: FileObjectStore, told: dict[str, object]) -> None:
    """What earlier releases wrote, and what cannot be a lease, count as the defaults of that time."""
    old = {name: value for name, value in vars(ELSEWHERE).items() if name not in ("beat_interval", "lease", "cancels")}
    files.put_new(claim_key(PREFIX, 1), json.dumps({**old, **told}).encode())
    claim = Claims(files, PREFIX).newest()
    assert claim == ELSEWHERE
    assert claim.terms == Lease(10, 30)
    assert claim.terms.silence == 40


def test_release_leaves_a_driver_alone_that_beats_seldom(
    files: FileObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A time-out of 0.3 s on the command line against a beat of two seconds: refused, and all partitions stay."""
    options = replace(REQUEST.options, previous_worker_recovery_timeout=6.0)
    master = JobMaster(replace(REQUEST, options=options), files, on_fenced=lambda _: None)
    assert master.start()
    run_vertices(master, files, ["a"], tmp_path / "computed")
    line = ["release", "--event-store", files.uri, "--job-id", str(REQUEST.job), "--timeout", "300ms", "--yes"]
    assert cli.main(line) != 0
    assert "Attempt 1 is at work" in capsys.readouterr().err
    (stored,) = PartitionStore(files, REQUEST.job.prefix).survivors().values()
    assert len(stored) == PARTITIONS
    master.failed("by chance")


@pytest.mark.parametrize("beaten_since", [False, True])
def test_what_the_operator_found_lost_is_watched_again_if_it_has_beaten_since(
    files: FileObjectStore, beaten_since: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Between the operator's look and the new driver's claim the old one may have come back to life."""
    caplog.set_level(logging.INFO)
    prefix = REQUEST.job.prefix
    store_elsewhere(files, prefix, Claims(files, prefix).claim(Lease(0.05, 0.15)))
    files.put(heartbeat_key(prefix, 1), beat(7))
    claim = Claims(files, prefix).claim()
    request = replace(REQUEST, supervised=True, previous_lost=1, previous_beat=6 if beaten_since else 7)
    wait_for_previous(request, files, claim)
    assert ("watching its heartbeat" in caplog.text) == beaten_since


def test_an_attempt_that_died_while_it_waited_hides_nobody(
    files: FileObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The second attempt claimed and said at once that it stopped; the third one waits for the first all the same."""
    caplog.set_level(logging.INFO)
    prefix = REQUEST.job.prefix
    store_elsewhere(files, prefix, Claims(files, prefix).claim(Lease(0.05, 0.15)))
    second = Claims(files, prefix).claim()
    Heartbeat(files, prefix, second, 3600, lambda _: None).stop("FAILED")
    wait_for_previous(REQUEST, files, Claims(files, prefix).claim())
    assert "Attempt 1 (process 1 on elsewhere) did not say how it ended" in caplog.text


def store_elsewhere(files: FileObjectStore, prefix: str, claim: Claim) -> None:
    other = replace(claim, host="elsewhere", boot_id="another", pid=1)
    files.put(claim_key(prefix, claim.epoch), json.dumps(vars(other)).encode())


SLEEPER = "import sys, time; sys.stdout.write('up'); sys.stdout.flush(); time.sleep(600)"


@pytest.fixture
def sleeper() -> subprocess.Popen[bytes]:
    """A process that waits."""
    started = subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE)
    assert started.stdout is not None
    started.stdout.read(2)
    return started


def end(started: subprocess.Popen[bytes]) -> None:
    started.kill()
    started.communicate()


def claim_of(files: FileObjectStore, pid: int, started: int) -> Claim:
    return replace(Claims(files, PREFIX).claim(Lease(0.02, 0.06)), pid=pid, pid_started=started)


def test_a_silent_process_of_this_machine_is_ended_even_if_it_is_paused(
    files: FileObjectStore, sleeper: subprocess.Popen[bytes]
) -> None:
    """SIGKILL needs nobody's answer."""
    try:
        os.kill(sleeper.pid, signal.SIGSTOP)
        found = process(sleeper.pid)
        assert found is not None
        liveness = Liveness(files, PREFIX, claim_of(files, found.pid, found.started))
        assert liveness.wait() is Life.SILENT
        assert liveness.end_what_is_left(LOG)
        assert sleeper.wait(60) == -signal.SIGKILL
    finally:
        end(sleeper)


def test_a_process_that_has_got_the_id_of_a_driver_is_never_hit(
    files: FileObjectStore, sleeper: subprocess.Popen[bytes]
) -> None:
    """Neither as the driver's nor as its JVM's, and not our own in any case."""
    try:
        found = process(sleeper.pid)
        assert found is not None
        earlier = Process(found.pid, found.started - 1)
        assert earlier.is_gone()
        assert not earlier.send(signal.SIGTERM)
        assert not Process(found.pid, 0).send(signal.SIGTERM)
        body = {"beat": 1, "state": "ALIVE", "jvm_pid": found.pid, "jvm_started": found.started - 1}
        files.put(heartbeat_key(PREFIX, 1), json.dumps(body).encode())
        liveness = Liveness(files, PREFIX, claim_of(files, found.pid, found.started - 1))
        assert liveness.look() is Life.GONE
        assert liveness.end_what_is_left(LOG)
        assert sleeper.poll() is None
        own = Claims(files, PREFIX).claim()
        Liveness(files, PREFIX, own).end_what_is_left(LOG)
    finally:
        end(sleeper)


def test_the_jvm_of_a_dead_driver_is_ended(files: FileObjectStore, sleeper: subprocess.Popen[bytes]) -> None:
    """The heartbeat names it, so that it is found although its driver is not there any more."""
    try:
        jvm = process(sleeper.pid)
        assert jvm is not None
        claim = Claims(files, PREFIX).claim()
        heartbeat = Heartbeat(files, PREFIX, claim, 3600, lambda _: None, jvm=lambda: jvm)
        heartbeat.start()
        wait_until(lambda: files.exists(heartbeat_key(PREFIX, 1)), "a beat")
        liveness = Liveness(files, PREFIX, replace(claim, pid_started=claim.pid_started - 1))
        assert liveness.look() is Life.GONE
        # The id of the dead driver is that of this process, and would be another one's: nothing happens to that.
        dead = Liveness(files, PREFIX, replace(claim, pid=2**22 - 1))
        assert dead.look() is Life.GONE
        assert dead.end_what_is_left(LOG)
        assert sleeper.wait(60) == -signal.SIGKILL
        heartbeat.stop("FAILED")
    finally:
        end(sleeper)


def test_a_store_that_ignores_create_only_puts_is_refused_at_the_claim(proxy: FaultyServer) -> None:
    """Two drivers would both get epoch 1; the claim is created twice, which only such a store allows."""

    def drop_condition(request: Request) -> None:
        for name in [name for name in request.headers if name.lower() == "if-none-match"]:
            del request.headers[name]

    store = s3_store(proxy.endpoint)
    Claims(store, PREFIX).claim()
    proxy.fault = drop_condition
    with pytest.raises(StoreError, match=r"s3://.* replaced an object although .* use AWS S3") as caught:
        Claims(store, PREFIX).claim()
    assert not caught.value.retryable
