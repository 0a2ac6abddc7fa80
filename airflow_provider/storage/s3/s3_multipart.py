"""Upload large files in parts: invisible until complete, aborted on any failure."""

from __future__ import annotations

import logging
from typing import Any

from airflow_provider.core.errors import ObjectNotFound, RecoveryError, StoreError
from airflow_provider.core.faults import WITHIN_MULTIPART_UPLOAD, fault_point
from airflow_provider.storage.object_store import Readable
from airflow_provider.storage.s3.s3_client import S3Requests

log = logging.getLogger(__name__)

PART_SIZE = 8 * 1024**2
"""Bytes of one part; more where 10,000 parts would not be enough."""
_MOST_PARTS = 9_999
"""One less than S3 takes: a seal may need one of its own."""


def upload_in_parts(requests: S3Requests, key: str, source: Readable, expected: int, creation: dict[str, Any]) -> None:
    """Upload *source* as the object *key*. One part is in memory at a time.

    :param expected: approximate size in bytes
    :param creation: parameters of the new object, such as its encryption
    :raises StoreError: the upload failed and was aborted; if the abort failed too, that is logged
    """
    client, size = requests.client, 0
    part_size = max(PART_SIZE, -(-expected // _MOST_PARTS))
    upload_id = requests.call("CreateMultipartUpload", key, client.create_multipart_upload, Key=key, **creation)[
        "UploadId"
    ]
    try:
        parts: list[dict[str, Any]] = []
        while body := source.read(part_size):
            number, size = len(parts) + 1, size + len(body)
            answer = requests.call(
                "UploadPart", key, client.upload_part, Key=key, UploadId=upload_id, PartNumber=number, Body=body
            )
            checksums = {name: value for name, value in answer.items() if name.startswith("ChecksumCRC")}
            parts.append({"PartNumber": number, "ETag": answer["ETag"], **checksums})
            if number == 1:
                fault_point(WITHIN_MULTIPART_UPLOAD)
        _complete(requests, key, upload_id, parts, size)
    except BaseException:
        _abort_quietly(requests, key, upload_id)
        raise


def abort_upload(requests: S3Requests, key: str, upload_id: str) -> bool:
    """Abort an upload; return whether it existed."""
    try:
        requests.call("AbortMultipartUpload", key, requests.client.abort_multipart_upload, Key=key, UploadId=upload_id)
    except StoreError as error:
        if error.ids.get("code") == "NoSuchUpload":
            return False
        raise
    return True


def _complete(requests: S3Requests, key: str, upload_id: str, parts: list[dict[str, Any]], size: int) -> None:
    try:
        requests.call(
            "CompleteMultipartUpload",
            key,
            requests.client.complete_multipart_upload,
            Key=key,
            UploadId=upload_id,
            MultipartUpload={"Parts": parts},
        )
    except StoreError as error:
        # Either it was aborted, or the answer to a first request was lost and the object exists.
        if error.ids.get("code") != "NoSuchUpload" or _size(requests, key) != size:
            raise


def _size(requests: S3Requests, key: str) -> int | None:
    try:
        return requests.call("HeadObject", key, requests.client.head_object, Key=key)["ContentLength"]
    except ObjectNotFound:
        return None


def _abort_quietly(requests: S3Requests, key: str, upload_id: str) -> None:
    """Abort an upload; a failing clean-up must never hide the failure that made it necessary."""
    try:
        abort_upload(requests, key, upload_id)
    except RecoveryError as error:
        log.warning("An unfinished upload of s3://%s/%s could not be aborted: %s", requests.bucket, key, error)
