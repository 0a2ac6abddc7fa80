"""The policy of docs/operating.md is enough, and no action of it is too many. Ceph's gateway enforces it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import boto3
import pytest

from airflow_provider.core.errors import AccessDenied, RecoveryError
from airflow_provider.core.options import RecoveryOptions, StorageOptions
from airflow_provider.storage.checks import check_store
from airflow_provider.storage.garbage import collect
from airflow_provider.storage.s3.s3_store import S3ObjectStore
from tests.storage.plain_driver import LARGE, is_right, request_for, run_job
from tests.storage.s3_faults import FAST
from tests.support.s3_gateway import S3Server, another_user

pytestmark = pytest.mark.process

BUCKET = "permissions"
OPERATING = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
POLICY, LIFECYCLE = (
    json.loads(block.replace("my-bucket", BUCKET)) for block in re.findall(r"```json\n(.*?)```", OPERATING, re.DOTALL)
)
ACTIONS = [action for statement in POLICY["Statement"] for action in statement["Action"]]


class Guest:
    """A user who may do what a policy says, and who may not."""

    def __init__(self, server: S3Server) -> None:
        self._owner = server.session().client("s3", endpoint_url=server.endpoint)
        server.create_bucket(BUCKET)
        self._guest = another_user(server, "guest")
        self._options = StorageOptions(endpoint_url=server.endpoint, region="us-east-1")

    def may(self, policy: dict[str, Any]) -> None:
        """Make it the bucket's policy, for this user: the gateway's way of giving a user no more than that."""
        whose = {"Principal": {"AWS": ["arn:aws:iam:::user/guest"]}}
        statements = [{**statement, **whose} for statement in policy["Statement"] if statement["Action"]]
        if any("s3:DeleteObject" in statement["Action"] for statement in statements):
            # Of a batch, the gateway asks whether it may be done to the bucket; the document says so.
            batch = {"Effect": "Allow", "Action": ["s3:DeleteObject"], "Resource": f"arn:aws:s3:::{BUCKET}"}
            statements.append({**batch, **whose})
        self._owner.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps({**policy, "Statement": statements}))

    def store(self, prefix: str) -> S3ObjectStore:
        session = boto3.Session(self._guest.access_key, self._guest.secret_key, region_name="us-east-1")
        return S3ObjectStore(BUCKET, prefix, self._options, session=session, retry=FAST)

    def set_lifecycle(self, rules: dict[str, Any]) -> dict[str, int]:
        """Give the bucket rules; return the days after which something expires, by the rule's id."""
        self._owner.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration=rules)  # type: ignore[arg-type]
        found = self._owner.get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"]
        self._owner.delete_bucket_lifecycle(Bucket=BUCKET)
        return {rule["ID"]: rule["Expiration"]["Days"] for rule in found if "Expiration" in rule}

    def clean(self) -> None:
        for entry in self._owner.list_objects_v2(Bucket=BUCKET).get("Contents", []):
            self._owner.delete_object(Bucket=BUCKET, Key=entry["Key"])
        for upload in self._owner.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []):
            self._owner.abort_multipart_upload(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"])

    def leave_things(self, key: str) -> None:
        """Leave one unfinished upload, and an object that is somebody else's: a writer may read its own in any case."""
        self._owner.put_object(Bucket=BUCKET, Key="spark-recovery/theirs", Body=b"theirs")
        self._owner.create_multipart_upload(Bucket=BUCKET, Key=key)

    def uploads(self) -> int:
        return len(self._owner.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []))


@pytest.fixture(scope="module")
def guest(s3_gateway: S3Server) -> Guest:
    return Guest(s3_gateway)


def use(guest: Guest, folder: Path, *, padding: int = 0) -> list[RecoveryError]:
    """Do all that is ever done to a store, each thing whatever became of the others; return what was refused."""
    refused = []

    def attempt(what: Any) -> None:
        try:
            what()
        except RecoveryError as error:
            refused.append(error)

    store = guest.store("spark-recovery")
    request = request_for(f"s3://{BUCKET}/spark-recovery", {})
    attempt(lambda: check_store(store))
    attempt(lambda: _right(run_job(store, request, folder / "log", padding)))
    attempt(lambda: store.get("theirs"))
    attempt(lambda: store.exists("missing"))
    attempt(lambda: store.abort_uploads("left/"))
    attempt(lambda: collect(store, older_than=0, delete=True, options=RecoveryOptions()))
    return refused


def _right(rows: Any) -> None:
    assert is_right(rows)


def test_the_policy_is_enough(guest: Guest, tmp_path: Path) -> None:
    """For a job with partitions that are uploaded in parts, its release, garbage collection and left uploads."""
    guest.clean()
    guest.may(POLICY)
    guest.leave_things("spark-recovery/left/a")
    assert use(guest, tmp_path, padding=LARGE) == []
    assert guest.uploads() == 0


def test_the_policy_gives_nothing_beside_the_prefix(guest: Guest) -> None:
    """Whoever has it cannot write elsewhere in the bucket."""
    guest.may(POLICY)
    with pytest.raises(AccessDenied):
        guest.store("elsewhere").put("a", b"")


@pytest.mark.parametrize("action", ACTIONS)
def test_no_action_is_too_many(guest: Guest, tmp_path: Path, action: str) -> None:
    """Without it something is refused, in one clear error."""
    guest.clean()
    guest.may(
        {
            **POLICY,
            "Statement": [
                {**statement, "Action": [each for each in statement["Action"] if each != action]}
                for statement in POLICY["Statement"]
            ],
        }
    )
    guest.leave_things("spark-recovery/left/a")
    refused = use(guest, tmp_path)
    assert any(isinstance(error, AccessDenied) for error in refused), refused


def test_the_lifecycle_rules_are_taken_and_outlast_the_retention(guest: Guest) -> None:
    """By a real server; what a rule expires is older than what garbage collection would have deleted."""
    days = guest.set_lifecycle(LIFECYCLE)
    assert list(days) == ["spark-recovery-forgotten-jobs"]
    assert days["spark-recovery-forgotten-jobs"] * 24 * 3600 > RecoveryOptions().retention


def test_the_document_explains_every_action() -> None:
    """The table has each action of the policy and no other."""
    assert sorted(re.findall(r"^\| `(s3:\w+)` \|", OPERATING, re.MULTILINE)) == sorted(ACTIONS)
