"""Store one partition of a cached DataFrame as objects of the partition store, and fetch it again.

Its batches are in one file, see ``CachedBatches.java``. As with a map output, a small object beside it describes it,
and is written last. The file may be one of Spark's own, and is not changed. Uses no JVM.
"""

from __future__ import annotations

import struct
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider.core.errors import CorruptObject
from airflow_provider.core.faults import AFTER_PARTITION_PUT, fault_point
from airflow_provider.core.partitions import MAP_OUTPUT, StoredPartition
from airflow_provider.storage.partition_store import file_checksum

if TYPE_CHECKING:
    from airflow_provider.spark.points.partition_io import Place
    from airflow_provider.storage.partition_store import PartitionStore

_HEADER = struct.Struct(">8s8sqI")
"""Magic, and what :class:`Batches` says."""
_MAGIC = b"BATCHES2"
_CODECS = frozenset({"none", "lz4", "lzf", "snappy", "zstd"})
"""By their names in Spark."""


@dataclass(frozen=True)
class Batches:
    """The file with a partition's batches.

    :ivar codec: with which it is compressed
    :ivar length: bytes of the file
    :ivar checksum: CRC-32 of the file
    """

    codec: str
    length: int
    checksum: int


def store_batches(
    store: PartitionStore, place: Place, path: Path, batches: Batches, seconds: float
) -> tuple[StoredPartition, float]:
    """Store a partition; return it, and the seconds that this took.

    :param place: its name in the store
    :param path: of its file; another one may be made beside it
    :param seconds: what computing it took
    :raises RecoveryError: the store refused it
    """
    began, described = time.monotonic(), path.with_name("description")
    description = _HEADER.pack(_MAGIC, batches.codec.encode(), batches.length, batches.checksum)
    described.write_bytes(description)
    partition = StoredPartition(
        **vars(place),
        rows=0,  # nobody has counted them
        checksum=f"{zlib.crc32(description):08x}",
        millis=round(seconds * 1000),
        bytes=len(description) + batches.length,
        suffix=MAP_OUTPUT,
        blocks=batches.length,
    )
    store.put_map_output(partition, described, path)
    fault_point(AFTER_PARTITION_PUT)
    return partition, time.monotonic() - began


def fetch_batches(store: PartitionStore, partition: StoredPartition, path: Path) -> Batches:
    """Write a stored partition's file to *path*; another one may be made beside it.

    :raises CorruptObject: it is damaged, which is marked in the store
    :raises ObjectNotFound: it is gone
    """
    described = path.with_name("description")
    try:
        store.fetch(partition, described)
        store.fetch_blocks(partition, path)
        with suppress(struct.error):
            magic, codec, length, checksum = _HEADER.unpack(described.read_bytes())
            batches = Batches(codec.rstrip(b"\0").decode(errors="replace"), length, checksum)
            found = (magic, path.stat().st_size, int(file_checksum(path), 16))
            if found == (_MAGIC, length, checksum) and batches.codec in _CODECS:
                return batches
        raise CorruptObject(
            f"The partition {partition.key} of a cached DataFrame is damaged.",
            remedy="It has to be computed again.",
            key=partition.key,
        )
    except CorruptObject:
        store.mark_corrupt(partition)
        raise
