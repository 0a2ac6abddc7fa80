"""Map every ``OSError`` of a file store to the project's errors."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_provider.core.errors import (
    AccessDenied,
    ObjectExists,
    ObjectNotFound,
    RecoveryError,
    StoreError,
    StoreUnavailable,
)

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE}
_AWAY = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN}
_FOR_A_TIME = _FULL | _AWAY
"""A disk or a table of open files is full, or a file server is unavailable: a later try may succeed."""
NOTHING_THERE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


@contextmanager
def file_errors(root: Path, operation: str, key: str) -> Iterator[None]:
    """Raise an ``OSError`` as a project error that names the path, which holds no secret."""
    path = root / key
    try:
        yield
    except RecoveryError:
        raise
    except FileExistsError as error:
        if path.is_dir() or operation != "write" or not path.exists():
            raise StoreError(
                f"Cannot {operation} {path}: a directory or a file is in the way.",
                remedy="Give the event store a directory of its own.",
                path=path,
                key=key,
            ) from error
        raise ObjectExists(f"{path} exists already.", path=path, key=key) from error
    except NOTHING_THERE as error:
        if operation == "read":
            raise ObjectNotFound(f"There is no {path}.", path=path, key=key) from error
        raise StoreError(
            f"Cannot {operation} {path}: {error.strerror}.",
            remedy="Something on the way is a file, or was removed meanwhile.",
            path=path,
            key=key,
        ) from error
    except OSError as error:
        raise _store_error(error, operation, path, key) from error


def _store_error(error: OSError, operation: str, path: Path, key: str) -> StoreError:
    message = f"Cannot {operation} {path}: {error.strerror}."
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return AccessDenied(
            message,
            remedy=f"Let the user {_user()} {operation} there, or name another directory for the event store.",
            path=path,
            key=key,
        )
    if error.errno == errno.ELOOP:
        return StoreError(
            f"Cannot {operation} {path}: a symbolic link is on the way, {error.filename!r}.",
            remedy="Remove the link: somebody has put it there. Only the event store's root may be one.",
            path=path,
            key=key,
        )
    kind = StoreUnavailable if error.errno in _FOR_A_TIME else StoreError
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return kind(message, remedy="Make room, or move the event store.", path=path, key=key)
    return kind(message, remedy="Look at the file system of the event store.", path=path, key=key)


def _user() -> str:
    return f"{os.environ.get('USER', '')} (uid {os.geteuid()})".strip()
