"""The finished partitions of a job, found again by one listing. Their names say everything (``recovery.partitions``).

Objects are written once; one that turns out damaged gets a marker beside it and is never used again. What Spark's own
writer makes lies in a folder of its own (:class:`WriteFolder`) until its driver, or that of the next attempt, gives
each file the key of a partition.
"""

from __future__ import annotations

import tempfile
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from airflow_provider.core.errors import CorruptObject, ObjectExists, ObjectNotFound
from airflow_provider.core.partitions import FOLDER, MAP_OUTPUT, WHOLE, StoredPartition, WriteFolder
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.parquet_footer import rows_in

_CORRUPT = ".corrupt"
_BLOCKS = ".blocks"
"""Ends the key of what the reducers read of a map output; the partition's own object says what is in it."""
_CHUNK = 1024**2


def file_checksum(path: Path) -> str:
    """Return the CRC-32 of a file as eight hexadecimal digits, the form that a partition's key carries."""
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return f"{checksum:08x}"


class PartitionStore:
    """The partitions of the job whose objects lie below *prefix*. Threads may share it."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def survivors(self) -> dict[str, list[StoredPartition]]:
        """Return what is stored, by vertex, without what was marked corrupt. One listing, no request per object."""
        return self._listed()[0]

    def adopt(self, base: int, before: int) -> dict[str, list[StoredPartition]]:
        """Return :meth:`survivors`, among them what Spark has written for attempts from *base* to *before*, that
        excluded, and their drivers have not come to: it gets the keys of partitions. Then the folders of their writes
        go, and those of earlier attempts.
        """
        found, writes = self._listed()
        for folder, files in writes.items():
            if folder.epoch >= before:
                continue
            if folder.epoch >= base and folder.layout != WHOLE:  # of that nothing counts which no event tells of
                known = {(each.epoch, each.index, each.checksum) for each in found.get(folder.vertex, ())}
                found.setdefault(folder.vertex, []).extend(self._adopted(folder, files, known))
            self.end_write(folder)
        return {vertex: partitions for vertex, partitions in found.items() if partitions}

    def _listed(self) -> tuple[dict[str, list[StoredPartition]], dict[WriteFolder, dict[int, str]]]:
        """Return the partitions by vertex, and the files of each write by index."""
        found: list[StoredPartition] = []
        corrupt: set[str] = set()
        writes: dict[WriteFolder, dict[int, str]] = defaultdict(dict)
        for info in self._store.list(f"{self._prefix}/{FOLDER}/"):
            key = info.key.removeprefix(f"{self._prefix}/")
            if key.endswith(_CORRUPT):
                corrupt.add(key.removesuffix(_CORRUPT))
            elif key.endswith(_BLOCKS):
                continue
            elif (partition := StoredPartition.from_key(key, info.size)) is not None:
                found.append(partition)
            elif (written := WriteFolder.of_object(key)) is not None:
                folder, index = written
                writes[folder].update({} if index is None else {index: info.key})
        by_vertex: dict[str, list[StoredPartition]] = {}
        for partition in found:
            if partition.key not in corrupt:
                by_vertex.setdefault(partition.vertex, []).append(partition)
        return by_vertex, writes

    def _adopted(
        self, folder: WriteFolder, files: Mapping[int, str], known: Collection[tuple[int, int, str]]
    ) -> Iterable[StoredPartition]:
        """Give the files of a write the keys of partitions.

        :param known: attempt, index and checksum of what has one already
        """
        for index, key in files.items():
            with (
                suppress(ObjectNotFound),
                tempfile.TemporaryDirectory(prefix="spark-recovery-", ignore_cleanup_errors=True) as place,
            ):
                path = Path(place, "partition.parquet")
                self._store.download(key, path)
                checksum, rows = file_checksum(path), rows_in(path)
                if rows is None or (folder.epoch, index, checksum) in known:
                    continue
                partition = folder.partition(index, rows=rows, checksum=checksum, size=path.stat().st_size)
                self.put(partition, path)
                yield partition

    def put(self, partition: StoredPartition, path: Path) -> None:
        """Store the file at *path* as *partition*; it appears whole or not at all.

        Not conditional: the key carries attempt, task and checksum, so nobody else writes it, and a repeated request
        writes the same bytes.
        """
        self._store.upload(self._key(partition), path)

    def take(self, partition: StoredPartition, path: Path) -> None:
        """Store the file at *path*, which nobody changes any more, as *partition*, without a copy where that can be."""
        self._store.share(self._key(partition), path)

    def end_write(self, folder: WriteFolder) -> None:
        """Delete a folder and what is left in it."""
        self._store.delete([info.key for info in self._store.list(f"{self._prefix}/{folder.key}/")])
        if isinstance(self._store, FileObjectStore):
            self._store.remove_empty(f"{self._prefix}/{folder.key}")

    def fetch(self, partition: StoredPartition, path: Path) -> None:
        """Write the content of *partition* to *path*.

        :raises ObjectNotFound: it is not there any more
        :raises CorruptObject: its size or checksum is not the one in its name or listing; mark it corrupt
        """
        self._store.download(self._key(partition), path)
        size, checksum = path.stat().st_size, file_checksum(path)
        expected = partition.bytes - partition.blocks if partition.bytes else 0
        if (expected and size != expected) or checksum != partition.checksum:
            raise CorruptObject(
                f"The partition {self._key(partition)} in {self._store.uri} is damaged: {size} bytes with checksum "
                f"{checksum}, expected {expected or 'any number of'} bytes with {partition.checksum}.",
                remedy="It has to be computed again.",
                key=self._key(partition),
            )

    def put_map_output(self, partition: StoredPartition, description: Path, blocks: Path | None) -> None:
        """Store a map output; the partition is there once all of it is.

        :param description: says what is in the blocks; its checksum is the partition's
        :param blocks: the data file as Spark wrote it, which stays as it is; ``None`` where there are no rows
        """
        if blocks is not None:
            self._store.share(self._key(partition) + _BLOCKS, blocks)
        self._store.share(self._key(partition), description)

    def fetch_blocks(self, partition: StoredPartition, path: Path) -> None:
        """Write the blocks of a map output to *path*, which must not exist. The caller checks them.

        :raises ObjectNotFound: they are not there any more
        """
        self._store.borrow(self._key(partition) + _BLOCKS, path)

    def mark_corrupt(self, partition: StoredPartition) -> None:
        """Never let :meth:`survivors` return *partition* again."""
        try:
            self._store.put_new(self._key(partition) + _CORRUPT, b"")
        except ObjectExists:
            return

    def release(self, up_to: int) -> int:
        """Delete the partitions of attempt *up_to* and earlier ones, and abort their unfinished uploads.

        A later attempt, which may be at work, is left alone; foreign objects go in any case.

        :returns: how many partitions were deleted
        """
        listed = self._store.list(f"{self._prefix}/{FOLDER}/")
        keys = [info.key for info in listed if self._written(info.key, up_to)]
        # Markers last: an object whose marker is gone would count as sound.
        markers = [key for key in keys if key.endswith(_CORRUPT)]
        objects = [key for key in keys if not key.endswith(_CORRUPT)]
        self._store.delete(objects)
        self._store.delete(markers)
        self.abort_uploads(up_to)
        return sum(not key.endswith(_BLOCKS) for key in objects)

    def release_beside(self, vertex: str, kept: Collection[str], epoch: int, task: int) -> int:
        """Delete what tasks of attempt *epoch* have stored of a vertex beside what is *kept*, and abort their
        unfinished uploads; return how many partitions were deleted.

        :param kept: keys below the job's prefix
        :param task: the newest task that counts: later ones may be at work
        """

        def useless(key: str) -> bool:
            relative = key.removeprefix(f"{self._prefix}/").removesuffix(_CORRUPT).removesuffix(_BLOCKS)
            partition = StoredPartition.from_key(relative, 0)
            earlier = partition is not None and partition.epoch == epoch and partition.task <= task
            return earlier and relative not in kept

        folder = f"{self._prefix}/{FOLDER}/{vertex}/"
        keys = [info.key for info in self._store.list(folder) if useless(info.key)]
        self._store.delete(keys)
        self._store.abort_uploads(folder, useless)
        return sum(not key.endswith((_BLOCKS, _CORRUPT)) for key in keys)

    def delete(self, partitions: Iterable[StoredPartition]) -> None:
        """Delete single partitions."""
        keys = [self._key(partition) for partition in partitions]
        self._store.delete([*keys, *(key + _BLOCKS for key in keys if key.endswith(MAP_OUTPUT))])

    def abort_uploads(self, up_to: int) -> int:
        """Abort the unfinished uploads of attempt *up_to* and earlier ones; return how many there were."""
        return self._store.abort_uploads(f"{self._prefix}/{FOLDER}/", lambda key: self._written(key, up_to))

    def _written(self, key: str, up_to: int) -> bool:
        """Whether *key* was written by *up_to* or an earlier attempt, or is no partition at all."""
        relative = key.removeprefix(f"{self._prefix}/").removesuffix(_CORRUPT).removesuffix(_BLOCKS)
        written = WriteFolder.of_object(relative)
        by = written[0] if written is not None else StoredPartition.from_key(relative, 0)
        return by is None or by.epoch <= up_to

    def _key(self, partition: StoredPartition) -> str:
        return f"{self._prefix}/{partition.key}"
