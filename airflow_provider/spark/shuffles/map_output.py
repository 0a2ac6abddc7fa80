"""Store one task's map output as objects of the partition store, and put it back as the files that reducers read.

Spark's sort shuffle leaves a ``.data`` file with the rows for each reducer, serialised and compressed, one after the
other; an ``.index`` file with the offset of each; and a file with a checksum for each. They are in the local
directories of an executor and die with it. The data file is stored as it is. A small object beside it describes it, and
is written last. In a later application both go into the local directories of one of its executors, where Spark's
reducers read them as if they had just been written.

Runs on executors and, with a local master, on the driver; uses no JVM.
"""

from __future__ import annotations

import shutil
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider.core.errors import CorruptObject
from airflow_provider.core.faults import AFTER_PARTITION_PUT, fault_point
from airflow_provider.core.partitions import MAP_OUTPUT, StoredPartition
from airflow_provider.spark.local_dirs import LocalDirs, leave_room, scratch_folder

if TYPE_CHECKING:
    from airflow_provider.spark.points.partition_io import Place
    from airflow_provider.storage.partition_store import PartitionStore

_HEADER = struct.Struct(">8sqqqQ")
"""Magic, rows, their bytes before compression, Spark's checksum of the rows, number of reducers."""
_MAGIC = b"MAPOUT02"
_OFFSET = 8
_CHUNK = 2**20
_CHECKSUMS = "ADLER32"
"""Spark's default for ``spark.shuffle.checksum.algorithm``; a file of another kind is not read."""
UNKNOWN = -1
"""Rows or bytes of a single task that Spark has not reported; such an output counts only if its shuffle is complete."""


@dataclass(frozen=True)
class MapOutput:
    """One map task's output.

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
        """Name of the file with the rows; it does not exist if there are no rows."""
        return f"shuffle_{self.shuffle}_{self.task}_0.data"

    @property
    def checksums(self) -> str:
        """Name of the file with a checksum for each reducer; it does not exist if Spark is set not to compute them."""
        return f"shuffle_{self.shuffle}_{self.task}_0.checksum.{_CHECKSUMS}"


@dataclass(frozen=True)
class Written:
    """What Spark reports of one map task.

    :ivar rows: that it wrote, or :data:`UNKNOWN`
    :ivar size: their bytes before compression, or :data:`UNKNOWN`
    :ivar checksum: Spark's own, over the rows; 0 if it computes none
    """

    rows: int = UNKNOWN
    size: int = UNKNOWN
    checksum: int = 0


@dataclass(frozen=True)
class Restored:
    """A map output that has been put back.

    :ivar written: Spark's report of the task
    :ivar sizes: bytes of its data for each reducer
    """

    written: Written
    sizes: tuple[int, ...]


def store_map_output(
    store: PartitionStore,
    dirs: LocalDirs,
    output: MapOutput,
    place: Place,
    written: Written,
    seconds: float,
    left: LocalDirs | None = None,
) -> StoredPartition | None:
    """Store one map output; ``None`` if its files are not here, or incomplete.

    :param dirs: of the executor that this runs on
    :param place: its name in the store
    :param seconds: what its task took
    :param left: the directories that its files are in, if they belong to a lost executor: put nothing else there,
        because files that are no shuffle files are deleted
    :raises RecoveryError: the store refused it
    """
    files = left or dirs
    data = files.file(output.data)
    try:
        offsets = _offsets(files.file(output.index).read_bytes())
        if offsets[-1] and data.stat().st_size != offsets[-1]:
            return None
        checksums = _checksums(files.file(output.checksums), data, offsets)
        with scratch_folder(dirs.paths[0]) as folder:
            path = folder / "map-output"
            description = _describe(offsets, checksums, written)
            path.write_bytes(description)
            partition = StoredPartition(
                **vars(place),
                rows=max(0, written.rows),
                checksum=f"{zlib.crc32(description):08x}",
                millis=round(seconds * 1000),
                bytes=len(description) + offsets[-1],
                suffix=MAP_OUTPUT,
                blocks=offsets[-1],
            )
            store.put_map_output(partition, path, data if offsets[-1] else None)
    except FileNotFoundError:
        return None
    fault_point(AFTER_PARTITION_PUT)
    return partition


def restore_map_output(
    store: PartitionStore, dirs: LocalDirs, partition: StoredPartition, output: MapOutput
) -> Restored:
    """Put a stored map output back as that of another task.

    :raises CorruptObject: it is damaged, which is marked in the store
    :raises ObjectNotFound: it is gone
    :raises NoRoom: the local disk would be full
    """
    try:
        with scratch_folder(str(dirs.directory(output.data))) as folder:
            path = folder / "map-output"
            store.fetch(partition, path)
            offsets, checksums, written = _read_description(path.read_bytes(), partition)
            if offsets[-1]:
                leave_room(folder, offsets[-1])
                blocks = folder / "blocks"
                store.fetch_blocks(partition, blocks)
                if blocks.stat().st_size != offsets[-1] or _computed(blocks, offsets) != checksums:
                    raise _not_one(partition)
                _put(blocks, dirs.file(output.data))
            index = folder / "index"
            index.write_bytes(struct.pack(f">{len(offsets)}q", *offsets))
            _put(index, dirs.file(output.index))
    except CorruptObject:
        store.mark_corrupt(partition)
        raise
    return Restored(written, tuple(end - start for start, end in pairwise(offsets)))


def remove_map_output(dirs: LocalDirs, output: MapOutput) -> None:
    """Delete what :func:`restore_map_output` put back; Spark deletes files of its own tasks only."""
    for name in (output.index, output.data):
        with suppress(FileNotFoundError):
            dirs.file(name).unlink()


def _describe(offsets: Sequence[int], checksums: Sequence[int], written: Written) -> bytes:
    header = _HEADER.pack(_MAGIC, written.rows, written.size, written.checksum, len(checksums))
    return header + zlib.compress(struct.pack(f">{len(offsets)}q{len(checksums)}Q", *offsets, *checksums), 1)


def _read_description(content: bytes, partition: StoredPartition) -> tuple[tuple[int, ...], tuple[int, ...], Written]:
    try:
        magic, rows, size, checksum, reducers = _HEADER.unpack_from(content)
        size_of_numbers = (2 * reducers + 1) * _OFFSET
        numbers = zlib.decompressobj().decompress(content[_HEADER.size :], size_of_numbers)
        offsets = struct.unpack_from(f">{reducers + 1}q", numbers)
        checksums = struct.unpack_from(f">{reducers}Q", numbers, (reducers + 1) * _OFFSET)
    except (struct.error, zlib.error, OverflowError) as error:
        raise _not_one(partition) from error
    if magic != _MAGIC or offsets[0] != 0 or any(start > end for start, end in pairwise(offsets)):
        raise _not_one(partition)
    return offsets, checksums, Written(rows, size, checksum)


def _not_one(partition: StoredPartition) -> CorruptObject:
    return CorruptObject(
        f"The map output {partition.key} is damaged.", remedy="It has to be computed again.", key=partition.key
    )


def _checksums(path: Path, data: Path, offsets: Sequence[int]) -> tuple[int, ...]:
    """Return the checksum of each reducer's rows: Spark's, or our own if it has computed none."""
    with suppress(FileNotFoundError):
        content = path.read_bytes()
        if len(content) == (len(offsets) - 1) * _OFFSET:
            return struct.unpack(f">{len(offsets) - 1}Q", content)
    return _computed(data, offsets)


def _computed(data: Path, offsets: Sequence[int]) -> tuple[int, ...]:
    """Return the Adler-32 checksum of each reducer's rows."""
    if not offsets[-1]:
        return (1,) * (len(offsets) - 1)
    found = []
    with data.open("rb") as file:
        for start, end in pairwise(offsets):
            checksum, left = 1, end - start
            while left:
                chunk = file.read(min(left, _CHUNK))
                if not chunk:
                    return ()
                checksum = zlib.adler32(chunk, checksum)
                left -= len(chunk)
            found.append(checksum)
    return tuple(found)


def _put(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target) if source.parent.stat().st_dev == target.parent.stat().st_dev else shutil.move(
        source, target
    )


def _offsets(index: bytes) -> tuple[int, ...]:
    """Return where each reducer's rows start, and finally where they all end.

    :raises FileNotFoundError: the file is no index, so there is no map output
    """
    if not index or len(index) % _OFFSET:
        raise FileNotFoundError
    return struct.unpack(f">{len(index) // _OFFSET}q", index)
