"""Stores for tests that pass calls on to a real one, count them, and fail where they are told to."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from airflow_provider.storage.object_store import ObjectInfo, ObjectStore, Readable, every


class WatchedStore:
    """Counts the calls by operation; ``before(operation, key)`` runs first and may raise or do something."""

    def __init__(self, store: ObjectStore, before: Callable[[str, str], None] | None = None) -> None:
        self.store = store
        self.calls: Counter[str] = Counter()
        self.before = before or (lambda operation, key: None)
        self._lock = threading.Lock()

    @property
    def uri(self) -> str:
        return self.store.uri

    def _called(self, operation: str, key: str) -> None:
        with self._lock:
            self.calls[operation] += 1
        self.before(operation, key)

    def put_new(self, key: str, body: bytes) -> None:
        self._called("put_new", key)
        self.store.put_new(key, body)

    def put(self, key: str, body: bytes) -> None:
        self._called("put", key)
        self.store.put(key, body)

    def upload(self, key: str, path: Path, through: Callable[[BinaryIO], Readable] | None = None) -> None:
        self._called("upload", key)
        self.store.upload(key, path, through)

    def share(self, key: str, path: Path) -> None:
        self._called("upload", key)
        self.store.share(key, path)

    def borrow(self, key: str, path: Path) -> None:
        self._called("download", key)
        self.store.borrow(key, path)

    def get(self, key: str) -> bytes:
        self._called("get", key)
        return self.store.get(key)

    def get_end(self, key: str, most: int) -> tuple[bytes, int]:
        self._called("get_end", key)
        return self.store.get_end(key, most)

    def download(self, key: str, path: Path) -> None:
        self._called("download", key)
        self.store.download(key, path)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._called("list", prefix)
        return self.store.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        keys = list_of(keys)
        self._called("delete", keys[0] if keys else "")
        self.store.delete(keys)

    def forget_folders(self, prefix: str) -> None:
        self._called("forget_folders", prefix)
        self.store.forget_folders(prefix)

    def abort_uploads(self, prefix: str, which: Callable[[str], bool] = every) -> int:
        self._called("abort_uploads", prefix)
        return self.store.abort_uploads(prefix, which)

    def exists(self, key: str) -> bool:
        self._called("exists", key)
        return self.store.exists(key)


def list_of(keys: Iterable[str]) -> list[str]:
    return [*keys]
