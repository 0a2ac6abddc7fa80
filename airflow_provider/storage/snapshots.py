"""Snapshots of the execution graph in the store: immutable, checksummed, versioned. One is trusted whole or not at all.

``snapshots/<number>.jsonl`` is the fold of all blocks before block *number*, so a replay goes on with that block. The
form is that of a block: lines of JSON, each behind its checksum, below a header that says which snapshot of which job
this is. It is written only when the blocks before it are confirmed; what they hold never changes, so that a snapshot is
true whoever wrote it, a driver that is fenced by now included.
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
    """The graph as all blocks before block *number* tell it.

    :ivar fences: numbers of the blocks among them that must never be deleted; see ``storage.compaction``
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
    """Return the object's content."""
    lines = encode_graph(snapshot.graph)
    header = _Header(job, snapshot.number, len(lines), sorted(snapshot.fences))
    return checksummed([json.dumps(asdict(header), sort_keys=True, separators=(",", ":")), *lines])


def decode_snapshot(data: Iterable[bytes], job: str, number: int) -> Snapshot:
    """Read the snapshot that should be snapshot *number* of *job*.

    :param data: its lines with their ends, a file for example: it need not be in memory beside the graph
    :raises EventFormatError: it is damaged, of another version, job or number
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
    """Return the JSON of a line that is there to its end."""
    if not line.endswith(b"\n"):
        raise ValueError("its last records are missing")
    return checked(line[:-1])


def _exactly(records: int, lines: Iterable[str]) -> Iterator[str]:
    """Return *lines*, and raise at their end if they were not so many."""
    seen = 0
    for line in lines:
        seen += 1
        yield line
    if seen != records:
        raise EventFormatError(f"it does not have its {records} records")


class Snapshots:
    """The snapshots of the job whose objects lie below *prefix*."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def numbers(self) -> list[int]:
        """Return the numbers of all snapshots, newest first. One listing of a folder that holds a few objects."""
        return sorted(numbers_in(self._store, f"{self._prefix}/{FOLDER}/", ".jsonl"), reverse=True)

    def read(self, number: int) -> Snapshot:
        """Return a snapshot.

        :raises ObjectNotFound: there is none of this number any more
        :raises EventFormatError: it cannot be trusted
        :raises StoreError: the store cannot be read, or there is no room for a copy on this machine
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
        """Return the newest snapshot that can be trusted, and one sentence about each newer one that cannot.

        :param numbers: which there are, newest first
        :raises StoreError: the store cannot be read
        """
        problems: list[str] = []
        for number in numbers:
            try:
                return self.read(number), problems
            except ObjectNotFound:
                continue  # a newer one than the listing knows of has replaced it
            except EventFormatError as error:
                problems.append(f"snapshot {number} is not used, {error}; an older one or the events are")
        return None, problems

    def write(self, snapshot: Snapshot) -> bool:
        """Store a snapshot; return whether a good one of its number is there now.

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
