"""S3 stores for tests of what only S3 does."""

from __future__ import annotations

import uuid

import pytest

from airflow_provider.core.errors import RecoveryError
from airflow_provider.core.options import StorageOptions
from airflow_provider.storage.checks import check_store
from airflow_provider.storage.s3.s3_store import S3ObjectStore
from airflow_provider.storage.s3_retry import RetryPolicy
from tests.storage.conftest import BUCKET

FAST = RetryPolicy(first_pause=0.001, longest_pause=0.01)


def s3_store(endpoint: str, bucket: str = BUCKET, *, retry: RetryPolicy | None = FAST, **options: str) -> S3ObjectStore:
    return S3ObjectStore(
        bucket,
        f"tests/{uuid.uuid4().hex}",
        StorageOptions.from_mapping({"endpoint_url": endpoint, "region": "us-east-1", **options}),
        retry=retry,
    )


def failed_check(store: S3ObjectStore) -> RecoveryError:
    with pytest.raises(RecoveryError) as caught:
        check_store(store)
    assert "testsecret" not in str(caught.value)
    return caught.value


def fault_name(fault: object) -> str:
    return getattr(fault, "code", type(fault).__name__)
