"""Open a store by its URI. Only this module knows all kinds of stores.

botocore and tenacity are imported only for an ``s3://`` URI, so ``file://`` needs neither.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.options import INTEGRITY_SECRET, StorageOptions
from airflow_provider.storage.dependencies import provide_dependencies
from airflow_provider.storage.files import FileObjectStore, file_uri
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.sealing import Seal, SealedStore

if TYPE_CHECKING:
    import boto3

_FORMS = "Write s3://bucket/prefix or file:///absolute/path."
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_DEFAULT_OPTIONS = StorageOptions()


def open_store(
    uri: str,
    options: StorageOptions = _DEFAULT_OPTIONS,
    *,
    session: boto3.Session | None = None,
    integrity_secret: str = "",
) -> ObjectStore:
    """Return the store at *uri*. Sends no request; ``storage.checks`` does.

    :param uri: ``s3://bucket/prefix`` or ``file:///absolute/path``
    :param session: source of credentials instead of boto3's own chain; ``s3://`` only
    :param integrity_secret: seals all objects (see ``storage.sealing``); empty text to use the secret in this process's
        environment, which usually has none
    :raises ConfigurationError: the URI has another form, an option or the secret is invalid, or botocore or tenacity is
        missing
    """
    seal = Seal.parse(integrity_secret or os.environ.get(INTEGRITY_SECRET, ""))
    store = _open_plain(uri, options, session)
    return SealedStore(store, seal) if seal is not None else store


def _open_plain(uri: str, options: StorageOptions, session: boto3.Session | None) -> ObjectStore:
    scheme, separator, _ = uri.partition("://")
    if separator and scheme == "file":
        return FileObjectStore(parse_file_uri(uri))
    if separator and scheme == "s3":
        bucket, prefix = parse_s3_uri(uri)
        try:
            provide_dependencies()
            from airflow_provider.storage.s3.s3_store import S3ObjectStore
        except ModuleNotFoundError as error:
            package = (error.name or "botocore").partition(".")[0]
            raise ConfigurationError(
                f"The event store {uri} cannot be reached: the Python package {package!r} is not installed.",
                remedy="Install botocore and tenacity for the driver's and the executors' Python: "
                "pip install botocore tenacity.",
                package=package,
            ) from error
        return S3ObjectStore(bucket, prefix, options, session=session)
    raise _not_understood(uri)


def parse_s3_uri(uri: str) -> tuple[str, str]:
    """Return bucket and prefix (without leading or trailing slashes) of ``s3://bucket/prefix``.

    :raises ConfigurationError: it is malformed
    """
    authority, _, path = uri.removeprefix("s3://").partition("/")
    if "@" in authority or ":" in authority:
        # The URI may contain a secret key, so the message must not repeat it.
        raise ConfigurationError(
            "The event store's URI holds more than a bucket between 's3://' and the next '/'.",
            remedy=f"{_FORMS} Credentials belong into boto3's own chain or the AWS connection, a host into the option "
            "endpoint_url; neither into the URI.",
        )
    if not authority:
        raise ConfigurationError(f"The event store {uri!r} names no bucket.", remedy=_FORMS, uri=uri)
    if not _BUCKET.fullmatch(authority):
        raise ConfigurationError(
            f"The event store {uri!r} names the bucket {authority!r}, which is no valid name.",
            remedy=f"Bucket names are letters, digits, '.' and '-', at least three. {_FORMS}",
            uri=uri,
            bucket=authority,
        )
    if "?" in path or "#" in path:
        raise ConfigurationError(
            f"The event store {uri!r} has a query or a fragment.",
            remedy=f"{_FORMS} Region, endpoint and the like are options of their own.",
            uri=uri,
        )
    return authority, "/".join(_segments(uri, path))


def parse_file_uri(uri: str) -> Path:
    """Return the absolute path of ``file:///path``; ``%20`` and the like are decoded.

    :raises ConfigurationError: it is malformed or the path is not absolute
    """
    host, _, path = uri.removeprefix("file://").partition("/")
    if host not in {"", "localhost"}:
        raise ConfigurationError(
            f"The event store {uri!r} is not an absolute path: {host!r} stands where a host would.",
            remedy=f"Write file:///{host}/{path} with three slashes if /{host}/{path} is meant.",
            uri=uri,
        )
    if "?" in path or "#" in path:
        raise ConfigurationError(
            f"The event store {uri!r} has a query or a fragment.",
            remedy="Write %3F for '?' and %23 for '#' in a path.",
            uri=uri,
        )
    segments = _segments(uri, unquote(path, errors="surrogateescape"))
    if not segments:
        raise ConfigurationError(f"The event store {uri!r} names no directory.", remedy=_FORMS, uri=uri)
    return Path("/", *segments)


def _segments(uri: str, path: str) -> list[str]:
    segments = [segment for segment in path.split("/") if segment]
    if "\0" in path or any(segment in {".", ".."} for segment in segments):
        raise ConfigurationError(
            f"The event store {uri!r} has '.' or '..' in its path.",
            remedy="Write the path out.",
            uri=uri,
        )
    return segments


def _not_understood(uri: str) -> ConfigurationError:
    scheme, separator, rest = uri.partition("://")
    if separator and "@" in rest.partition("/")[0]:
        return ConfigurationError("The event store's URI holds a user name or a password.", remedy=_FORMS)
    if separator and scheme.lower() in {"s3", "s3a", "s3n"}:
        hint = f"Write s3://{rest}."
    elif uri.startswith("/"):
        hint = f"Write {file_uri(Path(uri))}."
    elif uri.startswith("file:/"):
        hint = f"Write file:///{uri.removeprefix('file:').lstrip('/')}."
    elif uri.startswith("file:"):
        hint = "The path must be absolute: file:///path."
    else:
        hint = _FORMS
    return ConfigurationError(f"The event store {uri!r} is not understood.", remedy=hint, uri=uri)
