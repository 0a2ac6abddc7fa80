"""Store a job's finished partitions and find them again with one listing, by their names (``core.partitions``).

Objects are written once; a damaged one gets a marker beside it and is never used again. Spark's own writer puts its
files into a separate folder (:class:`WriteFolder`). A file counts as soon as its driver, or that of the next attempt,
has given it a partition key without copying it: by a link if the store is a folder, else by a small object that names
the file.
"""

from __future__ import annotations

import tempfile
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from airflow_provider.core.errors import CorruptObject, ObjectExists, ObjectNotFound
from airflow_provider.core.partitions import FOLDER, MAP_OUTPUT, WHOLE, WRITTEN, StoredPartition, WriteFolder
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.object_store import ObjectInfo, ObjectStore
from airflow_provider.storage.parquet_footer import Footer, bytes_of_footer, footer_of, read_footer

_CORRUPT = ".corrupt"
_BLOCKS = ".blocks"
"""Ends the key of what the reducers read of a map output; the partition's own object says what is in it."""
_CHUNK = 1024**2
_FOOTER = 64 * 1024
"""What is read of a file's end at once: enough for the footer of most."""


def file_checksum(path: Path) -> str:
    """Return the CRC-32 of a file as eight hexadecimal digits, as in a partition's key."""
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return f"{checksum:08x}"


class PartitionStore:
    """The partitions of the job with the key prefix *prefix*. Thread-safe."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def survivors(self) -> dict[str, list[StoredPartition]]:
        """Return the stored partitions by vertex, without those marked corrupt. One listing, no request per object."""
        return self._listed()[0]

    def adopt(self, base: int, before: int) -> dict[str, list[StoredPartition]]:
        """Return :meth:`survivors`, including files that Spark wrote for attempts from *base* up to, but not including,
        *before* and that no driver recorded: they get partition keys. Then delete the folders of these writes and of
        earlier attempts.
        """
        found, writes = self._listed()
        for folder, files in writes.items():
            if folder.epoch >= before:
                continue
            of_vertex = found.get(folder.vertex, [])
            if folder.epoch >= base and folder.layout != WHOLE:  # of these, unrecorded files do not count
                of_vertex = found.setdefault(folder.vertex, of_vertex)
                of_vertex += self._adopted(folder, files, tuple(of_vertex))
            self.end_write(folder, of_vertex)
        return {vertex: partitions for vertex, partitions in found.items() if partitions}

    def _listed(self) -> tuple[dict[str, list[StoredPartition]], dict[WriteFolder, dict[int, ObjectInfo]]]:
        """Return the partitions by vertex, and the files of each write by index."""
        found: list[StoredPartition] = []
        corrupt: set[str] = set()
        writes: dict[WriteFolder, dict[int, ObjectInfo]] = defaultdict(dict)
        sizes: dict[str, int] = {}
        for info in self._store.list(f"{self._prefix}/{FOLDER}/"):
            key = self._relative(info.key)
            if key.endswith(_CORRUPT):
                corrupt.add(key.removesuffix(_CORRUPT))
            elif key.endswith(_BLOCKS):
                continue
            elif (partition := StoredPartition.from_key(key, info.size)) is not None:
                found.append(partition)
            elif (written := WriteFolder.of_object(key)) is not None:
                folder, index = written
                sizes[key] = info.size
                writes[folder].update({} if index is None else {index: info})
        by_vertex: dict[str, list[StoredPartition]] = {}
        for partition in found:
            lost = partition.suffix == WRITTEN and sizes.get(partition.content_key) != partition.content_bytes
            if partition.key not in corrupt and not (lost and partition.content_bytes):
                by_vertex.setdefault(partition.vertex, []).append(partition)
        return by_vertex, writes

    def _adopted(
        self, folder: WriteFolder, files: Mapping[int, ObjectInfo], known: Collection[StoredPartition]
    ) -> Iterable[StoredPartition]:
        """Give partition keys to the files of a write.

        :param known: partitions that already have one
        """
        if not isinstance(self._store, FileObjectStore):
            named = {partition.content_key for partition in known}
            for index in files:
                if folder.file_of(index) not in named:
                    with suppress(CorruptObject, ObjectNotFound):
                        yield self.name_written(folder, index)
            return
        contents = {(partition.epoch, partition.index, partition.checksum) for partition in known}
        for index, info in files.items():
            with (
                suppress(ObjectNotFound),
                tempfile.TemporaryDirectory(prefix="spark-recovery-", ignore_cleanup_errors=True) as place,
            ):
                path = Path(place, "partition.parquet")
                self._store.download(info.key, path)
                checksum, footer = file_checksum(path), footer_of(path)
                if footer is None or (folder.epoch, index, checksum) in contents:
                    continue
                partition = folder.partition(index, rows=footer.rows, checksum=checksum, bytes=path.stat().st_size)
                self.put(partition, path)
                yield partition

    def name_written(
        self, folder: WriteFolder, index: int, *, rows: int | None = None, task: int = 0, millis: int = 0
    ) -> StoredPartition:
        """Give a file of Spark's writer its partition key, through a small object that names it.

        Idempotent: a repetition writes the same.

        :param rows: number of rows that the task wrote, 0 if it left no file; ``None`` if unknown
        :raises ObjectNotFound: there is no file
        :raises CorruptObject: it is incomplete, or has another number of rows
        """
        facts = {"task": task, "millis": millis, "write": folder.number, "suffix": WRITTEN}
        named = folder.file_of(index)
        if rows == 0:
            partition = folder.partition(index, rows=0, checksum=f"{0:08x}", **facts)
        else:
            footer, size = self._footer(f"{self._prefix}/{named}")
            if footer is None or rows not in (None, footer.rows):
                raise CorruptObject(
                    f"{self._store.uri}/{self._prefix}/{named} is no Parquet file with {rows or 'any'} rows.",
                    remedy="It has to be computed again.",
                    key=named,
                )
            partition = folder.partition(index, rows=footer.rows, checksum=footer.checksum, blocks=size, **facts)
        body = named.encode()
        self._store.put(self._key(partition), body)
        return replace(partition, bytes=len(body) + partition.blocks)

    def _footer(self, key: str) -> tuple[Footer | None, int]:
        """Return the footer of a stored Parquet file, and the file's size; usually one request."""
        end, size = self._store.get_end(key, _FOOTER)
        length = bytes_of_footer(end) or 0
        if len(end) < length <= size:
            end, size = self._store.get_end(key, length)
        return read_footer(end), size

    def put(self, partition: StoredPartition, path: Path) -> None:
        """Store the file at *path* as *partition*; it appears complete or not at all.

        Needs no condition: the key carries attempt, task and checksum, so no other process writes it, and a repeated
        request writes the same bytes.
        """
        self._store.upload(self._key(partition), path)

    def take(self, partition: StoredPartition, path: Path) -> None:
        """Store the file at *path*, which no longer changes, as *partition*, without a copy if possible."""
        self._store.share(self._key(partition), path)

    def end_write(self, folder: WriteFolder, kept: Iterable[StoredPartition] = ()) -> None:
        """Delete a folder and its remaining files.

        :param kept: partitions whose rows may be there
        """
        rows = {f"{self._prefix}/{partition.content_key}" for partition in kept if partition.content_bytes}
        left = [info.key for info in self._store.list(f"{self._prefix}/{folder.key}/")]
        self._store.delete(key for key in left if key not in rows)
        self._store.forget_folders(f"{self._prefix}/{folder.key}/")
        if isinstance(self._store, FileObjectStore):
            self._store.remove_empty(f"{self._prefix}/{folder.key}")

    def fetch(self, partition: StoredPartition, path: Path) -> None:
        """Write the rows of *partition* to *path*.

        With :data:`WRITTEN`, the reader must check the checksums of the file's pages.

        :raises ObjectNotFound: they are no longer there
        :raises CorruptObject: size or checksum differs from its name or listing; mark it corrupt
        """
        key = f"{self._prefix}/{partition.content_key}"
        self._store.download(key, path)
        size, expected = path.stat().st_size, partition.content_bytes
        if partition.suffix == WRITTEN:
            footer = footer_of(path)
            checksum = footer.checksum if footer is not None else "none"
        else:
            checksum = file_checksum(path)
        if (expected and size != expected) or checksum != partition.checksum:
            raise CorruptObject(
                f"The partition {key} in {self._store.uri} is damaged: {size} bytes with checksum "
                f"{checksum}, expected {expected or 'any number of'} bytes with {partition.checksum}.",
                remedy="It has to be computed again.",
                key=key,
            )

    def put_map_output(self, partition: StoredPartition, description: Path, blocks: Path | None) -> None:
        """Store a map output; the partition exists once all of it is stored.

        :param description: describes the blocks; its checksum is the partition's
        :param blocks: Spark's data file, which is not changed; ``None`` if there are no rows
        """
        if blocks is not None:
            self._store.share(self._key(partition) + _BLOCKS, blocks)
        self._store.share(self._key(partition), description)

    def fetch_blocks(self, partition: StoredPartition, path: Path) -> None:
        """Write the blocks of a map output to *path*, which must not exist. The caller checks them.

        :raises ObjectNotFound: they are no longer there
        """
        self._store.borrow(self._key(partition) + _BLOCKS, path)

    def mark_corrupt(self, partition: StoredPartition) -> None:
        """Mark *partition* as corrupt, so that :meth:`survivors` never returns it again."""
        try:
            self._store.put_new(self._key(partition) + _CORRUPT, b"")
        except ObjectExists:
            return

    def release(self, up_to: int) -> int:
        """Delete the partitions of attempt *up_to* and earlier ones, and abort their unfinished uploads.

        Later attempts may be running and are left alone; foreign objects are deleted in any case.

        :returns: how many partitions were deleted
        """
        listed = self._store.list(f"{self._prefix}/{FOLDER}/")
        keys = [info.key for info in listed if self._written(info.key, up_to)]
        # Markers last: without its marker, a corrupt object would count as sound.
        markers = [key for key in keys if key.endswith(_CORRUPT)]
        objects = [key for key in keys if not key.endswith(_CORRUPT)]
        self._store.delete(objects)
        self._store.delete(markers)
        self._store.forget_folders(f"{self._prefix}/{FOLDER}/")
        self.abort_uploads(up_to)
        content = (key for key in objects if key.endswith(_BLOCKS) or WriteFolder.of_object(self._relative(key)))
        return len(objects) - sum(1 for _ in content)

    def release_beside(self, vertex: str, kept: Collection[str], epoch: int, task: int) -> int:
        """Delete what tasks of attempt *epoch* stored of a vertex, except what is *kept*, and abort their unfinished
        uploads; return how many partitions were deleted.

        :param kept: keys below the job's prefix
        :param task: the newest task to consider: later ones may still be running
        """

        def useless(key: str) -> bool:
            relative = self._relative(key).removesuffix(_CORRUPT).removesuffix(_BLOCKS)
            partition = StoredPartition.from_key(relative, 0)
            earlier = partition is not None and partition.epoch == epoch and partition.task <= task
            return earlier and relative not in kept

        folder = f"{self._prefix}/{FOLDER}/{vertex}/"
        keys = [info.key for info in self._store.list(folder) if useless(info.key)]
        partitions = [each for key in keys if (each := StoredPartition.from_key(self._relative(key), 0)) is not None]
        self.delete(partitions, kept)
        self._store.delete(key for key in keys if key.endswith(_CORRUPT))
        self._store.abort_uploads(folder, useless)
        return len(partitions)

    def delete(self, partitions: Iterable[StoredPartition], kept: Collection[str] = ()) -> None:
        """Delete single partitions.

        :param kept: keys, below the job's prefix, that stay; two partitions of one write may name the same file
        """
        gone = list(partitions)
        stay = {each.content_key for key in kept if (each := StoredPartition.from_key(key, 0)) is not None}
        content = {each.content_key for each in gone if each.suffix == WRITTEN and each.content_bytes} - stay
        blocks = (self._key(each) + _BLOCKS for each in gone if each.suffix == MAP_OUTPUT)
        self._store.delete([*map(self._key, gone), *blocks, *(f"{self._prefix}/{key}" for key in sorted(content))])

    def abort_uploads(self, up_to: int) -> int:
        """Abort the unfinished uploads of attempt *up_to* and earlier ones; return how many there were."""
        return self._store.abort_uploads(f"{self._prefix}/{FOLDER}/", lambda key: self._written(key, up_to))

    def _written(self, key: str, up_to: int) -> bool:
        """Whether *key* was written by *up_to* or an earlier attempt, or is not a partition."""
        relative = self._relative(key).removesuffix(_CORRUPT).removesuffix(_BLOCKS)
        written = WriteFolder.of_object(relative)
        by = written[0] if written is not None else StoredPartition.from_key(relative, 0)
        return by is None or by.epoch <= up_to

    def _relative(self, key: str) -> str:
        return key.removeprefix(f"{self._prefix}/")

    def _key(self, partition: StoredPartition) -> str:
        return f"{self._prefix}/{partition.key}"
