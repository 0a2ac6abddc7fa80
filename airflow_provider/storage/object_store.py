"""The interface of a store: only operations that recovery needs and that every S3 look-alike gets right.

Create-only put, get, delete by key, paged listing. No rename, no read-modify-write, no condition but "does not exist
yet". Errors are those of :mod:`airflow_provider.core.errors` and carry the object's address.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from airflow_provider.core.errors import ObjectNotFound, StoreError

_counting = threading.Lock()
_repeated = 0


@dataclass(frozen=True)
class ObjectInfo:
    """One entry of a listing; ``size`` in bytes."""

    key: str
    size: int
    modified_at: float
    """Seconds since the Unix epoch on the store's clock."""


class Readable(Protocol):
    """A stream that is read once, from beginning to end."""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next *size* bytes, by default all that are left; fewer, or a few more, only at the end."""


def every(_: str) -> bool:
    """Accept any key."""
    return True


class ObjectStore(Protocol):
    """A flat namespace of byte strings below one root. Keys use ``/`` and never begin or end with it.

    Stores derive from it and inherit these docstrings.
    """

    @property
    def uri(self) -> str:
        """The root as the user wrote it, normalised; never holds a secret."""

    def put_new(self, key: str, body: bytes) -> None:
        """Create an object; small bodies only (claims, event blocks).

        :raises ObjectExists: the key is taken, perhaps by our own retried request: compare the content
        """

    def put(self, key: str, body: bytes) -> None:
        """Create or replace an object. Only for objects with a single owner: the heartbeat."""

    def upload(self, key: str, path: Path, through: Callable[[BinaryIO], Readable] | None = None) -> None:
        """Create an object of any size from a local file; invisible until complete. *key* must be unique.

        :param through: returns the stream to store in place of the file itself
        """

    def share(self, key: str, path: Path) -> None:
        """Create an object from a local file that no longer changes, as cheaply as the store can.

        Uses a hard link if the file system allows it, else :meth:`upload`. It need not be flushed to disk, because
        readers check the content. *key* must be unique.
        """
        self.upload(key, path)

    def borrow(self, key: str, path: Path) -> None:
        """Write an object's content to a local file that will not be changed, as cheaply as the store can.

        :raises ObjectNotFound: there is none
        """
        self.download(key, path)

    def get(self, key: str) -> bytes:
        """Return an object's content. :raises ObjectNotFound: there is none."""

    def get_end(self, key: str, most: int) -> tuple[bytes, int]:
        """Return the last *most* bytes of an object, or all if it has fewer, and its size.

        :raises ObjectNotFound: there is none
        """
        content = self.get(key)
        return content[-most:], len(content)

    def download(self, key: str, path: Path) -> None:
        """Write an object's content to a local file. :raises ObjectNotFound: there is none."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose keys start with *prefix*, ordered by key, one request per 1,000."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, in batches; keys that do not exist are no error."""

    def forget_folders(self, prefix: str) -> None:
        """Delete the objects with which other clients, such as Hadoop, mark folders below *prefix*; no listing shows
        them.
        """
        return

    def abort_uploads(self, prefix: str, which: Callable[[str], bool] = every) -> int:
        """Abort unfinished multipart uploads below *prefix* whose keys *which* accepts; return how many there were."""

    def exists(self, key: str) -> bool:
        """Whether there is an object under *key*."""


def already_there(store: ObjectStore, key: str) -> bytes:
    """Return the object that made a create-only write fail.

    :raises StoreError: there is none, so the store's conditions are unreliable
    """
    try:
        return store.get(key)
    except ObjectNotFound as error:
        raise StoreError(
            f"{store.uri} says that {key} exists when it should be created, and that it does not when it is read.",
            remedy="Its conditional writes (If-None-Match) cannot be relied on; use a store where they work.",
            key=key,
        ) from error


def requests_repeated() -> int:
    """Return how many requests this process has repeated after a failed one."""
    return _repeated


def count_repeated() -> None:
    """Count one repeated request."""
    global _repeated
    with _counting:
        _repeated += 1
