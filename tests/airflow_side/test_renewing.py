"""Temporary credentials of a driver that outlives its task are renewed as long as it runs, and no longer."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_provider.airflow.aws import AwsAccess
from airflow_provider.airflow.renewing import Loan
from airflow_provider.core.graph import JobState
from airflow_provider.core.options import StorageOptions
from airflow_provider.storage import lent_credentials, private_files
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.lent_credentials import LENT_CREDENTIALS
from airflow_provider.storage.private_files import KEPT, sweep
from airflow_provider.storage.processes import Process, process
from airflow_provider.storage.uris import open_store
from tests.airflow_side.executing import DRIVER, FINISHED, JOB, WAITING, Connect
from tests.airflow_side.worker import TASK_INSTANCE
from tests.support.http_faults import Answer, Fault, FaultyServer, Request, Rewrite
from tests.support.s3_gateway import S3Server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.process

ROLE = "arn:aws:iam::123456789012:role/store"
PERMANENT = {"login": "AKIDPERMANENT", "password": "very/secret/key"}
WORKER = """\
import json, sys
from types import SimpleNamespace
from airflow.providers.common.compat.sdk import TaskDeferred
from airflow_provider.operators.spark_recovery import SparkRecoveryOperator
from airflow_provider.storage import lent_credentials, private_files

lent_credentials.RENEWED_EVERY = 0.2
given = json.loads(sys.argv[1])
operator = SparkRecoveryOperator(task_id="task", **given["task"])
try:
    operator.execute({"ti": SimpleNamespace(**given["ti"], stats_tags={})})
except TaskDeferred:
    print("deferred")
"""


class Aws:
    """S3 and STS of which the role's keys live seconds: each request for keys gives others.

    :ivar given: keys of the role, in the order in which they were given
    :ivar used: keys that requests to S3 were signed with
    :ivar expired: keys that are taken no more
    """

    def __init__(self, server: FaultyServer) -> None:
        self.server = server
        self.given: list[str] = []
        self.used: set[str] = set()
        self.expired: set[str] = set()
        self.refused = 0

    def answer(self, request: Request) -> Fault:
        if b"Action=AssumeRole" in request.body:
            return Rewrite(self._keys)
        signed = re.search(r"Credential=([^/]+)/", request.headers.get("Authorization", ""))
        key = signed[1] if signed else ""
        if key in self.expired:
            self.refused += 1
            return Answer(400, "ExpiredToken")
        self.used.add(key)
        return None

    def _keys(self, body: bytes) -> bytes:
        key = f"ASIA{len(self.given):016d}"
        end = (datetime.now(UTC) + timedelta(seconds=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
        text = re.sub(r"<AccessKeyId>[^<]+<", f"<AccessKeyId>{key}<", body.decode())
        self.given.append(key)
        return re.sub(r"<Expiration>[^<]+<", f"<Expiration>{end}<", text).encode()


@pytest.fixture
def aws(moto: S3Server, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    server = FaultyServer(moto.endpoint)
    made = Aws(server)
    server.fault = made.answer
    with server.running():
        service = {"sts": {"endpoint_url": server.endpoint}, "s3": {"endpoint_url": server.endpoint}}
        extra = {
            "region_name": "us-east-1",
            "role_arn": "arn:aws:iam::123456789012:role/store",
            "service_config": service,
        }
        connect("aws", "aws", **PERMANENT, extra=extra)
        yield made


def folders(tmp_path: Path) -> list[Path]:
    return [*tmp_path.glob("airflow-provider-spark-recovery-*/temporary-*")]


def renewing(output: Path) -> list[Process]:
    """Return the processes that renew keys and print to *output*."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes()
            if b"airflow_provider.airflow.renewing" in command and os.readlink(entry / "fd/2") == str(output):
                assert b"secret" not in command
                found.append(process(int(entry.name)))
        except OSError:
            continue
    return [one for one in found if one is not None]


@pytest.mark.integration
@pytest.mark.parametrize("deferrable", [True, False])
def test_a_driver_that_outlives_its_worker_goes_on_with_renewed_keys(
    aws: Aws,
    moto: S3Server,
    connect: Connect,
    submits: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    deferrable: bool,
) -> None:
    """The worker has deferred its task or was killed, and the keys that it lent have expired: the driver beats and
    finishes with others; with it ends what has renewed them, and nothing is left on the machine.
    """
    uri = f"s3://{moto.create_bucket('renewed')}/{uuid.uuid4().hex}"
    options = StorageOptions(endpoint_url=moto.endpoint, addressing_style="path", region="us-east-1")
    store = open_store(uri, options, session=moto.session())
    extra = {"event_store": uri, "aws_conn_id": "aws", "addressing_style": "path"}
    connect("spark_default", "spark", host="local[2]")
    connect("spark_recovery_default", "spark_recovery", extra=extra)
    monkeypatch.setenv("AIRFLOW__LOGGING__BASE_LOG_FOLDER", str(tmp_path / "logs"))
    gate, script = tmp_path / "gate", tmp_path / "job.py"
    script.write_text("print('hello')\n")
    code = DRIVER.format(end=WAITING.format(gate=str(gate), end=FINISHED))
    code = code.replace("(request.event_store)", "(request.event_store, request.storage)")
    heard = "" if deferrable else "print = lambda *_, **__: None\n"  # nobody reads what spark-submit passes on
    submits(f"import os, time\n{heard}{code}")
    quick = {"previous_worker_recovery_timeout": "3 s"}
    task = {"application": str(script), "recovery_options": quick, "deferrable": deferrable}
    try:
        with subprocess.Popen(
            [sys.executable, "-c", WORKER, json.dumps({"task": task, "ti": TASK_INSTANCE})],
            stdout=(tmp_path / "worker").open("w"),
            stderr=subprocess.STDOUT,
        ) as worker:
            wait_until(lambda: worker.poll() is not None or Claims(store, JOB.prefix).get(1), "the driver to begin", 60)
            if not deferrable:
                worker.kill()
        assert deferrable == (tmp_path / "worker").read_text().endswith("deferred\n")
        lent = {*aws.given}
        assert lent & aws.used
        wait_until(lambda: aws.used - lent - {PERMANENT["login"]}, "the driver to use keys that were given later", 60)
        aws.expired, used = lent, {*aws.used}
        claim = Claims(store, JOB.prefix).get(1)
        assert claim is not None
        driver = Process(claim.pid, claim.pid_started)
        outputs = [*(tmp_path / "logs").rglob("driver-*.log")]
        (beside,) = renewing(outputs[0] if deferrable else Path(os.devnull))
        wait_until(lambda: aws.used - used, "the driver to go on behind the end of the keys that it was lent")
        assert not driver.is_gone()
    finally:
        gate.touch()
    wait_until(driver.is_gone, "the driver to end")
    told = [output.read_text().splitlines() for output in outputs]
    assert told == [["the driver is at work", "the driver ends"]] * deferrable
    newest = JobEventLog(store, JOB.prefix).replay().graph.newest
    assert newest is not None
    assert (newest.state, aws.refused) == (JobState.FINISHED, 0)
    wait_until(beside.is_gone, "what renews the keys to end with the driver")
    assert folders(tmp_path) == []


@pytest.fixture
def driver() -> Iterator[subprocess.Popen[bytes]]:
    """Stands for a driver."""
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as started:
        yield started
        started.kill()


@pytest.fixture
def loan(
    aws: Aws, driver: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Loan, Path]]:
    """What is lent to the driver and renewed, and the file of it; the task's process holds nothing any more."""
    monkeypatch.setattr(lent_credentials, "RENEWED_EVERY", 0.2)
    made = AwsAccess("aws", "spark_recovery_default").loan()
    assert made is not None
    file = Path(made.environment[LENT_CREDENTIALS])
    made.renew_during(driver.pid, tmp_path / "output")
    let_go(file.parent)
    first = file.read_text()
    wait_until(lambda: file.read_text() != first, "the keys to be renewed")
    yield made, file
    assert made.process is not None
    made.process.kill()
    made.process.wait()


@pytest.mark.integration
@pytest.mark.parametrize("ended", ["driver", "renewing"])
def test_nothing_is_left_of_what_was_lent(
    loan: tuple[Loan, Path], driver: subprocess.Popen[bytes], tmp_path: Path, ended: str
) -> None:
    """The driver is killed and waited for by nobody, or the machine ends all processes."""
    made, file = loan
    assert made.process is not None
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    if ended == "driver":
        driver.kill()
    else:
        made.process.terminate()
    made.process.wait(60)
    assert folders(tmp_path) == []


@pytest.mark.integration
def test_what_a_killed_process_leaves_is_swept(loan: tuple[Loan, Path], tmp_path: Path) -> None:
    """A week later, by whoever makes a folder; as long as it renews keys nobody takes them."""
    made, file = loan
    assert made.process is not None
    week_ago = (time.time() - KEPT - 60,) * 2

    os.kill(made.process.pid, signal.SIGSTOP)
    os.utime(file.parent, week_ago)
    sweep(file.parent.parent)
    assert folders(tmp_path) == [file.parent]
    made.process.kill()
    made.process.wait()
    sweep(file.parent.parent)
    assert folders(tmp_path) == []


@pytest.mark.integration
def test_a_role_that_is_refused_is_said_once(aws: Aws, loan: tuple[Loan, Path], tmp_path: Path) -> None:
    """In the driver's output; what was lent stays, and is renewed when the role is given again."""
    _, file = loan
    refused = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not you</Message></Error></ErrorResponse>"
    aws.server.fault = lambda request: Answer(403, text=refused) if b"AssumeRole" in request.body else None
    looks = len(aws.server.requests)
    wait_until(lambda: len(aws.server.requests) > looks + 3, "it to try again")
    kept = file.read_text()
    (line,) = (tmp_path / "output").read_text().splitlines()
    assert line.startswith("The driver's credentials for the event store are not renewed: ")
    assert "AccessDenied" in line
    assert "secret" not in line
    aws.server.fault = aws.answer
    wait_until(lambda: file.read_text() != kept, "the keys to be renewed")


@pytest.mark.parametrize("extra", [{}, {"aws_session_token": "token"}])
def test_keys_that_nobody_can_renew_start_nothing(connect: Connect, extra: dict[str, str]) -> None:
    """Permanent ones, and a session token that stands in the connection, are handed over as they are."""
    connect("aws", "aws", **PERMANENT, extra={"region_name": "us-east-1", **extra})
    assert AwsAccess("aws", "spark_recovery_default").loan() is None


def let_go(folder: Path) -> None:
    """Give back this process's hold, as its end does."""
    os.close(private_files._held.pop(folder))
