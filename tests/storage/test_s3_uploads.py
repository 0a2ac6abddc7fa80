"""Uploads in parts, and deletion in batches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_provider.core.errors import (
    AccessDenied,
    StoreError,
    StoreUnavailable,
)
from airflow_provider.storage.s3.s3_store import S3ObjectStore
from tests.storage.conftest import BUCKET
from tests.storage.s3_faults import fault_name, s3_store
from tests.support.http_faults import Answer, Drop, FaultyServer, LoseAnswer, Request, times
from tests.support.s3_gateway import S3Server


@pytest.mark.parametrize("server", ["moto", pytest.param("gateway", marks=pytest.mark.process)], indirect=True)
def test_large_files_go_up_in_parts_and_small_ones_do_not(server: S3Server, tmp_path: Path) -> None:
    """From 16 MiB on the upload has parts of 8 MiB; below it is one PUT."""
    server.create_bucket(BUCKET)
    with FaultyServer(server.endpoint).running() as proxy:
        store = s3_store(server.endpoint)
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
    store = s3_store(proxy.endpoint)
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
    store = s3_store(proxy.endpoint)
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
    store = s3_store(proxy.endpoint)
    proxy.fault = times(1, Drop(), "PUT", "partNumber=2")
    store.upload("large", path)
    assert [proxy.count("PUT", f"partNumber={n}") for n in (1, 2, 3)] == [1, 2, 1]
    assert store.get("large") == path.read_bytes()


def test_a_completion_whose_answer_was_lost_is_recognised(proxy: FaultyServer, tmp_path: Path) -> None:
    """The second completion finds no upload any more; the object is there with its size, so it worked."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(17 * 2**20))
    store = s3_store(proxy.endpoint)
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
    store = s3_store(proxy.endpoint)
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
    assert s3_store(proxy.endpoint).abort_uploads("") == 0
    assert proxy.count("DELETE") == 0


@pytest.mark.parametrize("server", ["moto", pytest.param("gateway", marks=pytest.mark.process)], indirect=True)
def test_pending_uploads_are_aborted_by_prefix(server: S3Server) -> None:
    """Uploads that a killed process left are found and aborted; those of others are not touched."""
    server.create_bucket(BUCKET)
    store = s3_store(server.endpoint)
    for key in ("job1/a", "job1/b", "job1/b", "job2/a"):
        store._client.create_multipart_upload(Bucket=BUCKET, Key=store._whole(key))
    assert store.abort_uploads("job1/") == 3
    assert store.abort_uploads("job1/") == 0
    assert _pending(store) == 1
    assert store.abort_uploads("") == 1


def test_deletion_takes_one_request_per_thousand(proxy: FaultyServer) -> None:
    """2,001 keys are three requests."""
    store = s3_store(proxy.endpoint)
    store.put("k00000", b"")
    store.delete(f"k{n:05d}" for n in range(2001))
    assert proxy.count("POST", "delete") == 3
    assert list(store.list("")) == []


@pytest.mark.parametrize(
    "refusal",
    [Answer(400, "MissingContentMD5"), Answer(501, "NotImplemented"), Answer(405, "MethodNotAllowed")],
    ids=fault_name,
)
def test_a_store_that_refuses_batches_gets_single_deletions(proxy: FaultyServer, refusal: Answer) -> None:
    """Look-alikes without DeleteObjects work all the same."""
    store = s3_store(proxy.endpoint)
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
        s3_store(proxy.endpoint).delete(["k"])
    assert "s3:DeleteObject" in caught.value.remedy


def test_keys_that_a_batch_could_not_delete_for_now_are_tried_again(proxy: FaultyServer) -> None:
    """A passing failure of one key among a thousand is cured like that of a whole request."""
    store = s3_store(proxy.endpoint)
    store.put("k", b"")
    listing = "<DeleteResult><Error><Key>k</Key><Code>InternalError</Code></Error></DeleteResult>"
    proxy.fault = times(2, Answer(200, text=listing), "POST")
    store.delete(["k"])
    assert proxy.count("POST", "delete") == 3
    assert not store.exists("k")
