"""Configure botocore's S3 client for recovery, and send requests.

Creating a client takes about 0.1 s, so a process keeps its clients.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import botocore.session
from botocore import exceptions as boto
from botocore.config import Config
from botocore.utils import parse_timestamp

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.options import ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, StorageOptions
from airflow_provider.storage.lent_credentials import LentCredentials
from airflow_provider.storage.s3.s3_errors import Address, translate
from airflow_provider.storage.s3_retry import RetryPolicy

if TYPE_CHECKING:
    import boto3
    from mypy_boto3_s3 import S3Client

T = TypeVar("T")

CONNECT_TIMEOUT, READ_TIMEOUT = 5, 15
"""Seconds to wait for a connection, and for the next bytes of an answer."""

_CONNECTIONS = 32
_KEPT = 8
_clients: OrderedDict[object, S3Client] = OrderedDict()
_lock = threading.Lock()


def s3_client(options: StorageOptions, session: boto3.Session | None = None) -> S3Client:
    """Return a thread-safe client.

    :param session: source of credentials; its clients are not kept
    :raises ConfigurationError: an option cannot be used
    """
    if session is not None:
        return _new_client(options, session)
    # Other credentials or another process need another client. The secrets in the key come from this process's own
    # environment.
    environment = tuple(sorted(item for item in os.environ.items() if "AWS_" in item[0]))
    key = (os.getpid(), options, environment)
    with _lock:
        client = _clients.pop(key, None) or _new_client(options)
        _clients[key] = client
        while len(_clients) > _KEPT:
            _clients.popitem(last=False)
    return client


def _new_client(options: StorageOptions, session: boto3.Session | None = None) -> S3Client:
    if options.ca_bundle and not Path(options.ca_bundle).exists():
        raise ConfigurationError(
            f"The CA bundle {options.ca_bundle} does not exist.",
            remedy="Correct the option ca_bundle; the file must be there on the driver's and the executors' machines.",
            path=options.ca_bundle,
        )
    addressing: dict[str, str] = {"addressing_style": options.addressing_style}
    try:
        config = Config(
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=READ_TIMEOUT,
            # No retries in botocore: they would multiply those of `s3_retry`.
            retries={"total_max_attempts": 1, "mode": "standard"},
            max_pool_connections=_CONNECTIONS,
            s3=addressing,  # type: ignore[arg-type]
            request_checksum_calculation=options.checksum,  # type: ignore[arg-type]
            response_checksum_validation=options.checksum,  # type: ignore[arg-type]
        )
    except TypeError as error:
        raise ConfigurationError(
            f"This machine's botocore {botocore.__version__} is too old ({error}).",
            remedy="Update it (pip install 'botocore>=1.36'), or remove it, so that the job's own is used.",
        ) from error
    try:
        # A session reads the profile, which may not exist.
        make: Any = session.client if session is not None else _new_session().create_client
        client: S3Client = make(
            "s3",
            region_name=options.region or None,
            endpoint_url=options.endpoint_url or None,
            verify=options.ca_bundle or None,
            config=config,
        )
    except (boto.BotoCoreError, ValueError) as error:
        raise ConfigurationError(
            f"No S3 client can be made: {error}.",
            remedy="Check the storage options and the AWS settings of this process.",
        ) from error
    client.meta.events.register_first("needs-retry.s3.HeadBucket", _end_of_redirects)
    return client


def _new_session() -> botocore.session.Session:
    session = botocore.session.get_session()
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=read_timestamp)
    session.get_component("credential_provider").insert_before("env", LentCredentials())
    # The event store's own credentials, if there are any; else what botocore finds on this machine.
    access_key, secret_key, token = (os.environ.get(name, "") for name in (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN))
    if access_key or secret_key:
        session.set_credentials(access_key, secret_key, token or None)
    return session


def read_timestamp(value: Any) -> datetime:
    """Read a timestamp in any form that botocore knows; S3's own form fast, because it takes half the time of a long
    listing.
    """
    if isinstance(value, str) and "T" in value and value.endswith("Z"):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass
    return parse_timestamp(value)


def _end_of_redirects(response: tuple[Any, Any] | None = None, **_: object) -> None:
    """Keep botocore from asking for a bucket's region endlessly if every request is redirected.

    On a redirect, botocore sends HeadBucket to learn the region, and again if that is redirected. A server that merely
    redirects http to https would cause endless recursion.
    """
    if response is None or "x-amz-bucket-region" in response[0].headers:
        return
    if response[0].status_code in {301, 302, 307}:
        raise boto.ClientError(response[1], "HeadBucket")


class S3Requests:
    """Sends requests for one bucket, with the retry policy and the translation of errors."""

    def __init__(self, client: S3Client, bucket: str, retry: RetryPolicy) -> None:
        self.client = client
        self.bucket = bucket
        self._retry = retry

    def call(self, operation: str, key: str, request: Callable[..., T], **parameters: Any) -> T:
        """Return ``request(Bucket=…, **parameters)``.

        :param key: the key or prefix of the request, for errors
        :raises RecoveryError: see :func:`translate`
        """
        try:
            return self._retry.call(lambda: request(Bucket=self.bucket, **parameters))
        except (boto.ClientError, boto.BotoCoreError) as error:
            meta = self.client.meta
            raise translate(
                error, Address(operation, self.bucket, key, meta.region_name or "", meta.endpoint_url)
            ) from error
