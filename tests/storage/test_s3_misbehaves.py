"""S3 misbehaves under a whole job: the result is right, or there is one clear error; requests stay bounded.

A proxy in front of a real server does the harm. What single requests do about it is shown in ``test_s3_retries.py`` and
``test_s3_errors.py``; here a job runs through, with everything that a driver does but Spark's part (``plain_driver``).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.recovery.errors import RecoveryError
from airflow_provider.storage.event_store import JobEventLog
from airflow_provider.storage.s3 import S3ObjectStore
from tests.storage.conftest import BUCKET
from tests.storage.plain_driver import JOB, PARTITIONS, VERTICES, Rows, is_right, request_for, run_job
from tests.storage.s3_faults import FAST
from tests.support.http_faults import Answer, BreakOff, Drop, Fault, FaultyServer, LoseAnswer, Request
from tests.support.s3_gateway import S3Server

pytestmark = pytest.mark.process

TIMEOUT = "300 ms"
"""How long the heartbeat of an attempt that could not say how it ended is watched; every such test waits for it."""


@dataclass
class Job:
    """One job behind the proxy."""

    proxy: FaultyServer
    folder: Path
    prefix: str

    @property
    def log(self) -> Path:
        """One line for each partition that was computed."""
        return self.folder / "computed"

    def store(self) -> S3ObjectStore:
        return S3ObjectStore(BUCKET, self.prefix, self.request().storage, retry=FAST)

    def request(self) -> Any:
        options = {"endpoint_url": self.proxy.endpoint, "region": "us-east-1"}
        return request_for(f"s3://{BUCKET}/{self.prefix}", options, TIMEOUT)

    def run(self) -> Rows:
        return run_job(self.store(), self.request(), self.log)

    def ends_well(self) -> bool:
        """Whether another attempt has the right result, or finds that the job has succeeded already."""
        rows = self.run()
        return not rows or is_right(rows)

    def outcome(self) -> Rows | RecoveryError:
        """What an attempt returns, or the error that it fails with, which has to be one clear line with a remedy."""
        try:
            return self.run()
        except RecoveryError as error:
            failure = error
        assert failure.remedy
        assert "\n" not in str(failure)
        return failure


@pytest.fixture
def job(proxy: FaultyServer, tmp_path: Path) -> Iterator[Job]:
    yield Job(proxy, tmp_path, f"misbehaves/{uuid.uuid4().hex}")
    proxy.reset()


_counted: list[int] = []


@pytest.fixture
def quiet(proxy: FaultyServer, tmp_path: Path) -> int:
    """How many requests a job makes that nobody harms; counted once."""
    if not _counted:
        job = Job(proxy, tmp_path, f"misbehaves/{uuid.uuid4().hex}")
        assert is_right(job.run())
        _counted.append(len(proxy.requests))
        proxy.reset()
        job.log.unlink()
    return _counted[0]


def every(nth: int, fault: Fault, method: str = "", part: str = "") -> Callable[[Request], Fault]:
    """A fault that strikes each *nth* request that fits."""
    lock, seen = threading.Lock(), [0]

    def decide(request: Request) -> Fault:
        if method not in {"", request.method} or part not in request.target:
            return None
        with lock:
            seen[0] += 1
            return fault if seen[0] % nth == 0 else None

    return decide


def since(nth: int, fault: Fault) -> Callable[[Request], Fault]:
    """A fault that strikes the *nth* request and all that follow."""
    lock, seen = threading.Lock(), [0]

    def decide(request: Request) -> Fault:
        with lock:
            seen[0] += 1
            return fault if seen[0] >= nth else None

    return decide


@pytest.mark.parametrize(
    ("fault", "method"),
    [
        (Answer(500, "InternalError"), ""),
        (Answer(503, "SlowDown"), ""),
        (Answer(409, "ConditionalRequestConflict"), "PUT"),
        (Answer(409, "OperationAborted"), "PUT"),
        (Answer(400, "RequestTimeout"), "PUT"),
        (Drop(), ""),
        (LoseAnswer(), "PUT"),
        (BreakOff(10), "GET"),
    ],
    ids=[
        "500",
        "503 SlowDown",
        "409 conflict",
        "409 aborted",
        "time-out",
        "reset",
        "lost answer of a PUT",
        "reset within a body",
    ],
)
def test_each_third_request_fails(job: Job, quiet: int, fault: Fault, method: str) -> None:
    """The whole job goes through, everything is recorded, and each failure costs one request more."""
    job.proxy.fault = every(3, fault, method)
    assert is_right(job.run())
    assert len(job.proxy.requests) <= 3 * quiet
    graph = JobEventLog(job.store(), JOB.prefix).load().replay()
    assert all(vertex.finished for vertex in graph.vertices.values())


def test_412_for_a_put_of_our_own(job: Job, quiet: int) -> None:
    """A create-only PUT whose answer was lost is refused when it is repeated: it is recognised by its content."""
    job.proxy.fault = every(2, LoseAnswer(), "PUT", "/events/")
    assert is_right(job.run())
    assert len(job.proxy.requests) <= 3 * quiet


@pytest.mark.parametrize("folder", ["claims", "events", "partitions"])
def test_412_for_everything(job: Job, quiet: int, folder: str) -> None:
    """A store that refuses every create-only PUT: one clear error, or the job goes on; and nobody asks without end."""
    job.proxy.fault = lambda r: Answer(412, "PreconditionFailed") if r.method == "PUT" and folder in r.target else None
    result = job.outcome()
    if isinstance(result, RecoveryError):
        assert folder in ("claims", "events"), result
    else:
        assert is_right(result)
    assert len(job.proxy.requests) <= 3 * quiet


def test_slow_answers(job: Job, quiet: int) -> None:
    """They cost time and nothing else."""

    def slow(request: Request) -> Fault:
        time.sleep(0.02)
        return None

    job.proxy.fault = slow
    assert is_right(job.run())
    assert len(job.proxy.requests) <= 3 * quiet


@pytest.mark.parametrize("after", [1, 8, 20, 30])
@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidAccessKeyId", "AccessDenied"])
def test_credentials_expire(job: Job, quiet: int, code: str, after: int, caplog: pytest.LogCaptureFixture) -> None:
    """From any moment on: one clear error, or the job goes on unrecorded; with good ones again the job resumes."""
    status = 400 if code == "ExpiredToken" else 403
    job.proxy.fault = since(after, Answer(status, code))
    result = job.outcome()
    if not isinstance(result, RecoveryError):
        assert is_right(result)
        assert "The job goes on without recording" in caplog.text
    assert len(job.proxy.requests) <= 3 * quiet
    job.proxy.reset()
    assert job.ends_well()


@pytest.mark.parametrize("fault", [Answer(500, "InternalError"), Drop()], ids=["500", "reset"])
@pytest.mark.parametrize("after", [1, 20])
def test_the_store_is_gone_for_good(job: Job, fault: Fault, after: int) -> None:
    """Each request is repeated as often as the retry policy says, and the job asks no more when recording has ended."""
    job.proxy.fault = since(after, fault)
    result = job.outcome()
    assert isinstance(result, RecoveryError) or is_right(result)
    # Every partition that is left is tried once, and the record, the heartbeat and the claim look, too.
    assert len(job.proxy.requests) <= after + FAST.attempts * (2 * PARTITIONS * len(VERTICES) + 10)


EMPTY = '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><KeyCount>0</KeyCount></ListBucketResult>'


def from_partition(nth: int) -> Callable[[Request], Fault]:
    """Refuse the PUT of the *nth* partition and everything that comes after it."""
    lock, seen = threading.Lock(), [0]

    def decide(request: Request) -> Fault:
        with lock:
            seen[0] += request.method == "PUT" and "/partitions/" in request.target
            return Answer(403, "AccessDenied") if seen[0] >= nth else None

    return decide


def interrupted(job: Job) -> None:
    """An attempt that dies in the middle of the last vertex: the store refuses all that comes later."""
    job.proxy.fault = from_partition(3 * PARTITIONS + 3)
    job.outcome()
    job.proxy.reset()


@pytest.mark.parametrize("folder", ["claims", "events", "snapshots", "partitions", "heartbeats"])
def test_a_stale_listing(job: Job, quiet: int, folder: str) -> None:
    """A listing that shows nothing of what is there costs computing again; create-only objects keep the order."""
    interrupted(job)
    quoted = f"%2F{folder}%2F"
    job.proxy.fault = lambda r: Answer(200, text=EMPTY) if "list-type=2" in r.query and quoted in r.target else None
    result = job.outcome()
    if isinstance(result, RecoveryError):
        assert folder in ("claims", "events"), result  # nobody can tell who owns the job
    else:
        assert is_right(result)
    assert len(job.proxy.requests) <= 6 * quiet
    job.proxy.reset()
    assert job.ends_well()


@pytest.mark.parametrize("harm", ["truncated", "changed", "deleted"])
@pytest.mark.parametrize("folder", ["events", "snapshots", "partitions", "heartbeats"])
def test_objects_are_harmed_between_two_attempts(job: Job, quiet: int, moto: S3Server, folder: str, harm: str) -> None:
    """Whatever object it is, the next attempt ends with the right result."""
    interrupted(job)
    client = moto.session().client("s3", endpoint_url=moto.endpoint)
    page = client.list_objects_v2(Bucket=BUCKET, Prefix=f"{job.prefix}/{JOB.prefix}/{folder}/")
    keys = [entry["Key"] for entry in page.get("Contents", [])]
    assert keys
    for key in keys[1::2] or keys:
        body = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        if harm == "deleted":
            client.delete_object(Bucket=BUCKET, Key=key)
        else:
            half = len(body) // 2
            changed = body[:half] if harm == "truncated" else body[:half] + b"\xff" + body[half + 1 :]
            client.put_object(Bucket=BUCKET, Key=key, Body=changed)
    assert is_right(job.run())
    assert len(job.proxy.requests) <= 3 * quiet
