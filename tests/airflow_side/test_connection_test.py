"""The *Test* button of the connection form: every step is named, and each fails with its own remedy."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider.hooks.recovery_store import RecoveryStoreHook
from airflow_provider.storage.uris import open_store
from tests.airflow_side.executing import Connect
from tests.support.http_faults import Answer, Fault, FaultyServer, Request
from tests.support.s3_gateway import S3Server

STEPS = ("creating", "create-only", "reading", "listing", "deleting")
DENIED = Answer(403, "AccessDenied", "not allowed")


@pytest.fixture
def proxy(moto: S3Server) -> Iterator[FaultyServer]:
    with FaultyServer(moto.endpoint).running() as server:
        yield server


@pytest.fixture
def button(connect: Connect) -> Callable[[S3Server, str, str], tuple[bool, str]]:
    """Press the button for a connection to a bucket of a server."""

    def press(server: S3Server, endpoint: str, bucket: str) -> tuple[bool, str]:
        extra = {"region_name": "us-east-1", "endpoint_url": endpoint}
        connect("aws_default", "aws", login=server.access_key, password=server.secret_key, extra=extra)
        recovery = {"event_store": f"s3://{bucket}/prefix", "aws_conn_id": "aws_default", "addressing_style": "path"}
        connect("spark_recovery_default", "spark_recovery", extra=recovery)
        return RecoveryStoreHook().test_connection()

    return press


Press = Callable[[S3Server, str, str], tuple[bool, str]]


def works(message: str) -> list[str]:
    """The steps that a message says work."""
    return [step for step in STEPS if f"{step.capitalize()} fails" not in message and step in message.lower()]


def listing(request: Request) -> bool:
    return "list-type" in request.query


def second_put() -> Callable[[Request], bool]:
    seen: list[str] = []

    def decide(request: Request) -> bool:
        if request.method == "PUT":
            seen.append(request.path)
        return request.method == "PUT" and len(seen) == 2

    return decide


@pytest.mark.parametrize(
    ("which", "answer", "failing", "remedy"),
    [
        (lambda request: request.method == "PUT", DENIED, "creating", "Allow s3:PutObject"),
        (second_put(), Answer(501, "NotImplemented"), "create-only", "lacks something that recovery needs"),
        (lambda request: request.method == "GET" and not listing(request), DENIED, "reading", "Allow s3:GetObject"),
        (listing, DENIED, "listing", "Allow s3:ListBucket"),
        (lambda request: request.method == "POST", DENIED, "deleting", "Allow s3:DeleteObject"),
    ],
    ids=STEPS,
)
def test_each_step_fails_with_its_own_remedy(
    moto: S3Server,
    proxy: FaultyServer,
    button: Press,
    which: Callable[[Request], bool],
    answer: Answer,
    failing: str,
    remedy: str,
) -> None:
    """One thing is not allowed: it is named with what to allow, and so is what works."""
    moto.create_bucket("button-tests")

    def fault(request: Request) -> Fault:
        return answer if which(request) else None

    proxy.fault = fault
    fine, message = button(moto, proxy.endpoint, "button-tests")
    assert not fine
    assert message.count(" fails: ") == 1
    assert f"{failing.capitalize()} fails: " in message
    assert "s3://button-tests/prefix" in message
    assert remedy in message
    assert works(message) == ([] if failing == "creating" else [step for step in STEPS if step != failing])


def test_a_store_that_ignores_conditions(moto: S3Server, proxy: FaultyServer, button: Press) -> None:
    """A store that replaces what it was told to create only is refused: two drivers could not be kept apart."""
    moto.create_bucket("button-tests")

    def forget_the_condition(request: Request) -> Fault:
        request.headers = {name: value for name, value in request.headers.items() if name.lower() != "if-none-match"}
        return None

    proxy.fault = forget_the_condition
    fine, message = button(moto, proxy.endpoint, "button-tests")
    assert not fine
    assert "Create-only fails: s3://button-tests/prefix replaced an object" in message
    assert "conditional writes" in message
    assert works(message) == ["creating", "reading", "listing", "deleting"]


def test_several_things_are_told_at_once(moto: S3Server, proxy: FaultyServer, button: Press) -> None:
    """Whoever fixes a policy learns of everything that is missing, not of one thing after the other."""
    moto.create_bucket("button-tests")

    def fault(request: Request) -> Fault:
        return DENIED if listing(request) or request.method == "POST" else None

    proxy.fault = fault
    fine, message = button(moto, proxy.endpoint, "button-tests")
    assert not fine
    assert "Allow s3:ListBucket" in message
    assert "Allow s3:DeleteObject" in message


@pytest.mark.process
@pytest.mark.parametrize(
    ("action", "failing"),
    [
        ("PutObject", "Creating"),
        ("GetObject", "Reading"),
        ("ListBucket", "Listing"),
        ("DeleteObject", "Deleting"),
    ],
)
def test_a_policy_that_lacks_one_action(s3_gateway: S3Server, button: Press, action: str, failing: str) -> None:
    """On a real gateway whose bucket policy denies one action, that action is named."""
    bucket = s3_gateway.create_bucket(f"policy-{uuid.uuid4().hex[:12]}")
    client = s3_gateway.session().client("s3", endpoint_url=s3_gateway.endpoint)
    resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
    deny = {"Effect": "Deny", "Principal": "*", "Action": f"s3:{action}", "Resource": resources}
    client.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [deny]}))
    fine, message = button(s3_gateway, s3_gateway.endpoint, bucket)
    assert not fine
    assert f"{failing} fails: " in message
    assert f"Allow s3:{action}" in message


def test_all_is_well(moto: S3Server, button: Press, tmp_path: Path, connect: Connect) -> None:
    """All five steps are named, on S3 and on files, and nothing is left behind."""
    moto.create_bucket("button-tests")
    text = "Creating, create-only, reading, listing and deleting work in "
    assert button(moto, moto.endpoint, "button-tests") == (True, f"{text}s3://button-tests/prefix")
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": f"file://{tmp_path}/store"})
    connect("spark_default", "spark", host="yarn", extra={"spark-home": "/opt/spark"})  # which Airflow refuses
    assert RecoveryStoreHook().test_connection() == (True, f"{text}file://{tmp_path}/store")
    assert list(open_store(f"file://{tmp_path}/store").list("")) == []
