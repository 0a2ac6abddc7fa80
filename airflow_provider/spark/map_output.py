"""One task's map output as an object: the two files that it leaves for the reducers of a shuffle.

Spark's sort shuffle leaves a ``.data`` file with the rows for each reducer, serialised and compressed, one reducer's
behind the other's, and an ``.index`` file that tells where each begins. They lie in the local directories of an
executor and die with it. Together they are stored as they are; in a later application they are put into the local
directories of one of its executors, from where Spark's reducers read them as if they had just been written.

Runs on executors and, with a local master, on the driver; knows no JVM.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING

from airflow_provider.recovery.errors import CorruptObject
from airflow_provider.recovery.faults import AFTER_PARTITION_PUT, fault_point
from airflow_provider.recovery.partitions import MAP_OUTPUT, StoredPartition

if TYPE_CHECKING:
    from airflow_provider.spark.partition_io import Place
    from airflow_provider.storage.partition_store import PartitionStore

_HEADER = struct.Struct(">8sQQQ")
"""Magic, rows, their bytes before they are compressed, bytes of the index."""
_MAGIC = b"MAPOUT01"
_OFFSET = 8
_CHUNK = 2**20


@dataclass(frozen=True)
class LocalDirs:
    """The local directories of an executor, as its block manager names files in them.

    :ivar paths: the directories
    :ivar fanout: folders in each (``spark.diskStore.subDirectories``)
    """

    paths: tuple[str, ...]
    fanout: int = 64

    def file(self, name: str) -> Path:
        """Return where a block's file lies: a folder by the hash of its name."""
        hashed = _java_hash(name)
        folder = hashed // len(self.paths) % self.fanout
        return Path(self.paths[hashed % len(self.paths)], f"{folder:02x}", name)


@dataclass(frozen=True)
class MapOutput:
    """What one map task has left.

    :ivar shuffle: Spark's shuffle id
    :ivar task: Spark's map id, unique within the application
    """

    shuffle: int
    task: int

    @property
    def index(self) -> str:
        """Name of the file with the offsets."""
        return f"shuffle_{self.shuffle}_{self.task}_0.index"

    @property
    def data(self) -> str:
        """Name of the file with the rows; there is none where there are no rows."""
        return f"shuffle_{self.shuffle}_{self.task}_0.data"


@dataclass(frozen=True)
class RowWidth:
    """The rows of a shuffle, on average.

    :ivar rows: how many stand in a byte of its files
    :ivar size: bytes that a byte of its files had before it was compressed
    """

    rows: float
    size: float

    @classmethod
    def of(cls, rows: int, size: int, files: int) -> RowWidth:
        """Return that of so many rows, of *size* bytes before they were compressed and *files* bytes after that."""
        return cls(rows / files, size / files) if files else cls(0, 0)


@dataclass(frozen=True)
class Restored:
    """A map output that has been put back.

    :ivar rows: how many, about; 0 only if there are none
    :ivar size: their bytes before they were compressed, about
    :ivar sizes: bytes of its data for each reducer
    """

    rows: int
    size: int
    sizes: tuple[int, ...]


def store_map_output(
    store: PartitionStore, dirs: LocalDirs, output: MapOutput, place: Place, width: RowWidth, seconds: float
) -> StoredPartition | None:
    """Store one map output; ``None`` if its files are not here, or not whole.

    :param place: under which name
    :param seconds: what its task took
    :raises RecoveryError: the store refused it
    """
    index, data = dirs.file(output.index), dirs.file(output.data)
    try:
        offsets = index.read_bytes()
        length = _offsets(offsets)[-1]
        if length and data.stat().st_size != length:
            return None
        rows = max(1, round(length * width.rows)) if length else 0
        header = _HEADER.pack(_MAGIC, rows, round(length * width.size), len(offsets))
        with _temporary(dirs) as path:
            checksum = _write(path, header + offsets, data if length else None)
            partition = StoredPartition(
                **vars(place),
                rows=rows,
                checksum=f"{checksum:08x}",
                millis=round(seconds * 1000),
                bytes=path.stat().st_size,
                suffix=MAP_OUTPUT,
            )
            store.put(partition, path)
    except FileNotFoundError:
        return None
    fault_point(AFTER_PARTITION_PUT)
    return partition


def restore_map_output(
    store: PartitionStore, dirs: LocalDirs, partition: StoredPartition, output: MapOutput
) -> Restored:
    """Put a stored map output back as that of another task.

    :raises CorruptObject: it is damaged, which is marked in the store
    :raises ObjectNotFound: it is not there any more
    """
    with _temporary(dirs) as path:
        try:
            store.fetch(partition, path)
            return _unpack(path, dirs, output, partition)
        except CorruptObject:
            store.mark_corrupt(partition)
            raise


def _unpack(path: Path, dirs: LocalDirs, output: MapOutput, partition: StoredPartition) -> Restored:
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
        magic, rows, size, length = _HEADER.unpack(head) if len(head) == _HEADER.size else (b"", 0, 0, 0)
        index = file.read(length)
        offsets = _offsets(index)
        if magic != _MAGIC or len(index) != length or path.stat().st_size != _HEADER.size + length + offsets[-1]:
            raise CorruptObject(
                f"The map output {partition.key} is not one.", remedy="It has to be computed again.", key=partition.key
            )
        if offsets[-1]:
            _put(dirs.file(output.data), file)
    target = dirs.file(output.index)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(index)
    return Restored(rows, size, tuple(end - start for start, end in pairwise(offsets)))


def _put(target: Path, rest: IO[bytes]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        shutil.copyfileobj(rest, file, _CHUNK)


def _write(path: Path, head: bytes, data: Path | None) -> int:
    """Write *head* and what is in *data*; return the CRC-32 of both."""
    checksum = zlib.crc32(head)
    with path.open("wb") as file:
        file.write(head)
        if data is not None:
            with data.open("rb") as source:
                while chunk := source.read(_CHUNK):
                    checksum = zlib.crc32(chunk, checksum)
                    file.write(chunk)
    return checksum


@contextmanager
def _temporary(dirs: LocalDirs) -> Iterator[Path]:
    """Yield the path of a file that is gone afterwards, on the disk that is meant for shuffles."""
    with tempfile.TemporaryDirectory(prefix="spark-recovery-", dir=dirs.paths[0]) as folder:
        yield Path(folder) / "map-output"


def _offsets(index: bytes) -> Sequence[int]:
    """Return where each reducer's rows begin, and at last where they all end."""
    return struct.unpack(f">{len(index) // _OFFSET}q", index) if index and len(index) % _OFFSET == 0 else (0,)


def _java_hash(text: str) -> int:
    """Return Java's hash code of an ASCII text, never negative, as Spark's block manager takes it."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    signed = value - 2**32 if value >= 2**31 else value
    return abs(signed) if signed != -(2**31) else 0
