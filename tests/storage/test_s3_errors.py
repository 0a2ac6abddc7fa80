"""One clear error for each thing that can be wrong: it names the thing and the remedy."""

from __future__ import annotations

import json
import logging
import os
import ssl
import subprocess
from pathlib import Path

import boto3
import pytest

from airflow_provider.cli import main as cli
from airflow_provider.core.errors import (
    AccessDenied,
    ConfigurationError,
    StoreError,
    StoreNotFound,
    StoreUnavailable,
)
from airflow_provider.core.options import StorageOptions
from airflow_provider.core.run_request import EXIT_FAILED
from airflow_provider.storage.checks import check_store
from airflow_provider.storage.s3.s3_store import S3ObjectStore
from tests.storage.conftest import BUCKET
from tests.storage.s3_faults import FAST, failed_check, fault_name, s3_store
from tests.support.http_faults import Answer, FaultyServer, Request
from tests.support.s3_gateway import S3Server, free_port


@pytest.mark.parametrize("server", ["moto", pytest.param("gateway", marks=pytest.mark.process)], indirect=True)
def test_a_missing_bucket_is_named_with_the_command_that_creates_it(server: S3Server) -> None:
    """Bucket missing."""
    error = failed_check(s3_store(server.endpoint, "no-such-bucket-here"))
    assert isinstance(error, StoreNotFound)
    assert "'no-such-bucket-here' does not exist" in error.message
    assert "aws s3 mb s3://no-such-bucket-here" in error.remedy
    assert error.ids["bucket"] == "no-such-bucket-here"
    assert error.ids["region"] == "us-east-1"


@pytest.mark.process
@pytest.mark.parametrize(("key", "secret"), [("testaccess", "wrong-secret"), ("nobody", "testsecret")])
def test_wrong_keys_are_denied_and_told(s3_gateway: S3Server, key: str, secret: str) -> None:
    """Access denied with a wrong pair of keys, in every operation, without showing them."""
    s3_gateway.create_bucket(BUCKET)
    store = S3ObjectStore(
        BUCKET, "x", StorageOptions(endpoint_url=s3_gateway.endpoint), session=boto3.Session(key, secret), retry=FAST
    )
    for operation in (
        lambda: check_store(store),
        lambda: store.get("a"),
        lambda: list(store.list("")),
        lambda: store.delete(["a"]),
    ):
        with pytest.raises(AccessDenied) as caught:
            operation()
        assert "Correct the access key and the secret key" in caught.value.remedy
        assert secret not in str(caught.value)


@pytest.mark.process
def test_a_bucket_of_somebody_else_is_denied_with_the_action_to_allow(s3_gateway: S3Server) -> None:
    """A bucket policy that denies one action: the error names bucket, key, operation and that action."""
    bucket = s3_gateway.create_bucket("denied-tests")
    store = s3_store(s3_gateway.endpoint, bucket)
    store.put("a", b"")
    for action, operation, use in (
        ("s3:PutObject", "PutObject", lambda: store.put_new("b", b"")),
        ("s3:GetObject", "GetObject", lambda: store.get("a")),
        ("s3:ListBucket", "ListObjectsV2", lambda: list(store.list(""))),
        ("s3:DeleteObject", "DeleteObject", lambda: store.delete(["a"])),
    ):
        statement = {
            "Effect": "Deny",
            "Principal": "*",
            "Action": action,
            "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        store._client.put_bucket_policy(Bucket=bucket, Policy=policy)
        with pytest.raises(AccessDenied) as caught:
            use()
        assert operation in caught.value.message
        assert f"s3://{bucket}/{store._prefix}" in caught.value.message
        assert f"Allow {action}" in caught.value.remedy
        assert caught.value.ids["bucket"] == bucket
        store._client.delete_bucket_policy(Bucket=bucket)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(301, "PermanentRedirect", headers={"x-amz-bucket-region": "eu-central-1"}),
        Answer(400, "AuthorizationHeaderMalformed", extra="<Region>eu-central-1</Region>"),
        Answer(400, "IllegalLocationConstraintException", headers={"x-amz-bucket-region": "eu-central-1"}),
    ],
    ids=fault_name,
)
def test_the_wrong_region_is_named_with_the_right_one(proxy: FaultyServer, answer: Answer) -> None:
    """Wrong region, as AWS answers it: configured and real region, and the option to set."""
    proxy.fault = lambda request: answer
    error = failed_check(s3_store(proxy.endpoint, region="us-west-2"))
    assert isinstance(error, StoreError)
    assert "us-west-2" in error.message
    assert "eu-central-1" in error.message
    assert error.remedy == "Set the option region to eu-central-1."
    assert error.ids["region"] == "us-west-2"


def test_a_redirect_without_a_region_still_says_what_to_set(proxy: FaultyServer) -> None:
    """Wrong region where the answer does not say which one is right."""
    proxy.fault = lambda request: Answer(301, "PermanentRedirect")
    error = failed_check(s3_store(proxy.endpoint, region="us-west-2"))
    assert "is in another region" in error.message
    assert "Set the option region" in error.remedy


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_an_endpoint_that_only_redirects_is_named(proxy: FaultyServer, status: int) -> None:
    """A web server that sends http to https is neither followed without end nor taken for another region."""
    proxy.fault = lambda request: Answer(status, headers={"Location": "https://elsewhere/"}, text="<html>moved</html>")
    error = failed_check(s3_store(proxy.endpoint))
    assert isinstance(error, StoreError)
    assert f"{proxy.endpoint} redirects" in error.message
    assert "https instead of http" in error.remedy
    assert len(proxy.requests) < 5


@pytest.mark.parametrize("text", ["<html><body>Welcome<br></html>", "<html><body>Back soon<br/></body></html>"])
def test_an_endpoint_that_does_not_speak_s3_is_named(proxy: FaultyServer, text: str) -> None:
    """The address of a web console in place of the API's, or a page of a proxy, also one that reads as XML: it is not
    taken for an empty listing, by which a job would forget what it has written.
    """
    proxy.fault = lambda request: Answer(200, text=text)
    with pytest.raises(StoreUnavailable) as caught:
        list(s3_store(proxy.endpoint).list(""))
    assert proxy.endpoint in caught.value.message
    assert "endpoint_url" in caught.value.remedy


def test_missing_credentials_say_where_they_come_from(
    moto: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No credentials anywhere: the error says what to set, on which side."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    store = S3ObjectStore(BUCKET, "x", StorageOptions(endpoint_url=moto.endpoint, region="us-east-1"))
    with pytest.raises(AccessDenied, match="no usable credentials") as caught:
        check_store(store)
    assert f"s3://{BUCKET}/x/" in caught.value.message
    assert "AWS_ACCESS_KEY_ID" in caught.value.remedy
    assert "aws_conn_id" in caught.value.remedy
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "half")
    with pytest.raises(ConfigurationError, match="missing: AWS_SECRET_ACCESS_KEY"):
        check_store(S3ObjectStore(BUCKET, "x", StorageOptions(endpoint_url=moto.endpoint, region="us-east-1")))


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidToken", "RequestExpired"])
def test_expired_credentials_are_told_apart(proxy: FaultyServer, code: str) -> None:
    """A token that has run out is no missing permission."""
    proxy.fault = lambda request: Answer(403 if code == "RequestExpired" else 400, code)
    error = failed_check(s3_store(proxy.endpoint))
    assert isinstance(error, AccessDenied)
    assert "expired" in error.message
    assert "Renew them" in error.remedy


def test_a_wrong_clock_is_told(proxy: FaultyServer) -> None:
    """RequestTimeTooSkewed is a 403 that no permission cures."""
    proxy.fault = lambda request: Answer(403, "RequestTimeTooSkewed")
    assert failed_check(s3_store(proxy.endpoint)).remedy == "Set this machine's clock."


def test_a_kms_refusal_names_the_option(proxy: FaultyServer) -> None:
    """A key that does not exist or may not be used points to sse_kms_key_id."""
    proxy.fault = lambda request: Answer(400, "KMS.NotFoundException")
    assert "sse_kms_key_id" in failed_check(s3_store(proxy.endpoint, sse="aws:kms")).remedy
    proxy.fault = lambda request: Answer(403, "AccessDenied", "not authorized to perform: kms:GenerateDataKey")
    assert "kms:GenerateDataKey" in failed_check(s3_store(proxy.endpoint, sse="aws:kms")).remedy


def test_an_unreachable_endpoint_is_named() -> None:
    """Nobody listens: a bounded number of tries, then the endpoint and the option."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    error = failed_check(s3_store(endpoint))
    assert isinstance(error, StoreUnavailable)
    assert endpoint in error.message
    assert "endpoint_url" in error.remedy


def test_a_command_that_cannot_reach_the_store_may_be_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    """Its exit code is not that of a typing error."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    line = ["--event-store", "s3://bucket/prefix", "--job-id", "a", "--endpoint-url", endpoint]
    assert cli.main(["inspect", *line]) == EXIT_FAILED
    assert endpoint in capsys.readouterr().err


def test_a_host_that_does_not_resolve_is_named() -> None:
    """A typing error in the endpoint's host name."""
    error = failed_check(s3_store("http://no-such-host.invalid:9000", addressing_style="path"))
    assert isinstance(error, StoreUnavailable)
    assert "no-such-host.invalid" in error.message


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate of 127.0.0.1, and beside it its key."""
    path = tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", tmp_path / "key.pem", "-out", path],
        check=True, capture_output=True,
    )  # fmt: skip
    return path


def test_https_works_with_the_ca_bundle_and_says_so_without(moto: S3Server, certificate: Path) -> None:
    """An unknown CA is no passing failure: no request is sent, and the option is named; with it the store works."""
    moto.create_bucket(BUCKET)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with FaultyServer(moto.endpoint, context).running() as proxy:
        error = failed_check(s3_store(proxy.endpoint))
        assert "No secure connection" in error.message
        assert "CERTIFICATE_VERIFY_FAILED" in error.message
        assert proxy.endpoint in error.message
        assert "ca_bundle" in error.remedy
        assert proxy.requests == []
        check_store(s3_store(proxy.endpoint, ca_bundle=str(certificate)))
        assert proxy.requests


def test_plain_http_spoken_to_a_tls_port_is_bounded(moto: S3Server, certificate: Path) -> None:
    """http:// in place of https://."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with FaultyServer(moto.endpoint, context).running() as proxy:
        error = failed_check(s3_store(proxy.endpoint.replace("https", "http")))
        assert isinstance(error, StoreUnavailable)
        assert "endpoint_url" in error.remedy


def test_a_ca_bundle_that_does_not_exist_is_named(tmp_path: Path) -> None:
    """Said when the store is opened, before any request."""
    with pytest.raises(ConfigurationError, match="does not exist") as caught:
        s3_store("https://127.0.0.1:1", ca_bundle=str(tmp_path / "ca.pem"))
    assert str(tmp_path / "ca.pem") in caught.value.message


def test_a_store_that_ignores_conditions_is_unmasked_by_the_check(proxy: FaultyServer) -> None:
    """A look-alike that overwrites in spite of If-None-Match would let two drivers write: the check refuses it."""

    def ignore(request: Request) -> None:
        for name in [name for name in request.headers if name.lower() == "if-none-match"]:
            del request.headers[name]

    proxy.fault = ignore
    store = s3_store(proxy.endpoint)
    error = failed_check(store)
    assert store.uri in error.message
    assert "conditional writes" in error.remedy
    proxy.fault = lambda request: None
    assert list(store.list("")) == []


def test_a_store_that_does_not_list_is_unmasked_by_the_check(proxy: FaultyServer) -> None:
    """A listing that misses what was just written is no base for finding survivors."""
    empty = "<ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>"
    proxy.fault = lambda request: Answer(200, text=empty) if "list-type" in request.query else None
    assert "does not list" in failed_check(s3_store(proxy.endpoint)).message


def test_logs_hold_no_credentials(proxy: FaultyServer, caplog: pytest.LogCaptureFixture) -> None:
    """Our own log lines never carry a key, not even at the most talkative level."""
    caplog.set_level(logging.DEBUG, logger="airflow_provider")
    proxy.fault = lambda request: Answer(403, "SignatureDoesNotMatch")
    failed_check(s3_store(proxy.endpoint))
    assert "testsecret" not in caplog.text
