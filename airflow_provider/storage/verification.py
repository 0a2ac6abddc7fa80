"""Check stored partitions before they are reused, where the medium itself does not.

S3 guards its objects against decay, and what is read through Arrow is checked on the way in. A plain file system gives
no such promise, and Spark's own reader checks pages but not footers. Reading a local file once is cheap against
computing it, so files are checked whole.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from airflow_provider.core.partitions import StoredPartition
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.sealing import SealedStore

_CHUNK = 4 * 2**20


def find_damaged(store: ObjectStore, prefix: str, partitions: Iterable[StoredPartition]) -> list[StoredPartition]:
    """Return those of *partitions* whose content does not match their checksum or seal; none for stores on S3."""
    plain = store.plain if isinstance(store, SealedStore) else store
    if not isinstance(plain, FileObjectStore):
        return []
    checked = list(partitions)

    def is_sound(partition: StoredPartition) -> bool:
        key = f"{prefix}/{partition.key}"
        path = plain.path_of(key)
        try:
            return store.is_sealed(key, path) if isinstance(store, SealedStore) else _is_sound(path, partition)
        except OSError:
            return False

    with ThreadPoolExecutor(max_workers=4) as pool:
        sound = pool.map(is_sound, checked)
        return [partition for partition, good in zip(checked, sound, strict=True) if not good]


def _is_sound(path: Path, partition: StoredPartition) -> bool:
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return f"{checksum:08x}" == partition.checksum
