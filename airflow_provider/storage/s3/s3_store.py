"""An object store on S3 or a look-alike. Relies only on ``PutObject`` with ``If-None-Match: *``.

Look-alikes ignore conditional deletes, conditional completion and server-side checksums, so these are not used. Every
request goes through one retry policy and one translation of errors.
"""

from __future__ import annotations

import builtins
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from botocore import exceptions as boto

from airflow_provider.core.errors import ObjectNotFound, StoreError
from airflow_provider.core.options import StorageOptions
from airflow_provider.storage.keys import check_key, check_prefix
from airflow_provider.storage.object_store import ObjectInfo, ObjectStore, Readable, every
from airflow_provider.storage.s3.s3_client import S3Requests, s3_client
from airflow_provider.storage.s3.s3_multipart import abort_upload, upload_in_parts
from airflow_provider.storage.s3_retry import RetryPolicy

if TYPE_CHECKING:
    import boto3

log = logging.getLogger(__name__)

MULTIPART_THRESHOLD = 16 * 1024**2
"""Files of this size (bytes) and more are uploaded in parts."""
_BATCH = 1_000
_CHUNK = 1024**2
_OF_A_LISTING = {"Contents", "IsTruncated", "KeyCount", "Name"}
_REFUSED_BATCH = {"MissingContentMD5", "InvalidDigest", "NotImplemented", "MethodNotAllowed", "MalformedXML"}


class S3ObjectStore(ObjectStore):
    """Objects below ``s3://bucket/prefix``. Thread-safe; creating one sends no request.

    :param prefix: without leading or trailing slashes; empty text for the whole bucket
    :param session: overrides only the source of credentials
    :raises ConfigurationError: an option is invalid
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        options: StorageOptions,
        *,
        session: boto3.Session | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._bucket, self._prefix = bucket, f"{prefix}/" if prefix else ""
        self._client = s3_client(options, session)
        self._requests = S3Requests(self._client, bucket, retry or RetryPolicy())
        self._creation: dict[str, Any] = {}
        if options.sse:
            self._creation["ServerSideEncryption"] = options.sse
        if options.sse_kms_key_id:
            self._creation |= {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": options.sse_kms_key_id}

    @property
    def uri(self) -> str:
        """``s3://bucket/prefix``."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def put_new(self, key: str, body: bytes) -> None:
        whole = self._whole(key)
        self._requests.call(
            "PutObject", whole, self._client.put_object, Key=whole, Body=body, IfNoneMatch="*", **self._creation
        )

    def put(self, key: str, body: bytes) -> None:
        whole = self._whole(key)
        self._requests.call("PutObject", whole, self._client.put_object, Key=whole, Body=body, **self._creation)

    def upload(self, key: str, path: Path, through: Callable[[BinaryIO], Readable] | None = None) -> None:
        """Upload with one request below 16 MiB, else a multipart upload that is aborted if it fails."""
        size = path.stat().st_size
        with path.open("rb") as file:
            source = through(file) if through else file
            if size < MULTIPART_THRESHOLD:
                self.put(key, source.read())
            else:
                upload_in_parts(self._requests, self._whole(key), source, size, self._creation)

    def get(self, key: str) -> bytes:
        def request(**at: Any) -> bytes:
            return self._client.get_object(**at)["Body"].read()

        whole = self._whole(key)
        return self._requests.call("GetObject", whole, request, Key=whole)

    def get_end(self, key: str, most: int) -> tuple[bytes, int]:
        """Read with one request. An empty object has no range to request."""

        def request(**at: Any) -> tuple[bytes, int]:
            answer = self._client.get_object(**at, Range=f"bytes=-{most}")
            body = answer["Body"].read()
            return body, int(answer.get("ContentRange", f"/{len(body)}").rpartition("/")[2])

        whole = self._whole(key)
        return self._requests.call("GetObject", whole, request, Key=whole)

    def download(self, key: str, path: Path) -> None:
        def request(**at: Any) -> None:
            body = self._client.get_object(**at)["Body"]
            with path.open("wb") as target:
                for chunk in body.iter_chunks(_CHUNK):
                    target.write(chunk)

        whole = self._whole(key)
        self._requests.call("GetObject", whole, request, Key=whole)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        for key, entry in self._listed(self._prefix + check_prefix(prefix)):
            if not key.endswith("/"):
                yield ObjectInfo(key.removeprefix(self._prefix), entry["Size"], entry["LastModified"].timestamp())

    def _listed(self, whole: str) -> Iterator[tuple[str, Any]]:
        """Yield all objects, including markers of folders."""
        more: dict[str, str] = {}
        while True:
            page = self._requests.call("ListObjectsV2", whole, self._page, Prefix=whole, **more)
            for entry in page.get("Contents", []):
                yield entry["Key"], entry
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def _page(self, **parameters: Any) -> Any:
        """Return one answer to a listing. The page of a proxy, read as XML, would be a listing of nothing."""
        page = self._client.list_objects_v2(**parameters)
        if page.keys().isdisjoint(_OF_A_LISTING):
            raise boto.HTTPClientError(error="the answer is no listing")
        return page

    def delete(self, keys: Iterable[str]) -> None:
        """Delete 1,000 keys per request, or one per request if the store refuses batches."""
        self._delete([self._whole(key) for key in keys])

    def forget_folders(self, prefix: str) -> None:
        self._delete([key for key, _ in self._listed(self._prefix + check_prefix(prefix)) if key.endswith("/")])

    def _delete(self, keys: builtins.list[str]) -> None:
        remaining = iter(keys)
        while batch := [*itertools.islice(remaining, _BATCH)]:
            try:
                self._requests.call("DeleteObjects", batch[0], self._delete_batch, keys=batch)
            except StoreError as error:
                if error.ids.get("code") not in _REFUSED_BATCH and error.ids.get("status") not in {405, 501}:
                    raise
                log.debug("%s refuses to delete in batches: %s", self.uri, error)
                for whole in batch:
                    self._requests.call("DeleteObject", whole, self._client.delete_object, Key=whole)

    def abort_uploads(self, prefix: str, which: Callable[[str], bool] = every) -> int:
        whole = self._prefix + check_prefix(prefix)
        aborted = 0
        more: dict[str, str] = {}
        while True:
            page = self._requests.call(
                "ListMultipartUploads", whole, self._client.list_multipart_uploads, Prefix=whole, **more
            )
            for upload in page.get("Uploads", []):
                # Not every look-alike applies the prefix.
                if upload["Key"].startswith(whole) and which(upload["Key"].removeprefix(self._prefix)):
                    aborted += abort_upload(self._requests, upload["Key"], upload["UploadId"])
            if not page.get("IsTruncated"):
                return aborted
            more = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}

    def exists(self, key: str) -> bool:
        whole = self._whole(key)
        try:
            self._requests.call("HeadObject", whole, self._client.head_object, Key=whole)
        except ObjectNotFound:
            return False
        return True

    def _whole(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _delete_batch(self, keys: builtins.list[str], **at: Any) -> None:
        answer = self._client.delete_objects(**at, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True})
        failed = [entry for entry in answer.get("Errors", []) if entry.get("Code") != "NoSuchKey"]
        if failed:
            # In the form of a failed request, so that it is repeated or reported like any other.
            raise boto.ClientError({"Error": failed[0]}, "DeleteObjects")
