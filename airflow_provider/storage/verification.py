"""Check stored partitions before they are reused, where the medium itself does not.

S3 guards its objects against decay, and what is read through Arrow is checked on the way in. A plain file system gives
no such promise, and Spark's own reader checks pages but not footers. Reading a local file once is cheap against
computing it, so files are checked whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from airflow_provider.core.partitions import StoredPartition
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.partition_store import file_checksum
from airflow_provider.storage.sealing import SealedStore


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
            if isinstance(store, SealedStore):
                return store.is_sealed(key, path)
            return file_checksum(path) == partition.checksum
        except OSError:
            return False

    with ThreadPoolExecutor(max_workers=4) as pool:
        sound = pool.map(is_sound, checked)
        return [partition for partition, good in zip(checked, sound, strict=True) if not good]
