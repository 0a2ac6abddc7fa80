"""What S3 holds, or shows, is wrong when the next attempt begins: its result is right, or there is one clear error."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from _pytest.mark import ParameterSet

from airflow_provider.core.errors import RecoveryError
from airflow_provider.core.lease import Lease
from airflow_provider.storage.blocks import decode_block
from airflow_provider.storage.claims import Claim
from tests.storage.conftest import BUCKET
from tests.storage.plain_driver import JOB, is_right
from tests.storage.s3_job import Job, interrupted
from tests.support.http_faults import Fault, Request, Rewrite
from tests.support.s3_gateway import S3Server

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = [pytest.mark.process, pytest.mark.integration]

FOLDERS = ["claims", "events", "snapshots", "partitions", "heartbeats"]
_ENTRY = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)


def cases(kinds: list[str], *, here: list[tuple[str, str]]) -> list[ParameterSet]:
    """Return each kind for each folder: those that differ run *here*, the others with ``make walk``."""
    return [
        pytest.param(folder, kind, marks=() if (folder, kind) in here else pytest.mark.walk)
        for folder in FOLDERS
        for kind in kinds
    ]


class Bucket:
    """What a job has left, seen without the proxy."""

    def __init__(self, moto: S3Server, job: Job) -> None:
        self.client: S3Client = moto.session().client("s3", endpoint_url=moto.endpoint)
        self.prefix = f"{job.prefix}/{JOB.prefix}/"

    def keys(self, folder: str) -> list[str]:
        """The keys of a folder, the one written last at the end."""
        entries = self.client.list_objects_v2(Bucket=BUCKET, Prefix=f"{self.prefix}{folder}/").get("Contents", [])
        return [e["Key"] for e in sorted(entries, key=lambda e: (e["LastModified"], e["Key"]))]

    def get(self, key: str) -> bytes:
        return self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def harm(self, key: str, how: str) -> None:
        body = self.get(key)
        half = len(body) // 2
        if how == "deleted":
            self.client.delete_object(Bucket=BUCKET, Key=key)
        else:
            changed = body[:half] if how == "truncated" else body[:half] + b"\xff" + body[half + 1 :]
            self.client.put_object(Bucket=BUCKET, Key=key, Body=changed)

    def owners(self) -> dict[int, set[str]]:
        """Who wrote blocks, by epoch."""
        owners: dict[int, set[str]] = {}
        for key in self.keys("events"):
            number = int(key.rpartition("/")[2].removesuffix(".jsonl"))
            header = decode_block(self.get(key), JOB.prefix, number).header
            if header is not None:
                owners.setdefault(header.epoch, set()).add(header.owner)
        return owners


@pytest.fixture
def left(moto: S3Server, job: Job) -> Bucket:
    """An attempt has died in the middle of its last vertex, and this is what it has left."""
    interrupted(job)
    return Bucket(moto, job)


def listing(folder: str, change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Request], Fault]:
    """A fault that shows other entries than there are where a folder is listed."""

    def rewrite(body: bytes) -> bytes:
        start, end = body.index(b"<IsTruncated>"), body.index(b"</ListBucketResult>")
        entries = change(_ENTRY.findall(body))
        return body[:start] + _ENTRY.sub(b"", body[start:end]) + b"".join(entries) + body[end:]

    def decide(request: Request) -> Fault:
        return Rewrite(rewrite) if "list-type=2" in request.query and f"%2F{folder}%2F" in request.target else None

    return decide


def check_end(job: Job, left: Bucket, quiet: int, *, may_fail: bool) -> None:
    """The next attempt ends well, or with a clear error if it may; the one after it ends well; no epoch is shared."""
    result = job.outcome()
    if isinstance(result, RecoveryError):
        assert may_fail, result
    else:
        assert is_right(result)
    assert len(job.proxy.requests) <= 4 * quiet
    job.proxy.reset()
    assert job.ends_well()
    assert all(len(owners) == 1 for owners in left.owners().values()), left.owners()


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("folder", "shown"),
    cases(
        ["nothing", "all but the newest", "a deleted one, too"],
        here=[(folder, "nothing") for folder in FOLDERS] + [("events", "all but the newest")],
    ),
)
def test_a_stale_listing(job: Job, left: Bucket, quiet: int, folder: str, shown: str) -> None:
    """What it hides or wrongly shows costs computing again; create-only objects keep the order."""
    keys = left.keys(folder)
    newest = keys[-1].encode()
    if shown == "nothing":
        job.proxy.fault = listing(folder, lambda entries: [])
    elif shown == "all but the newest":
        job.proxy.fault = listing(folder, lambda entries: [e for e in entries if newest not in e])
    else:
        deleted = keys[len(keys) // 2]
        left.harm(deleted, "deleted")
        ghost = (
            f"<Contents><Key>{deleted}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            "<ETag>&quot;0&quot;</ETag><Size>100</Size><StorageClass>STANDARD</StorageClass></Contents>"
        ).encode()
        job.proxy.fault = listing(folder, lambda entries: sorted([*entries, ghost], key=_key))
    # Where the owner of the job, or the end of its events, cannot be seen, nobody may go on.
    check_end(job, left, quiet, may_fail=folder in ("claims", "events"))


def _key(entry: bytes) -> bytes:
    return entry.partition(b"<Key>")[2].partition(b"</Key>")[0]


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("folder", "harm"),
    cases(
        ["truncated", "changed", "deleted"],
        here=[(folder, "deleted") for folder in FOLDERS] + [("events", "changed"), ("partitions", "changed")],
    ),
)
def test_objects_are_harmed_between_two_attempts(
    job: Job, left: Bucket, quiet: int, folder: str, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever object it is, the next attempt ends with the right result, and no epoch ever has two owners."""
    if folder == "claims":  # a claim that cannot be read is watched for the default, 40 s
        monkeypatch.setattr(Claim, "terms", Lease.lasting(0.9))
    keys = left.keys(folder)
    for key in keys[1::2] or keys:
        left.harm(key, harm)
    # With the claim itself gone the epoch is taken twice; the events show that, and the error says so.
    watching = 2 if folder == "claims" else 1
    check_end(job, left, watching * quiet, may_fail=(folder, harm) == ("claims", "deleted"))
