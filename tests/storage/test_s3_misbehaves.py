"""S3 misbehaves under a whole job: the result is right, or there is one clear error; requests stay bounded.

A proxy in front of a real server does the harm. What single requests do about it is shown in ``test_s3_retries.py`` and
``test_s3_errors.py``; here a job runs through, with everything that a driver does but Spark's part (``plain_driver``).
"""

from __future__ import annotations

import time
from collections import Counter

import pytest

from airflow_provider.core.errors import RecoveryError
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.s3 import s3_client
from tests.storage.conftest import ACCESS
from tests.storage.plain_driver import JOB, PARTITIONS, VERTICES, is_right
from tests.storage.s3_faults import FAST
from tests.storage.s3_job import Job, every, since
from tests.support.http_faults import Answer, BreakOff, Drop, Fault, LoseAnswer, Request, Stall
from tests.support.parameters import each_value

pytestmark = pytest.mark.process


@pytest.mark.few(2)
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
    graph = JobEventLog(job.store(), JOB.prefix).replay().graph
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


@pytest.mark.few(1)
@pytest.mark.parametrize("done", [False, True], ids=["before it is done", "after it is done"])
def test_no_answer(job: Job, quiet: int, done: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes each tenth request and says nothing: the client gives up after its time-out and asks again."""
    monkeypatch.setattr(s3_client, "READ_TIMEOUT", 0.2)
    job.session = ACCESS.session()  # whose clients are new, and so have that time-out
    job.proxy.fault = every(10, Stall(done))
    began = time.monotonic()
    assert is_right(job.run())
    assert time.monotonic() - began < 20
    assert len(job.proxy.requests) <= 3 * quiet


@pytest.mark.few(1)
@each_value(code=["ExpiredToken", "InvalidAccessKeyId", "AccessDenied"], after=[1, 8, 20, 30])
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


@pytest.mark.few(1)
@each_value(after=[1, 20], fault={"500": Answer(500, "InternalError"), "reset": Drop()})
def test_the_store_is_gone_for_good(job: Job, fault: Fault, after: int) -> None:
    """Each request is repeated as often as the retry policy says, and the job asks no more when recording has ended."""
    job.proxy.fault = since(after, fault)
    result = job.outcome()
    assert isinstance(result, RecoveryError) or is_right(result)
    # The heart beats all the while, and looks at the next claim: a slow machine's time says how often.
    beats = [request for request in job.proxy.requests if "/heartbeats/" in request.target or is_look(request)]
    # Every partition that is left is tried once, and the record and the claim look, too.
    assert len(job.proxy.requests) - len(beats) <= after + FAST.attempts * (2 * PARTITIONS * len(VERTICES) + 10)
    written = Counter(request.target for request in job.proxy.requests if request.method == "PUT")
    assert all(times <= FAST.attempts for target, times in written.items() if "/partitions/" in target)


def is_look(request: Request) -> bool:
    """Whether somebody asks if there is a newer claim."""
    return request.method == "HEAD" and "/claims/" in request.target
