"""What the S3 store does beyond the contract: repetition, parts, settings, and one clear error for each fault."""

from __future__ import annotations

import json
import logging
import os
import ssl
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from airflow_provider.recovery.errors import (
    AccessDenied,
    ConfigurationError,
    ObjectExists,
    RecoveryError,
    StoreError,
    StoreNotFound,
    StoreUnavailable,
)
from airflow_provider.recovery.options import StorageOptions
from airflow_provider.storage.retry import RetryPolicy
from airflow_provider.storage.s3 import S3ObjectStore
from tests.support.http_faults import Answer, BreakOff, Drop, FaultyServer, LoseAnswer, Request, times
from tests.support.s3_gateway import S3Server, free_port

BUCKET = "recovery-tests"
FAST = RetryPolicy(first_pause=0.001, longest_pause=0.01)


@pytest.fixture(scope="module")
def shared_proxy(moto: S3Server) -> Iterator[FaultyServer]:
    moto.create_bucket(BUCKET)
    with FaultyServer(moto.endpoint).running() as server:
        yield server


@pytest.fixture
def proxy(shared_proxy: FaultyServer) -> FaultyServer:
    shared_proxy.reset()
    return shared_proxy


def _store(endpoint: str, bucket: str = BUCKET, *, retry: RetryPolicy | None = FAST, **options: str) -> S3ObjectStore:
    return S3ObjectStore(
        bucket,
        f"tests/{uuid.uuid4().hex}",
        StorageOptions.from_mapping({"endpoint_url": endpoint, "region": "us-east-1", **options}),
        retry=retry,
    )


def _fails(store: S3ObjectStore) -> RecoveryError:
    with pytest.raises(RecoveryError) as caught:
        store.check()
    assert "testsecret" not in str(caught.value)
    return caught.value


def _name(fault: object) -> str:
    return getattr(fault, "code", type(fault).__name__)


# -- repetition -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        Answer(500, "InternalError"),
        Answer(502, "BadGateway"),
        Answer(503, "SlowDown"),
        Answer(503, "ServiceUnavailable"),
        Answer(409, "ConditionalRequestConflict"),
        Answer(400, "RequestTimeout"),
        Answer(429, "TooManyRequests"),
        Drop(),
    ],
    ids=_name,
)
def test_a_passing_failure_is_repeated(proxy: FaultyServer, fault: Answer | Drop) -> None:
    """Every kind of failure that a second request can cure is cured by the third one."""
    store = _store(proxy.endpoint)
    proxy.fault = times(2, fault, "PUT")
    store.put_new("a", b"content")
    assert store.get("a") == b"content"
    assert proxy.count("PUT") == 3


@pytest.mark.parametrize(
    "fault", [Answer(403, "AccessDenied"), Answer(400, "InvalidArgument"), Answer(501, "NotImplemented")], ids=_name
)
def test_a_lasting_failure_is_not_repeated(proxy: FaultyServer, fault: Answer) -> None:
    """One request is enough where the answer would be the same again, and botocore adds none of its own."""
    proxy.fault = lambda request: fault
    with pytest.raises(StoreError):
        _store(proxy.endpoint).put_new("a", b"")
    assert proxy.count("PUT") == 1


def test_repetition_is_bounded_in_number(proxy: FaultyServer) -> None:
    """A server that keeps failing is asked six times, not more: botocore's own retries are off."""
    proxy.fault = lambda request: Answer(503, "SlowDown")
    with pytest.raises(StoreUnavailable) as caught:
        _store(proxy.endpoint).put_new("a", b"")
    assert proxy.count("PUT") == 6
    assert proxy.endpoint in str(caught.value)
    assert "SlowDown" in str(caught.value)
    assert caught.value.retryable


def test_repetition_is_bounded_in_time(proxy: FaultyServer) -> None:
    """No request is sent after the deadline, however many attempts were left."""
    proxy.fault = lambda request: Answer(503, "SlowDown")
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        _store(proxy.endpoint, retry=RetryPolicy(attempts=1000, first_pause=0.05, deadline=0.5)).get("a")
    assert time.monotonic() - began < 1.5
    assert 2 <= proxy.count("GET") < 10


def test_the_default_policy_gives_up_within_half_a_minute() -> None:
    """Six requests, pauses that double with jitter, none later than 15 s; a request waits at most 15 s for bytes."""
    policy = RetryPolicy()
    assert policy.attempts == 6
    longest = sum(min(policy.longest_pause, policy.first_pause * 2**n) + policy.first_pause for n in range(5))
    assert longest < policy.deadline <= 15
    client = _store("http://127.0.0.1:1")._client
    assert client.meta.config.connect_timeout + client.meta.config.read_timeout + policy.deadline <= 35


def test_a_lost_answer_to_a_creation_shows_as_existing_with_our_content(proxy: FaultyServer) -> None:
    """The repeated create-only PUT finds our own object; whoever compares the content knows that it is theirs."""
    store = _store(proxy.endpoint)
    proxy.fault = times(1, LoseAnswer(), "PUT")
    with pytest.raises(ObjectExists):
        store.put_new("a", b"ours")
    assert store.get("a") == b"ours"


def test_a_download_that_breaks_off_is_read_again(proxy: FaultyServer, tmp_path: Path) -> None:
    """An answer whose body ends early counts as no answer."""
    store = _store(proxy.endpoint)
    store.put("a", b"x" * 1000)
    proxy.fault = times(1, BreakOff(10), "GET")
    store.download("a", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"x" * 1000
    proxy.fault = times(1, BreakOff(999), "GET")
    assert store.get("a") == b"x" * 1000


# -- uploads in parts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["moto", pytest.param("gateway", marks=pytest.mark.process)], indirect=True)
def test_large_files_go_up_in_parts_and_small_ones_do_not(server: S3Server, tmp_path: Path) -> None:
    """From 16 MiB on the upload has parts of 8 MiB; below it is one PUT."""
    server.create_bucket(BUCKET)
    with FaultyServer(server.endpoint).running() as proxy:
        store = _store(server.endpoint)
        path = tmp_path / "file"
        path.write_bytes(os.urandom(20 * 2**20))
        store.upload("large", path)
        store.download("large", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == path.read_bytes()
        etag = store._client.head_object(Bucket=BUCKET, Key=store._whole("large"))["ETag"]
        assert etag.strip('"').endswith("-3")
        path.write_bytes(bytes(16 * 2**20 - 1))
        store.upload("small", path)
        assert "-" not in store._client.head_object(Bucket=BUCKET, Key=store._whole("small"))["ETag"]
        assert store.abort_uploads("") == 0
        assert proxy.requests == []


def _pending(store: S3ObjectStore) -> int:
    uploads = store._client.list_multipart_uploads(Bucket=BUCKET, Prefix=store._prefix).get("Uploads", [])
    return len([upload for upload in uploads if upload["Key"].startswith(store._prefix)])


def test_an_upload_that_fails_is_aborted(proxy: FaultyServer, tmp_path: Path) -> None:
    """When a part is refused, the error is that refusal and nothing is left to be billed."""
    path = tmp_path / "file"
    path.write_bytes(bytes(20 * 2**20))
    store = _store(proxy.endpoint)
    proxy.fault = times(100, Answer(503, "SlowDown"), "PUT", "partNumber=2")
    with pytest.raises(StoreUnavailable, match="UploadPart"):
        store.upload("large", path)
    assert proxy.count("PUT", "partNumber=1") == 1
    assert proxy.count("PUT", "partNumber=2") == 6
    assert _pending(store) == 0
    assert list(store.list("")) == []


def test_an_abort_that_fails_does_not_hide_the_failure(
    proxy: FaultyServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first error is raised; that the upload remains is logged."""
    path = tmp_path / "file"
    path.write_bytes(bytes(17 * 2**20))
    store = _store(proxy.endpoint)
    proxy.fault = lambda request: (
        Answer(403, "AccessDenied") if "partNumber=2" in request.target or request.method == "DELETE" else None
    )
    with pytest.raises(AccessDenied, match="UploadPart"):
        store.upload("large", path)
    assert "could not be aborted" in caplog.text
    assert "s3:AbortMultipartUpload" in caplog.text


def test_a_part_is_repeated_alone(proxy: FaultyServer, tmp_path: Path) -> None:
    """A passing failure costs one part, not the whole file."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(17 * 2**20))
    store = _store(proxy.endpoint)
    proxy.fault = times(1, Drop(), "PUT", "partNumber=2")
    store.upload("large", path)
    assert [proxy.count("PUT", f"partNumber={n}") for n in (1, 2, 3)] == [1, 2, 1]
    assert store.get("large") == path.read_bytes()


def test_a_completion_whose_answer_was_lost_is_recognised(proxy: FaultyServer, tmp_path: Path) -> None:
    """The second completion finds no upload any more; the object is there with its size, so it worked."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(17 * 2**20))
    store = _store(proxy.endpoint)
    completed = []

    def lose(request: Request) -> LoseAnswer | Answer | None:
        if request.method != "POST" or "uploadId" not in request.query:
            return None
        completed.append(request)
        return LoseAnswer() if len(completed) == 1 else Answer(404, "NoSuchUpload")

    proxy.fault = lose
    store.upload("large", path)
    assert len(completed) == 2
    assert store.get("large") == path.read_bytes()


@pytest.mark.parametrize("there", [None, b"something else"])
def test_an_upload_that_somebody_else_aborted_is_an_error(
    proxy: FaultyServer, tmp_path: Path, there: bytes | None
) -> None:
    """No upload any more, and no object of that size: it did not work, and the error says which step."""
    path = tmp_path / "file"
    path.write_bytes(bytes(17 * 2**20))
    store = _store(proxy.endpoint)
    if there is not None:
        store.put("large", there)

    def abort(request: Request) -> Answer | None:
        if request.method != "POST" or "uploadId" not in request.query:
            return None
        assert store.abort_uploads("") == 1
        return Answer(404, "NoSuchUpload")  # both servers for tests answer 500

    proxy.fault = abort
    with pytest.raises(StoreError, match="CompleteMultipartUpload") as caught:
        store.upload("large", path)
    assert caught.value.ids["code"] == "NoSuchUpload"
    assert store.exists("large") == (there is not None)


def test_uploads_outside_the_prefix_are_left_alone(proxy: FaultyServer) -> None:
    """Even if a look-alike lists them: what is aborted is ours."""
    upload = "<Upload><Key>others/file</Key><UploadId>1</UploadId></Upload>"
    listing = f"<ListMultipartUploadsResult>{upload}</ListMultipartUploadsResult>"
    proxy.fault = lambda request: Answer(200, text=listing) if "uploads" in request.query else None
    assert _store(proxy.endpoint).abort_uploads("") == 0
    assert proxy.count("DELETE") == 0


@pytest.mark.parametrize("server", ["moto", pytest.param("gateway", marks=pytest.mark.process)], indirect=True)
def test_pending_uploads_are_aborted_by_prefix(server: S3Server) -> None:
    """Uploads that a killed process left are found and aborted; those of others are not touched."""
    server.create_bucket(BUCKET)
    store = _store(server.endpoint)
    for key in ("job1/a", "job1/b", "job1/b", "job2/a"):
        store._client.create_multipart_upload(Bucket=BUCKET, Key=store._whole(key))
    assert store.abort_uploads("job1/") == 3
    assert store.abort_uploads("job1/") == 0
    assert _pending(store) == 1
    assert store.abort_uploads("") == 1


# -- deletion ---------------------------------------------------------------------------------------------------------


def test_deletion_takes_one_request_per_thousand(proxy: FaultyServer) -> None:
    """2,001 keys are three requests."""
    store = _store(proxy.endpoint)
    store.put("k00000", b"")
    store.delete(f"k{n:05d}" for n in range(2001))
    assert proxy.count("POST", "delete") == 3
    assert list(store.list("")) == []


@pytest.mark.parametrize(
    "refusal",
    [Answer(400, "MissingContentMD5"), Answer(501, "NotImplemented"), Answer(405, "MethodNotAllowed")],
    ids=_name,
)
def test_a_store_that_refuses_batches_gets_single_deletions(proxy: FaultyServer, refusal: Answer) -> None:
    """Look-alikes without DeleteObjects work all the same."""
    store = _store(proxy.endpoint)
    for key in "abc":
        store.put(key, b"")
    proxy.fault = lambda request: refusal if request.method == "POST" else None
    store.delete(["a", "b"])
    assert [info.key for info in store.list("")] == ["c"]


def test_a_deletion_that_is_refused_for_some_keys_is_an_error(proxy: FaultyServer) -> None:
    """DeleteObjects answers 200 and lists what it did not delete; that is not success."""
    listing = "<DeleteResult><Error><Key>k</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>"
    proxy.fault = lambda request: Answer(200, text=listing) if request.method == "POST" else None
    with pytest.raises(AccessDenied, match="DeleteObjects") as caught:
        _store(proxy.endpoint).delete(["k"])
    assert "s3:DeleteObject" in caught.value.remedy


def test_keys_that_a_batch_could_not_delete_for_now_are_tried_again(proxy: FaultyServer) -> None:
    """A passing failure of one key among a thousand is cured like that of a whole request."""
    store = _store(proxy.endpoint)
    store.put("k", b"")
    listing = "<DeleteResult><Error><Key>k</Key><Code>InternalError</Code></Error></DeleteResult>"
    proxy.fault = times(2, Answer(200, text=listing), "POST")
    store.delete(["k"])
    assert proxy.count("POST", "delete") == 3
    assert not store.exists("k")


# -- settings ---------------------------------------------------------------------------------------------------------


def test_encryption_is_asked_for_at_every_creation(proxy: FaultyServer, tmp_path: Path) -> None:
    """The SSE options go with puts and with the start of uploads in parts, and nowhere else."""
    path = tmp_path / "file"
    path.write_bytes(bytes(17 * 2**20))
    store = _store(proxy.endpoint, sse_kms_key_id="alias/recovery")
    store.put_new("a", b"")
    store.put("b", b"")
    store.upload("c", path)
    store.get("a")
    header = "x-amz-server-side-encryption"
    encrypted = [r for r in proxy.requests if header in {name.lower() for name in r.headers}]
    assert [(r.method, "uploads" in r.query) for r in encrypted] == [("PUT", False), ("PUT", False), ("POST", True)]
    for request in encrypted:
        headers = {name.lower(): value for name, value in request.headers.items()}
        assert headers[header] == "aws:kms"
        assert headers[f"{header}-aws-kms-key-id"] == "alias/recovery"


def test_the_checksum_setting_decides_whether_checksums_are_sent(proxy: FaultyServer, tmp_path: Path) -> None:
    """when_required sends none with a PUT, when_supported does, also with parts."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(17 * 2**20))

    def sent() -> bool:
        return any(name.lower().startswith("x-amz-checksum") for r in proxy.requests for name in r.headers)

    _store(proxy.endpoint).upload("a", path)
    _store(proxy.endpoint).put_new("b", b"")
    assert not sent()
    store = _store(proxy.endpoint, checksum="when_supported")
    store.put_new("b", b"")
    assert sent()
    store.upload("a", path)
    assert store.get("a") == path.read_bytes()


def test_the_addressing_style_is_heeded(proxy: FaultyServer) -> None:
    """Path style names the bucket in the path."""
    with pytest.raises(RecoveryError):
        _store(proxy.endpoint, "some-bucket", addressing_style="path").get("a")
    assert proxy.requests[0].path.startswith("/some-bucket/")


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["moto", pytest.param("gateway", marks=pytest.mark.process)], indirect=True)
def test_a_missing_bucket_is_named_with_the_command_that_creates_it(server: S3Server) -> None:
    """Bucket missing."""
    error = _fails(_store(server.endpoint, "no-such-bucket-here"))
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
    for operation in (store.check, lambda: store.get("a"), lambda: list(store.list("")), lambda: store.delete(["a"])):
        with pytest.raises(AccessDenied) as caught:
            operation()
        assert "Correct the access key and the secret key" in caught.value.remedy
        assert secret not in str(caught.value)


@pytest.mark.process
def test_a_bucket_of_somebody_else_is_denied_with_the_action_to_allow(s3_gateway: S3Server) -> None:
    """A bucket policy that denies one action: the error names bucket, key, operation and that action."""
    bucket = s3_gateway.create_bucket("denied-tests")
    store = _store(s3_gateway.endpoint, bucket)
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
    ids=_name,
)
def test_the_wrong_region_is_named_with_the_right_one(proxy: FaultyServer, answer: Answer) -> None:
    """Wrong region, as AWS answers it: configured and real region, and the option to set."""
    proxy.fault = lambda request: answer
    error = _fails(_store(proxy.endpoint, region="us-west-2"))
    assert isinstance(error, StoreError)
    assert "us-west-2" in error.message
    assert "eu-central-1" in error.message
    assert error.remedy == "Set the option region to eu-central-1."
    assert error.ids["region"] == "us-west-2"


def test_a_redirect_without_a_region_still_says_what_to_set(proxy: FaultyServer) -> None:
    """Wrong region where the answer does not say which one is right."""
    proxy.fault = lambda request: Answer(301, "PermanentRedirect")
    error = _fails(_store(proxy.endpoint, region="us-west-2"))
    assert "is in another region" in error.message
    assert "Set the option region" in error.remedy


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_an_endpoint_that_only_redirects_is_named(proxy: FaultyServer, status: int) -> None:
    """A web server that sends http to https is neither followed without end nor taken for another region."""
    proxy.fault = lambda request: Answer(status, headers={"Location": "https://elsewhere/"}, text="<html>moved</html>")
    error = _fails(_store(proxy.endpoint))
    assert isinstance(error, StoreError)
    assert f"{proxy.endpoint} redirects" in error.message
    assert "https instead of http" in error.remedy
    assert len(proxy.requests) < 5


def test_an_endpoint_that_does_not_speak_s3_is_named(proxy: FaultyServer) -> None:
    """The address of a web console in place of the API's."""
    proxy.fault = lambda request: Answer(200, text="<html><body>Welcome<br></html>")
    with pytest.raises(StoreUnavailable) as caught:
        list(_store(proxy.endpoint).list(""))
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
        store.check()
    assert f"s3://{BUCKET}/x/" in caught.value.message
    assert "AWS_ACCESS_KEY_ID" in caught.value.remedy
    assert "aws_conn_id" in caught.value.remedy
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "half")
    with pytest.raises(ConfigurationError, match="missing: AWS_SECRET_ACCESS_KEY"):
        S3ObjectStore(BUCKET, "x", StorageOptions(endpoint_url=moto.endpoint, region="us-east-1")).check()


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidToken", "RequestExpired"])
def test_expired_credentials_are_told_apart(proxy: FaultyServer, code: str) -> None:
    """A token that has run out is no missing permission."""
    proxy.fault = lambda request: Answer(403 if code == "RequestExpired" else 400, code)
    error = _fails(_store(proxy.endpoint))
    assert isinstance(error, AccessDenied)
    assert "expired" in error.message
    assert "Renew them" in error.remedy


def test_a_wrong_clock_is_told(proxy: FaultyServer) -> None:
    """RequestTimeTooSkewed is a 403 that no permission cures."""
    proxy.fault = lambda request: Answer(403, "RequestTimeTooSkewed")
    assert _fails(_store(proxy.endpoint)).remedy == "Set this machine's clock."


def test_a_kms_refusal_names_the_option(proxy: FaultyServer) -> None:
    """A key that does not exist or may not be used points to sse_kms_key_id."""
    proxy.fault = lambda request: Answer(400, "KMS.NotFoundException")
    assert "sse_kms_key_id" in _fails(_store(proxy.endpoint, sse="aws:kms")).remedy
    proxy.fault = lambda request: Answer(403, "AccessDenied", "not authorized to perform: kms:GenerateDataKey")
    assert "kms:GenerateDataKey" in _fails(_store(proxy.endpoint, sse="aws:kms")).remedy


def test_an_unreachable_endpoint_is_named() -> None:
    """Nobody listens: a bounded number of tries, then the endpoint and the option."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    error = _fails(_store(endpoint))
    assert isinstance(error, StoreUnavailable)
    assert endpoint in error.message
    assert "endpoint_url" in error.remedy


def test_a_host_that_does_not_resolve_is_named() -> None:
    """A typing error in the endpoint's host name."""
    error = _fails(_store("http://no-such-host.invalid:9000", addressing_style="path"))
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
        error = _fails(_store(proxy.endpoint))
        assert "No secure connection" in error.message
        assert "CERTIFICATE_VERIFY_FAILED" in error.message
        assert proxy.endpoint in error.message
        assert "ca_bundle" in error.remedy
        assert proxy.requests == []
        _store(proxy.endpoint, ca_bundle=str(certificate)).check()
        assert proxy.requests


def test_plain_http_spoken_to_a_tls_port_is_bounded(moto: S3Server, certificate: Path) -> None:
    """http:// in place of https://."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with FaultyServer(moto.endpoint, context).running() as proxy:
        error = _fails(_store(proxy.endpoint.replace("https", "http")))
        assert isinstance(error, StoreUnavailable)
        assert "endpoint_url" in error.remedy


def test_a_ca_bundle_that_does_not_exist_is_named(tmp_path: Path) -> None:
    """Said when the store is opened, before any request."""
    with pytest.raises(ConfigurationError, match="does not exist") as caught:
        _store("https://127.0.0.1:1", ca_bundle=str(tmp_path / "ca.pem"))
    assert str(tmp_path / "ca.pem") in caught.value.message


def test_a_store_that_ignores_conditions_is_unmasked_by_the_check(proxy: FaultyServer) -> None:
    """A look-alike that overwrites in spite of If-None-Match would let two drivers write: the check refuses it."""

    def ignore(request: Request) -> None:
        for name in [name for name in request.headers if name.lower() == "if-none-match"]:
            del request.headers[name]

    proxy.fault = ignore
    store = _store(proxy.endpoint)
    error = _fails(store)
    assert store.uri in error.message
    assert "conditional writes" in error.remedy
    proxy.fault = lambda request: None
    assert list(store.list("")) == []


def test_a_store_that_does_not_list_is_unmasked_by_the_check(proxy: FaultyServer) -> None:
    """A listing that misses what was just written is no base for finding survivors."""
    proxy.fault = lambda request: Answer(200, text="<ListBucketResult/>") if "list-type" in request.query else None
    assert "does not list" in _fails(_store(proxy.endpoint)).message


def test_logs_hold_no_credentials(proxy: FaultyServer, caplog: pytest.LogCaptureFixture) -> None:
    """Our own log lines never carry a key, not even at the most talkative level."""
    caplog.set_level(logging.DEBUG, logger="airflow_provider")
    proxy.fault = lambda request: Answer(403, "SignatureDoesNotMatch")
    _fails(_store(proxy.endpoint))
    assert "testsecret" not in caplog.text


# -- clients ----------------------------------------------------------------------------------------------------------


def test_a_process_makes_one_client_per_environment(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening the same store again is cheap; other credentials or options mean another client."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "one")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    options = StorageOptions(endpoint_url=moto.endpoint, region="us-east-1")
    first = S3ObjectStore(BUCKET, "a", options)._client
    assert S3ObjectStore(BUCKET, "b", options)._client is first
    assert S3ObjectStore(BUCKET, "b", StorageOptions(endpoint_url=moto.endpoint))._client is not first
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "two")
    assert S3ObjectStore(BUCKET, "b", options)._client is not first
