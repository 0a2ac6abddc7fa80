"""A job behind a proxy that harms its requests to S3, and the ways in which it does."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import boto3

from airflow_provider.core.errors import RecoveryError
from airflow_provider.core.run_request import RunRequest
from airflow_provider.storage.s3.s3_store import S3ObjectStore
from tests.storage.conftest import BUCKET
from tests.storage.plain_driver import PARTITIONS, Rows, is_right, request_for, run_job
from tests.storage.s3_faults import FAST
from tests.support.http_faults import Answer, Fault, FaultyServer, Request

TIMEOUT = "300 ms"
"""How long the heartbeat of an attempt that could not say how it ended is watched; every such test waits for it."""


@dataclass
class Job:
    """One job behind the proxy."""

    proxy: FaultyServer
    folder: Path
    prefix: str
    session: boto3.Session | None = None

    @property
    def log(self) -> Path:
        """One line for each partition that was computed."""
        return self.folder / "computed"

    def store(self) -> S3ObjectStore:
        return S3ObjectStore(BUCKET, self.prefix, self.request().storage, session=self.session, retry=FAST)

    def request(self) -> RunRequest:
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


def every(nth: int, fault: Fault, method: str = "", part: str = "") -> Callable[[Request], Fault]:
    """A fault that strikes each *nth* request that fits, but none so often that its client gives up."""
    lock, seen = threading.Lock(), [0]
    struck: Counter[tuple[str, str]] = Counter()

    def decide(request: Request) -> Fault:
        if method not in {"", request.method} or part not in request.target:
            return None
        with lock:
            seen[0] += 1
            key = (request.method, request.target)
            if seen[0] % nth or struck[key] == FAST.attempts - 1:
                struck[key] = 0
                return None
            struck[key] += 1
            return fault

    return decide


def since(nth: int, fault: Fault) -> Callable[[Request], Fault]:
    """A fault that strikes the *nth* request and all that follow."""
    lock, seen = threading.Lock(), [0]

    def decide(request: Request) -> Fault:
        with lock:
            seen[0] += 1
            return fault if seen[0] >= nth else None

    return decide


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
