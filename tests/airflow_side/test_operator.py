"""Tries of a task with real drivers: what the operator attaches to, resumes, starts afresh, and refuses."""

from __future__ import annotations

import fcntl
import functools
import http.server
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from airflow_provider.core.options import INTEGRITY_SECRET
from airflow_provider.storage.claims import Claim, Claims, process_is_gone
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.private_files import private_folder
from tests.airflow_side.conftest import Tries, xcom
from tests.support.driver import JOBS
from tests.support.serving import serving
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.integration]


def rows(tries: Tries) -> int:
    return int(pq.read_table(tries.folder / "out").num_rows)


def test_kill_resume_clear(tries: Tries) -> None:
    """A killed try is resumed by the next; then the task is green, and clearing it starts afresh."""
    code, log = tries.run(env_vars={"SPARK_RECOVERY_FAULT": "after-partition-event@3"})
    assert code != 0
    assert "Kept for the next try" in log

    code, log = tries.run()
    assert code == 0, log
    report = xcom(log)
    totals = next(vertex for vertex in report["vertices"] if vertex["name"] == "totals")
    assert totals["reused"] >= 3
    assert totals["reused"] + totals["computed"] == 6
    assert [attempt["state"] for attempt in report["attempts"]] == ["LOST", "FINISHED"]
    assert report["partitions_reused"] == totals["reused"]
    assert rows(tries) == 300
    assert not list((tries.folder / "store").rglob("*.parquet")), "partitions are released after success"

    code, log = tries.run()
    assert code == 0, log
    assert "its task was cleared" in log
    assert xcom(log)["partitions_reused"] == 0
    assert xcom(log)["partitions_computed"] == 10


@pytest.mark.walk
def test_a_failed_task_that_is_cleared_resumes_and_never_starts_afresh_unless_told(
    tries: Tries, tmp_path: Path
) -> None:
    """After a failure of the script the next try reuses what is there; with resume='never' it computes all."""
    script = tmp_path / "failing.py"
    body = Path(tries.task["application"]).read_text()
    flag = tmp_path / "fixed"
    script.write_text(
        body.replace("graded.orderBy", f"import os\nassert os.path.exists({str(flag)!r})\ngraded.orderBy")
    )
    code, log = tries.run(application=str(script))
    assert code != 0
    assert "AirflowException: The Spark job failed in attempt 1: AssertionError. A retry resumes it." in log

    code, log = tries.run(application=str(script), resume="never")
    assert code != 0
    assert "resume is set to 'never'" in log
    assert "10 to compute" not in log
    assert "6 partitions, 0 reused, 6 to compute" in log

    flag.touch()
    code, log = tries.run(application=str(script))
    assert code == 0, log
    assert xcom(log)["partitions_reused"] == 10
    assert xcom(log)["partitions_computed"] == 0


@pytest.fixture
def waiting(tries: Tries, tmp_path: Path) -> Iterator[WaitingDriver]:
    """A driver that waits in mid-job and whose worker has been killed; the worker's successor has attached to it."""
    gate, entered, log = tmp_path / "gate", tmp_path / "entered", tmp_path / "second.log"
    script = tmp_path / "waiting.py"
    body = Path(tries.task["application"]).read_text()
    wait = (
        f"import os, pathlib, time\npathlib.Path({str(entered)!r}).touch()\n"
        f"while not os.path.exists({str(gate)!r}):\n    time.sleep(0.1)\n    print('waiting')\n"
    )
    script.write_text(body.replace("graded = checkpoint", f"{wait}graded = checkpoint"))
    first = tries.start(tmp_path / "first.log", application=str(script))
    second = None
    try:
        wait_until(entered.exists, "the driver to reach the gate")
        claim = Claims(tries.store, tries.job.prefix).newest()
        assert claim is not None
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert not process_is_gone(claim), "the driver lives"
        second = tries.start(log, application=str(script))
        wait_until(lambda: "attaching to it" in log.read_text(), "the second try to attach")
        yield WaitingDriver(claim, second, gate, log)
    finally:
        gate.touch()
        for worker in (first, second):
            if worker is not None and worker.poll() is None:
                worker.kill()
                worker.wait()


@dataclass(frozen=True)
class WaitingDriver:
    claim: Claim
    worker: subprocess.Popen[bytes]
    gate: Path
    worker_log: Path


@pytest.mark.walk
def test_the_package_of_a_driver_stays_when_its_worker_is_gone(waiting: WaitingDriver) -> None:
    """Its executors fetch it as long as it runs: the driver itself holds the folder, so that nobody sweeps it."""
    opened = [os.readlink(link) for link in Path(f"/proc/{waiting.claim.pid}/fd").iterdir() if link.is_symlink()]
    ours = [path for path in opened if path.startswith(f"{private_folder()}/")]
    (held,) = [path for path in ours if (Path(path) / "airflow_provider_driver.zip").is_file()]
    descriptor = os.open(held, os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)


@pytest.mark.walk
def test_a_worker_dies_and_the_next_try_attaches_to_its_driver(tries: Tries, waiting: WaitingDriver) -> None:
    """The worker is killed, the driver lives on as an orphan: the retry follows it and submits nothing."""
    waiting.gate.touch()
    assert waiting.worker.wait(timeout=120) == 0, waiting.worker_log.read_text()
    log = waiting.worker_log.read_text()
    assert "Spark-Submit cmd" not in log
    assert "'graded': finished" in log, "progress is told"
    assert xcom(log)["state"] == "FINISHED"
    assert len(xcom(log)["attempts"]) == 1
    newest = Claims(tries.store, tries.job.prefix).newest()
    assert newest == waiting.claim
    assert rows(tries) == 300


@pytest.mark.walk
def test_a_driver_that_is_lost_while_a_try_follows_it_is_replaced_in_the_same_try(
    tries: Tries, waiting: WaitingDriver
) -> None:
    """The followed driver is killed: the same try resumes, and computes only what is missing."""
    os.kill(waiting.claim.pid, signal.SIGKILL)
    waiting.gate.touch()
    assert waiting.worker.wait(timeout=120) == 0, waiting.worker_log.read_text()
    assert "resuming; attempt 1 was lost" in waiting.worker_log.read_text()
    report = xcom(waiting.worker_log.read_text())
    assert [attempt["state"] for attempt in report["attempts"]] == ["LOST", "FINISHED"]
    assert (report["partitions_reused"], report["partitions_computed"]) == (6, 4)
    assert rows(tries) == 300


@pytest.mark.walk  # tests/end_to_end/test_real_airflow.py marks a task failed under a scheduler
def test_ending_a_task_ends_the_driver_it_has_attached_to(tries: Tries, waiting: WaitingDriver) -> None:
    """A task marked failed does not leave the application running, though another worker had started it."""
    waiting.worker.send_signal(signal.SIGTERM)
    assert waiting.worker.wait(timeout=60) != 0
    assert process_is_gone(waiting.claim)
    assert "sending SIGTERM" in waiting.worker_log.read_text()
    assert not (tries.folder / "out").exists()


@pytest.mark.walk
def test_a_script_in_a_remote_store(tries: Tries) -> None:
    """A script behind a URL is fetched by spark-submit and found by the runner."""
    with serving(functools.partial(http.server.SimpleHTTPRequestHandler, directory=JOBS)) as url:
        code, log = tries.run(application=f"{url}/two_vertices.py")
    assert code == 0, log
    assert xcom(log)["partitions_computed"] == 10
    assert rows(tries) == 300


def test_finished_unseen(tries: Tries) -> None:
    """The driver had finished but no worker saw it: the next try succeeds at once and submits nothing."""
    code, log = tries.run(env_vars={"SPARK_RECOVERY_FAULT": "after-job-finished"})
    assert code != 0
    code, log = tries.run()
    assert code == 0, log
    assert "succeeded already" in log
    assert "Spark-Submit cmd" not in log
    assert xcom(log)["partitions_computed"] == 10


@pytest.mark.walk
def test_disabled_is_plain_spark_submit(tries: Tries) -> None:
    """With enabled=false the script is submitted as it is and nothing is recorded."""
    code, log = tries.run(recovery_options={"enabled": False})
    assert code == 0, log
    assert "spark_recovery_runner" not in log
    assert not JobEventLog(tries.store, tries.job.prefix).read().events
    assert rows(tries) == 300


def test_a_configuration_error_of_the_driver_fails_the_task_without_retries(tries: Tries) -> None:
    """The driver's exit code 2 becomes AirflowFailException with the driver's own line."""
    code, log = tries.run(application_args=["only-one"], conf={"spark.ui.enabled": "false"})
    assert code != 0
    assert "AirflowFailException" not in log, "a failing script may be retried"
    code, log = tries.run(env_vars={INTEGRITY_SECRET: "short"})
    assert code != 0
    assert "AirflowFailException: The integrity secret has less than" in log
    assert "Make one: python -c" in log
