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

from airflow_provider.recovery.partitions import StoredPartition
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.object_store import ObjectStore

_CHUNK = 4 * 2**20


def find_damaged(store: ObjectStore, prefix: str, partitions: Iterable[StoredPartition]) -> list[StoredPartition]:
    """Return those of *partitions* whose content does not match their checksum; none for stores that check it."""
    if not isinstance(store, FileObjectStore):
        return []
    checked = list(partitions)
    with ThreadPoolExecutor(max_workers=4) as pool:
        sound = pool.map(lambda p: _is_sound(store.path_of(f"{prefix}/{p.key}"), p), checked)
        return [partition for partition, good in zip(checked, sound, strict=True) if not good]


def _is_sound(path: Path, partition: StoredPartition) -> bool:
    checksum = 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                checksum = zlib.crc32(chunk, checksum)
    except OSError:
        return False
    return f"{checksum:08x}" == partition.checksum
