"""An object store in a directory, for one machine or a file system that all machines share.

Every object is written to a hidden folder of the same root, flushed to the disk, and then given its name: it is
whole or not there. ``link()`` gives the name, because it fails if the name is taken and does so atomically, also on
NFS. Where there are no hard links, ``O_EXCL`` keeps the create-only promise, but a reader may meet half an object.
Needs the standard library only.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from airflow_provider.core.errors import (
    AccessDenied,
    ConfigurationError,
    ObjectExists,
    ObjectNotFound,
    RecoveryError,
    StoreError,
    StoreUnavailable,
)
from airflow_provider.core.faults import WITHIN_MULTIPART_UPLOAD, fault_point
from airflow_provider.storage.checks import check_store
from airflow_provider.storage.directories import copy_exclusively, in_directory, prune, walk
from airflow_provider.storage.keys import check_key, check_prefix
from airflow_provider.storage.object_store import ObjectInfo, Readable, every

TEMPORARY = ".tmp"
"""Folder below the root for what is being written; no key may lie in it."""

_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
_FOR_A_TIME = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT}
"""A disk that is full, or a file server that is away: it may well go through later."""
_NOTHING_THERE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_CHUNK = 8 * 1024**2


class FileObjectStore:
    """Objects as files below *root*; directories are made when something is written and removed when empty.

    :param root: absolute path; it need not exist yet
    :raises ConfigurationError: *root* is a file
    """

    def __init__(self, root: Path) -> None:
        if root.exists() and not root.is_dir():
            raise ConfigurationError(
                f"The event store {root} is not a directory.", remedy="Name a directory, or remove the file.", path=root
            )
        self._root = root

    @property
    def uri(self) -> str:
        """``file://`` and the path, percent-encoded."""
        return file_uri(self._root)

    def put_new(self, key: str, body: bytes) -> None:
        """See :class:`ObjectStore`."""
        self._create(key, lambda file: file.write(body), self._link)

    def put(self, key: str, body: bytes) -> None:
        """See :class:`ObjectStore`."""
        self._create(key, lambda file: file.write(body), os.replace)

    def upload(self, key: str, path: Path, through: Callable[[BinaryIO], Readable] | None = None) -> None:
        """See :class:`ObjectStore`."""
        with path.open("rb") as file:
            source = through(file) if through else file

            def copy(target: BinaryIO) -> None:
                target.write(source.read(_CHUNK))
                target.flush()
                fault_point(WITHIN_MULTIPART_UPLOAD)
                shutil.copyfileobj(source, target, _CHUNK)

            self._create(key, copy, os.replace)

    def share(self, key: str, path: Path) -> None:
        """See :class:`ObjectStore`."""
        target, temporary = self.path_of(key), self._temporary(key)
        with self._errors("write", key):
            try:
                if linked(path, temporary, self._mode()):
                    in_directory(target, lambda: os.replace(temporary, target), mode=self._mode())
                    return
            finally:
                self._discard(temporary)
        self.upload(key, path)

    def borrow(self, key: str, path: Path) -> None:
        """See :class:`ObjectStore`."""
        with self._errors("read", key):
            if linked(self.path_of(key), path):
                return
        self.download(key, path)

    def get(self, key: str) -> bytes:
        """See :class:`ObjectStore`."""
        with self._errors("read", key):
            return self.path_of(key).read_bytes()

    def download(self, key: str, path: Path) -> None:
        """See :class:`ObjectStore`."""
        with self._errors("read", key):
            source = self.path_of(key).open("rb")
        with source, path.open("wb") as target:
            shutil.copyfileobj(source, target, _CHUNK)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See :class:`ObjectStore`."""
        folder = check_prefix(prefix).rpartition("/")[0]
        if folder.partition("/")[0] == TEMPORARY:
            return
        start = self._root / folder if folder else self._root
        with self._errors("list", prefix):
            for info in walk(start, f"{folder}/" if folder else "", prefix):
                if not info.key.startswith(f"{TEMPORARY}/"):
                    yield info

    def delete(self, keys: Iterable[str]) -> None:
        """See :class:`ObjectStore`."""
        for key in keys:
            path = self.path_of(key)
            with self._errors("delete", key), suppress(*_NOTHING_THERE):
                self._check_inside(path)
                path.unlink()
                prune(path.parent, self._root)

    def _check_inside(self, path: Path) -> None:
        """Refuse what a symbolic link leads out of the root.

        :raises StoreError: one of its directories is such a link
        """
        if not path.parent.resolve().is_relative_to(self._root.resolve()):
            raise StoreError(
                f"{path} leads out of the event store through a symbolic link.",
                remedy="Remove the link: somebody has put it there.",
                path=path,
            )

    def _mode(self) -> int:
        """Return the mode of directories before the umask: closed to others, unless the root is open for all to write.

        What lies in a directory that others cannot enter they cannot read.
        """
        try:
            return 0o777 if self._root.stat().st_mode & 0o002 else 0o770
        except OSError:
            return 0o770

    def abort_uploads(self, prefix: str, which: Callable[[str], bool] = every) -> int:
        """Remove what was being written under *prefix*, which fails its writer, and return how many files it was."""
        with self._errors("list", prefix):
            found = [info.key for info in walk(self._root / TEMPORARY, "", check_prefix(prefix))]
            pending = [name for name in found if which(name.rpartition(".")[0])]
        for name in pending:
            path = self._root / TEMPORARY / name
            with self._errors("delete", name), suppress(FileNotFoundError):
                path.unlink()
                prune(path.parent, self._root)
        return len(pending)

    def exists(self, key: str) -> bool:
        """See :class:`ObjectStore`."""
        with self._errors("read", key):
            try:
                return self.path_of(key).is_file()
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    return False
                raise

    def check(self) -> None:
        """See :class:`ObjectStore`."""
        check_store(self)

    def path_of(self, key: str) -> Path:
        """Return where the object *key* is, or would be, on this machine.

        :raises ConfigurationError: it cannot be a key
        """
        if check_key(key).partition("/")[0] == TEMPORARY:
            raise ConfigurationError(
                f"The key {key!r} lies in {TEMPORARY}, which holds unfinished writes.", remedy="Use another key."
            )
        return self._root / key

    def _create(self, key: str, fill: Callable[[BinaryIO], object], name: Callable[[Path, Path], None]) -> None:
        target, temporary = self.path_of(key), self._temporary(key)
        with self._errors("write", key):
            try:
                with in_directory(temporary, lambda: temporary.open("xb"), mode=self._mode()) as file:
                    fill(file)
                    file.flush()
                    os.fsync(file.fileno())
                in_directory(target, lambda: name(temporary, target), durable=True, mode=self._mode())
            finally:
                self._discard(temporary)

    def _temporary(self, key: str) -> Path:
        return self._root / TEMPORARY / f"{key}.{uuid.uuid4().hex}"

    def _discard(self, temporary: Path) -> None:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        prune(temporary.parent, self._root)

    @staticmethod
    def _link(temporary: Path, target: Path) -> None:
        try:
            os.link(temporary, target)
        except FileExistsError:
            # An NFS server's lost answer makes the repeated call fail although the first one worked.
            if temporary.stat().st_nlink != 2:
                raise
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            copy_exclusively(temporary, target)

    @contextmanager
    def _errors(self, operation: str, key: str) -> Iterator[None]:
        """Say an ``OSError`` in the project's words. Names the path, which holds no secret."""
        path = self._root / key
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
        except _NOTHING_THERE as error:
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


def linked(source: Path, target: Path, mode: int = 0o777) -> bool:
    """Give a file a second name; whether the file systems allow it.

    :param mode: of directories that are made for it
    """
    try:
        in_directory(target, lambda: os.link(source, target), mode=mode)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        return False
    return True


def _store_error(error: OSError, operation: str, path: Path, key: str) -> StoreError:
    message = f"Cannot {operation} {path}: {error.strerror}."
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return AccessDenied(
            message,
            remedy=f"Let the user {_user()} {operation} there, or name another directory for the event store.",
            path=path,
            key=key,
        )
    kind = StoreUnavailable if error.errno in _FOR_A_TIME else StoreError
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return kind(message, remedy="Make room, or move the event store.", path=path, key=key)
    return kind(message, remedy="Look at the file system of the event store.", path=path, key=key)


def _user() -> str:
    return f"{os.environ.get('USER', '')} (uid {os.geteuid()})".strip()


def file_uri(path: Path) -> str:
    """Return the URI of an absolute path, percent-encoded; :func:`storage.uris.parse_file_uri` reads it back."""
    return "file://" + quote(str(path), safe="/:+@,;=~()!*$&'", errors="surrogateescape")
