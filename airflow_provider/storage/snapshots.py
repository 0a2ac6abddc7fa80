"""Store and read snapshots of the execution graph: immutable, checksummed, versioned, trusted completely or not at all.

``snapshots/<number>.jsonl`` is the fold of all blocks before block *number*, so a replay continues with that block. The
format is that of a block: lines of JSON, each with its checksum, below a header with job and number. A snapshot is
written only when the blocks before it are confirmed. Their content never changes, so a snapshot is true whoever wrote
it, even a driver that has been fenced since.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from airflow_provider.core.collector import no_collection
from airflow_provider.core.errors import (
    CorruptObject,
    EventFormatError,
    ObjectExists,
    ObjectNotFound,
    StoreError,
)
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.snapshot import decode_graph, encode_graph
from airflow_provider.storage.blocks import checked, checksummed
from airflow_provider.storage.keys import numbers_in
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.private_files import temporary_folder
from airflow_provider.storage.sealing import NOT_SEALED

FORMAT = 1
FOLDER = "snapshots"


@dataclass(frozen=True)
class Snapshot:
    """The graph of all blocks before block *number*.

    :ivar fences: numbers of those blocks that must never be deleted; see ``storage.compaction``
    """

    number: int
    graph: ExecutionGraph
    fences: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Header:
    job: str
    block: int
    records: int
    fences: list[int]
    format: int = FORMAT


def encode_snapshot(snapshot: Snapshot, job: str) -> bytes:
    """Return the content of a snapshot's object."""
    lines = encode_graph(snapshot.graph)
    header = _Header(job, snapshot.number, len(lines), sorted(snapshot.fences))
    return checksummed([json.dumps(asdict(header), sort_keys=True, separators=(",", ":")), *lines])


def decode_snapshot(data: Iterable[bytes], job: str, number: int) -> Snapshot:
    """Read the snapshot that should be snapshot *number* of *job*.

    :param data: its lines with line ends, such as a file, so that it need not be in memory beside the graph
    :raises EventFormatError: it is damaged, or has another version, job or number
    """
    try:
        stored = iter(data)
        fields = json.loads(_whole(next(stored, b"\n")))
        if fields.get("format") != FORMAT:
            raise EventFormatError(f"its format is {fields.get('format')!r}, this release reads {FORMAT}")
        header = _Header(**fields)
        if (header.job, header.block) != (job, number):
            raise EventFormatError(f"it is snapshot {header.block} of {header.job}")
        with no_collection():
            graph = decode_graph(_exactly(header.records, map(_whole, stored)))
        return Snapshot(number, graph, frozenset(header.fences))
    except (ValueError, TypeError, AttributeError) as error:
        raise EventFormatError(f"it cannot be read: {error}") from error


def _whole(line: bytes) -> str:
    """Return the JSON of a complete line."""
    if not line.endswith(b"\n"):
        raise ValueError("its last records are missing")
    return checked(line[:-1])


def _exactly(records: int, lines: Iterable[str]) -> Iterator[str]:
    """Yield *lines*; at the end, raise if there were not exactly *records*."""
    seen = 0
    for line in lines:
        seen += 1
        yield line
    if seen != records:
        raise EventFormatError(f"it does not have its {records} records")


class Snapshots:
    """The snapshots of the job with the key prefix *prefix*."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def numbers(self) -> list[int]:
        """Return the numbers of all snapshots, newest first. One listing of a folder that holds a few objects."""
        return sorted(numbers_in(self._store, f"{self._prefix}/{FOLDER}/", ".jsonl"), reverse=True)

    def read(self, number: int) -> Snapshot:
        """Return a snapshot.

        :raises ObjectNotFound: it no longer exists
        :raises EventFormatError: it cannot be trusted
        :raises StoreError: the store cannot be read, or this machine has no space for a copy
        """
        try:
            with temporary_folder() as folder:
                copy = Path(folder, "snapshot")
                self._store.download(self._key(number), copy)
                with copy.open("rb") as lines:
                    return decode_snapshot(lines, self._prefix, number)
        except CorruptObject as error:
            raise EventFormatError(f"it is {NOT_SEALED}") from error
        except OSError as error:
            raise StoreError(
                f"Snapshot {number} of {self._prefix} cannot be copied to this machine: {error}.",
                remedy="Make room in the folder for temporary files (TMPDIR).",
            ) from error

    def newest(self, numbers: Iterable[int]) -> tuple[Snapshot | None, list[str]]:
        """Return the newest trusted snapshot, and one sentence about each newer one that cannot be trusted.

        :param numbers: the existing ones, newest first
        :raises StoreError: the store cannot be read
        """
        problems: list[str] = []
        for number in numbers:
            try:
                return self.read(number), problems
            except ObjectNotFound:
                continue  # a newer one has replaced it since the listing
            except EventFormatError as error:
                problems.append(f"snapshot {number} is not used, {error}; an older one or the events are")
        return None, problems

    def write(self, snapshot: Snapshot) -> bool:
        """Store a snapshot; return whether a good one with its number is stored now.

        :raises StoreError: the store failed
        """
        body = encode_snapshot(snapshot, self._prefix)
        try:
            self._store.put_new(self._key(snapshot.number), body)
        except ObjectExists:
            try:
                self.read(snapshot.number)
            except (ObjectNotFound, EventFormatError):
                return False
        return True

    def delete(self, numbers: Iterable[int]) -> None:
        """Delete snapshots."""
        self._store.delete([self._key(number) for number in numbers])

    def _key(self, number: int) -> str:
        return f"{self._prefix}/{FOLDER}/{number:010d}.jsonl"
