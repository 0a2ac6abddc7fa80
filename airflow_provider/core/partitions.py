"""Name stored partitions so that each can be used without its event.

A driver can die after a partition's PUT and before its event. So the object's key carries vertex, layout, index,
parallelism, attempt, rows, checksum and duration: one listing of the store finds every survivor, with its size, without
a request per object (Flink: ``ShuffleMaster.getAllPartitionWithMetrics``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider.core.digest import digest
from airflow_provider.core.events import PartitionFinished

FOLDER = "partitions"
WHOLE = "whole"
"""The name of a layout whose partitions are kept all or none."""
ROWS = ".parquet"
"""Ends the key of a partition whose rows are stored."""
MAP_OUTPUT = ".shuffle"
"""Ends the key of a partition that is one task's map output: the files from which the reducers of a shuffle read."""
WRITTEN = ".written"
"""Ends the key of a partition whose rows stay where Spark's own writer has put them (:class:`WriteFolder`)."""
WRITTEN_FILE = "-written-c000.zstd.parquet"
"""Ends the name that Spark's writer gives to the file of a partition."""

_KEY = re.compile(
    rf"{FOLDER}/(?P<vertex>[^/]+)/(?P<layout>[^/]+)/(?P<index>\d+)-of-(?P<parallelism>\d+)"
    rf"\.e(?P<epoch>\d+)\.t(?P<task>\d+)\.r(?P<rows>\d+)\.c(?P<checksum>[0-9a-f]{{8}})\.ms(?P<millis>\d+)"
    rf"(?:\.b(?P<blocks>\d+))?(?:\.w(?P<write>\d+))?(?P<suffix>{'|'.join(map(re.escape, (ROWS, MAP_OUTPUT, WRITTEN)))})"
)

_WRITE = re.compile(
    rf"{FOLDER}/(?P<vertex>[^/]+)/(?P<layout>[^/]+)/(?P<parallelism>\d+)\.e(?P<epoch>\d+)\.w(?P<number>\d+)"
    r"/(?P<file>.+)"
)
_WRITTEN_FILE = re.compile(r"part-(\d+)-[^/]*\.parquet")


@dataclass(frozen=True)
class StoredPartition:
    """One object of the partition store.

    :ivar index: 0 … parallelism - 1
    :ivar epoch: the attempt that wrote it
    :ivar task: Spark's task attempt id, unique within the attempt's application
    :ivar checksum: CRC-32 of the object, eight hexadecimal digits; for :data:`WRITTEN`, of the footer of the file with
        the rows
    :ivar millis: task time spent on it
    :ivar rows: for a map output also 0 if Spark did not report the number
    :ivar bytes: total stored size: the object and its blocks; 0 if only the key is known
    :ivar blocks: size of the separate object with the content: a map output's blocks, or the file with the rows
    :ivar suffix: :data:`ROWS`, :data:`MAP_OUTPUT` or :data:`WRITTEN`
    :ivar write: number of the :class:`WriteFolder` that holds the rows
    """

    vertex: str
    layout: str
    index: int
    parallelism: int
    epoch: int
    task: int
    rows: int
    checksum: str
    millis: int
    bytes: int = 0
    suffix: str = ROWS
    blocks: int = 0
    write: int = 0

    @property
    def key(self) -> str:
        """Object key below the job's prefix."""
        return (
            f"{FOLDER}/{self.vertex}/{self.layout}/{self.index:06d}-of-{self.parallelism:06d}"
            f".e{self.epoch}.t{self.task}.r{self.rows}.c{self.checksum}.ms{self.millis}"
            f"{'' if self.suffix == ROWS else f'.b{self.blocks}'}"
            f"{f'.w{self.write}' if self.suffix == WRITTEN else ''}{self.suffix}"
        )

    @property
    def content_key(self) -> str:
        """Key of the object that holds the content, below the job's prefix. For :data:`WRITTEN` with 0
        :attr:`content_bytes`, there is none.
        :data:`WRITTEN`, there is none.
        """
        if self.suffix != WRITTEN:
            return self.key
        return WriteFolder(self.vertex, self.layout, self.parallelism, self.epoch, self.write).file_of(self.index)

    @property
    def content_bytes(self) -> int:
        """Size of the object :attr:`content_key`; 0 if only the key is known."""
        if self.suffix == WRITTEN:
            return self.blocks
        return self.object_bytes

    @property
    def object_bytes(self) -> int:
        """Size of the object :attr:`key`, without :attr:`blocks`; 0 if only the key is known."""
        return self.bytes - self.blocks if self.bytes else 0

    @classmethod
    def from_key(cls, key: str, size: int) -> StoredPartition | None:
        """Read a key that :attr:`key` wrote; ``None`` for anything else, which is not a partition.

        :param size: :attr:`object_bytes`
        """
        match = _KEY.fullmatch(key)
        if match is None:
            return None

        def number(name: str) -> int:
            return int(match.group(name) or 0)

        partition = cls(
            vertex=match["vertex"],
            layout=match["layout"],
            index=number("index"),
            parallelism=number("parallelism"),
            epoch=number("epoch"),
            task=number("task"),
            rows=number("rows"),
            checksum=match["checksum"],
            millis=number("millis"),
            bytes=size + number("blocks") if size else 0,
            suffix=match["suffix"],
            blocks=number("blocks"),
            write=number("write"),
        )
        return partition if partition.index < partition.parallelism and partition.key == key else None


@dataclass(frozen=True)
class WriteFolder:
    """The folder where Spark's own writer puts the partitions of one execution.

    Spark puts the partition's index into each file name; the folder's key carries the rest. The driver then gives each
    file a partition key, which makes it count: a hard link if the store is a folder, else a small object with that key
    (:data:`WRITTEN`).

    :ivar epoch: the writing attempt
    :ivar number: number of the vertex's execution in that attempt
    """

    vertex: str
    layout: str
    parallelism: int
    epoch: int
    number: int

    @property
    def key(self) -> str:
        """Key of the folder below the job's prefix, without a trailing slash."""
        return f"{FOLDER}/{self.vertex}/{self.layout}/{self.parallelism:06d}.e{self.epoch}.w{self.number}"

    def file_of(self, index: int) -> str:
        """Return the key of a partition's file, below the job's prefix."""
        return f"{self.key}/part-{index:05d}{WRITTEN_FILE}"

    @classmethod
    def of_object(cls, key: str) -> tuple[WriteFolder, int | None] | None:
        """Return the folder of the object *key*, and the partition's index if the object is a partition's file.

        ``None`` if it is in no such folder.
        """
        match = _WRITE.fullmatch(key)
        if match is None:
            return None
        parallelism, epoch, number = (int(match[name]) for name in ("parallelism", "epoch", "number"))
        file = _WRITTEN_FILE.fullmatch(match["file"])
        index = int(file[1]) if file else parallelism
        folder = cls(match["vertex"], match["layout"], parallelism, epoch, number)
        return folder, index if index < parallelism else None

    def partition(self, index: int, **facts: Any) -> StoredPartition:
        """Return the partition for a file of this folder.

        :param facts: the fields of :class:`StoredPartition` that the folder does not determine
        """
        facts = {"task": 0, "millis": 0, **facts}
        return StoredPartition(self.vertex, self.layout, index, self.parallelism, self.epoch, **facts)


def finished_event(partition: StoredPartition, epoch: int, at: float) -> PartitionFinished:
    """Return attempt *epoch*'s event for a stored partition; *at* is in seconds since the Unix epoch.

    ``core.line_fold`` matches the exact form of these events, so a new field must be added there, too.
    """
    return PartitionFinished(
        epoch=epoch,
        at=at,
        vertex=partition.vertex,
        layout=partition.layout,
        index=partition.index,
        key=partition.key,
        rows=partition.rows,
        bytes=partition.bytes,
        checksum=partition.checksum,
        duration=partition.millis / 1000,
        attempt=partition.epoch,
    )


def incarnation(keys: Iterable[str]) -> str:
    """Return a digest of *keys*, a vertex's partitions, that tells one computation of the vertex from another.

    A reader of a vertex that is not deterministic carries this digest in its own identity, so that nothing derived from
    a lost incarnation is mistaken for something derived from the present one.
    """
    return digest(*sorted(keys))[:16]


def choose(
    candidates: Iterable[StoredPartition],
    *,
    layout: str,
    parallelism: int,
    recorded: Mapping[int, str],
    deterministic: bool,
) -> dict[int, StoredPartition]:
    """Return, by index, the partitions of one vertex that may be reused under *layout*.

    If there are several objects for one index, the recorded one wins, then the earliest: a deterministic vertex has the
    same rows in each. A vertex that is not deterministic is kept only if one attempt wrote and recorded all of it:
    mixing two incarnations, or two attempts of a task, could lose or duplicate rows.

    :param recorded: index → key, from the events
    """
    fitting = [p for p in candidates if p.layout == layout and p.parallelism == parallelism]
    chosen: dict[int, StoredPartition] = {}
    for partition in sorted(fitting, key=lambda p: (p.epoch, p.task)):
        if recorded.get(partition.index) == partition.key:
            chosen[partition.index] = partition
        elif deterministic:
            chosen.setdefault(partition.index, partition)
    if not deterministic and (len(chosen) < parallelism or len({p.epoch for p in chosen.values()}) > 1):
        return {}
    return chosen
