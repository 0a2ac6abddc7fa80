"""Encryption, checksums, addressing and clients, as the options say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from botocore.utils import parse_timestamp

from airflow_provider.core.errors import RecoveryError
from airflow_provider.core.options import StorageOptions
from airflow_provider.storage.s3 import s3_client
from airflow_provider.storage.s3.s3_client import read_timestamp
from airflow_provider.storage.s3.s3_store import S3ObjectStore
from tests.storage.conftest import BUCKET
from tests.storage.s3_faults import s3_store
from tests.support.http_faults import FaultyServer
from tests.support.s3_gateway import S3Server


def test_encryption_is_asked_for_at_every_creation(proxy: FaultyServer, tmp_path: Path) -> None:
    """The SSE options go with puts and with the start of uploads in parts, and nowhere else."""
    path = tmp_path / "file"
    path.write_bytes(bytes(17 * 2**20))
    store = s3_store(proxy.endpoint, sse_kms_key_id="alias/recovery")
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

    s3_store(proxy.endpoint).upload("a", path)
    s3_store(proxy.endpoint).put_new("b", b"")
    assert not sent()
    store = s3_store(proxy.endpoint, checksum="when_supported")
    store.put_new("b", b"")
    assert sent()
    store.upload("a", path)
    assert store.get("a") == path.read_bytes()


def test_the_addressing_style_is_heeded(proxy: FaultyServer) -> None:
    """Path style names the bucket in the path."""
    with pytest.raises(RecoveryError):
        s3_store(proxy.endpoint, "some-bucket", addressing_style="path").get("a")
    assert proxy.requests[0].path.startswith("/some-bucket/")


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


@pytest.mark.parametrize(
    "written",
    [
        "2026-11-21T11:23:58.123Z",
        "2026-11-21T11:23:58Z",
        "Sat, 21 Nov 2026 11:23:58 GMT",
        "20261121T112358Z",
        1795260238,
    ],
)
def test_moments_are_read_as_botocore_reads_them(written: str | int) -> None:
    """The quick way for S3's own form changes nothing, and every other form is left to botocore."""
    assert read_timestamp(written) == parse_timestamp(written)  # type: ignore[arg-type]


def test_what_is_no_moment_is_botocores_error() -> None:
    """It only looks like S3's form."""
    with pytest.raises(ValueError, match="Invalid timestamp"):
        read_timestamp("TodayZ")


def test_clients_read_moments_the_quick_way(proxy: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing never comes to botocore's own reader, which takes half of the time of a long one."""
    store = s3_store(proxy.endpoint)
    store.put("a", b"")
    monkeypatch.setattr(s3_client, "parse_timestamp", lambda value: pytest.fail(f"{value} was read the slow way"))
    assert [info.key for info in store.list("")] == ["a"]
