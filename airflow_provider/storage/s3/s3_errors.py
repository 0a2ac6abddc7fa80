"""Translate S3's and botocore's errors into the project's: with object and remedy, never with a credential."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from botocore import exceptions as boto

from airflow_provider.core.errors import (
    AccessDenied,
    ConfigurationError,
    ObjectExists,
    ObjectNotFound,
    RecoveryError,
    StoreError,
    StoreNotFound,
    StoreUnavailable,
)
from airflow_provider.storage.s3_retry import worth_repeating

_IAM_ACTIONS = {
    "HeadObject": "s3:GetObject and s3:ListBucket",
    "ListObjectsV2": "s3:ListBucket",
    "DeleteObjects": "s3:DeleteObject",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
}
"""What has to be allowed for an operation, where that bears another name."""
_DENIED = {
    "AccessDenied",
    "AccountProblem",
    "AllAccessDisabled",
    "Forbidden",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "403",
}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "InvalidToken", "RequestExpired", "TokenRefreshRequired"}
_WRONG_REGION = {
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "PermanentRedirect",
    "TemporaryRedirect",
    "301",
    "307",
}
_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.TokenRetrievalError,
    boto.NoAuthTokenError,
)


@dataclass(frozen=True)
class Address:
    """The target of a request.

    :ivar region: the client's signing region
    :ivar endpoint: where the request was sent
    """

    operation: str
    bucket: str
    key: str
    region: str
    endpoint: str

    @property
    def ids(self) -> dict[str, Any]:
        """The ids that every error carries."""
        return {"bucket": self.bucket, "key": self.key, "region": self.region or None, "operation": self.operation}

    def __str__(self) -> str:
        return f"{self.operation} of s3://{self.bucket}/{self.key}"


def translate(error: Exception, address: Address) -> RecoveryError:
    """Return the error to raise in place of botocore's."""
    if isinstance(error, boto.ClientError):
        return _answer(error, address)
    if isinstance(error, _NO_CREDENTIALS):
        return AccessDenied(
            f"There are no usable credentials for {address}: {error}.",
            remedy="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role where this process runs "
            "(driver and executors), or an AWS connection (aws_conn_id) on Airflow's side.",
            **address.ids,
        )
    if isinstance(error, boto.NoRegionError):
        return StoreError(
            f"No region is known for {address}.", remedy="Set the option region, or AWS_REGION.", **address.ids
        )
    if isinstance(error, boto.SSLError):
        return StoreError(
            f"No secure connection to {address.endpoint} for {address}: {error}.",
            remedy="Set the option ca_bundle to the CA that signed the endpoint's certificate, or correct endpoint_url "
            "(https for TLS, http without).",
            endpoint=address.endpoint,
            **address.ids,
        )
    if worth_repeating(error):
        return StoreUnavailable(
            f"The object store at {address.endpoint} did not answer {address}: {error}.",
            remedy="Check that this machine can reach it, and the option endpoint_url.",
            endpoint=address.endpoint,
            **address.ids,
        )
    return ConfigurationError(
        f"{address} cannot be sent: {error}.", remedy="Check the event store's URI and storage options.", **address.ids
    )


def _answer(error: boto.ClientError, address: Address) -> RecoveryError:
    details, metadata = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
    code, status = str(details.get("Code", "")), metadata.get("HTTPStatusCode", 0)
    said = f"{code or status}: {details.get('Message') or 'no message'}".rstrip(".")
    ids: dict[str, Any] = address.ids | {"code": code, "status": status}
    if code == "NoSuchBucket":
        return StoreNotFound(
            f"The bucket {address.bucket!r} does not exist at {address.endpoint}.",
            remedy=f"Create it (aws s3 mb s3://{address.bucket}) or correct the event store's URI.",
            **ids,
        )
    if code in _EXPIRED:
        return AccessDenied(
            f"The credentials for {address} have expired or are not valid ({said}).",
            remedy="Renew them; long jobs need credentials that renew themselves (a role or web identity).",
            **ids,
        )
    real_region = _real_region(error)
    if status in {301, 302, 307, 308} and not real_region and code not in _WRONG_REGION - {"301", "307"}:
        return StoreError(
            f"{address.endpoint} redirects {address} ({status}) without naming a region.",
            remedy="Correct the option endpoint_url (https instead of http?), or set the option region.",
            **ids,
        )
    if code in _WRONG_REGION or (status in {301, 307, 400} and real_region not in {"", address.region}):
        where = f"is in region {real_region}" if real_region else "is in another region"
        return StoreError(
            f"The bucket {address.bucket!r} {where}, but requests are made for {address.region or 'no region'} "
            f"({address}, {said}).",
            remedy=f"Set the option region to {real_region or 'the region of the bucket'}.",
            **ids | {"bucket_region": real_region or None},
        )
    if code in _DENIED or status in {401, 403}:
        return _denied(code, said, address, ids)
    if status == 412 or code == "PreconditionFailed":
        return ObjectExists(f"s3://{address.bucket}/{address.key} exists already.", **ids)
    if code in {"NoSuchKey", "404"} or (status == 404 and address.operation in {"GetObject", "HeadObject"}):
        return ObjectNotFound(f"There is no s3://{address.bucket}/{address.key}.", **ids)
    if worth_repeating(error):
        return StoreUnavailable(
            f"The object store at {address.endpoint} kept failing at {address} ({said}).",
            remedy="Look at its health and its request limits; or endpoint_url leads to something else than S3.",
            endpoint=address.endpoint,
            **ids,
        )
    return StoreError(f"The object store refused {address} ({said}).", remedy=_remedy(code, status), **ids)


def _denied(code: str, said: str, address: Address, ids: dict[str, Any]) -> AccessDenied:
    if code == "RequestTimeTooSkewed":
        return AccessDenied(f"{address} was refused ({said}).", remedy="Set this machine's clock.", **ids)
    if code in {"InvalidAccessKeyId", "SignatureDoesNotMatch"}:
        remedy = "Correct the access key and the secret key; the endpoint does not know this pair."
    elif code.startswith("KMS") or "kms" in said.lower():
        remedy = "Allow kms:GenerateDataKey and kms:Decrypt on the key named by the option sse_kms_key_id."
    else:
        action = _IAM_ACTIONS.get(address.operation, f"s3:{address.operation}")
        remedy = f"Allow {action} on it for the credentials in use."
    return AccessDenied(f"Access denied: {address} ({said}).", remedy=remedy, **ids)


def _remedy(code: str, status: int) -> str:
    if code.startswith("KMS"):
        return "Check the option sse_kms_key_id: the key must exist, be enabled and be in the bucket's region."
    if code == "NotImplemented" or status == 501:
        return "This store lacks something that recovery needs; try the option checksum=when_required, or another one."
    return "Check the event store's URI and storage options."


def _real_region(error: boto.ClientError) -> str:
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    details: dict[str, object] = {**error.response.get("Error", {})}
    return str(headers.get("x-amz-bucket-region") or details.get("Region") or "")
