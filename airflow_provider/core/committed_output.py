"""Check whether an output that an earlier attempt committed is still there, unchanged. Pure.

Spark names all files of a write after that write (``part-00000-<uuid>-c000…``). So one UUID tells the files of a commit
from all others in a folder, and only that UUID and a digest have to be remembered.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from airflow_provider.core.digest import digest

OutputFile = tuple[str, int, int]
"""Path, size in bytes, modification time in milliseconds since the Unix epoch."""

WRITE_NAME = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""Pattern of Spark's name of a write, a UUID."""
_WRITE = re.compile(rf"/part-\d+-({WRITE_NAME})[-._][^/]*$")


def listing_digest(files: Collection[OutputFile]) -> str:
    """Return a digest of files, whatever their order."""
    return digest(*(str(part) for file in sorted(files) for part in file))


def contents_digest(files: Collection[OutputFile]) -> str:
    """Return a digest of files by name, size and time, without their folders."""
    return listing_digest([(path.rpartition("/")[2], size, changed) for path, size, changed in files])


def totals(files: Iterable[OutputFile], writes: Collection[str]) -> dict[str, list[int]]:
    """Return number and bytes of the files of each of some writes."""
    found: dict[str, list[int]] = {}
    for path, size, _ in files:
        if (write := write_of(path)) in writes:
            number, total = found.get(write, (0, 0))
            found[write] = [number + 1, total + size]
    return found


@dataclass(frozen=True)
class Commit:
    """The files that one write has left.

    :ivar write: Spark's name of the write, a UUID; empty text if it left no files
    :ivar files: number of its files
    :ivar size: bytes of its files
    :ivar listing: digest of their paths, sizes and times
    :ivar contents: the same without the folders; empty text if an older release wrote them
    :ivar in_parts: whether it replaced the contents of some folders, and left other files in place
    :ivar replaced: other writes of its job → number and bytes of their files that it replaced
    """

    write: str
    files: int
    size: int
    listing: str
    contents: str = ""
    in_parts: bool = False
    replaced: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @classmethod
    def between(cls, before: Collection[OutputFile], after: Collection[OutputFile]) -> Self | None:
        """Return the write between two listings; ``None`` if nothing was written, or not by one write alone."""
        new = set(after) - set(before)
        writes = {write_of(path) for path, _, _ in new}
        if len(writes) != 1 or "" in writes:
            return None
        (write,) = writes
        return cls(write, len(new), sum(size for _, size, _ in new), listing_digest(new), contents_digest(new))

    @classmethod
    def named(cls, write: str, now: Collection[OutputFile]) -> Self:
        """Return the files of the write named *write* among those that are there; none of one without a name."""
        return cls.between((), [file for file in now if write_of(file[0]) == write]) or cls.of_nothing()

    @classmethod
    def of_nothing(cls) -> Self:
        """Return the commit of a write without rows, for which a partitioned write leaves no file."""
        return cls("", 0, 0, listing_digest(()))

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self | None:
        """Read what :meth:`to_state` returned; ``None`` for anything else."""
        try:
            listing, contents = str(state["listing"]), str(state.get("contents", ""))
            found = cls(str(state["write"]), int(state["files"]), int(state["size"]), listing, contents)
            return replace(found, in_parts=bool(state.get("in_parts")), replaced=dict(state.get("replaced", {})))
        except (KeyError, TypeError, ValueError):
            return None

    def to_state(self) -> dict[str, Any]:
        """Return plain JSON."""
        return asdict(self)

    def replacing(self, before: Collection[OutputFile], after: Collection[OutputFile], writes: Collection[str]) -> Self:
        """Return the same of a write that replaces.

        :param writes: names of those of its job
        """
        there = {path for path, _, _ in after}
        gone = totals((file for file in before if file[0] not in there), writes)
        return replace(self, in_parts=bool(self.write and self._strange(after)), replaced=gone)

    def is_whole(self, files: Collection[OutputFile]) -> bool:
        """Whether these are all of its files, unchanged; folders do not count, because a script may have moved them."""
        return len(files) == self.files and contents_digest(files) == self.contents

    def own(self, now: Collection[OutputFile]) -> list[OutputFile]:
        """Return the files of this write among those that are there."""
        return [file for file in now if self.write and write_of(file[0]) == self.write]

    def changed(self, now: Collection[OutputFile]) -> str:
        """Say what has changed since this write; empty text if all of its files are there, unchanged."""
        mine = self.own(now)
        if len(mine) != self.files:
            return f"{len(mine)} of its {self.files} files are there"
        return "" if listing_digest(mine) == self.listing else "its files were changed"

    def where_written(self, now: Collection[OutputFile]) -> list[OutputFile]:
        """Return the files that are where a write that replaces has put its own; those of others count."""
        folders = {path.rpartition("/")[0] for path, _, _ in self.own(now)}
        return [file for file in now if not self.in_parts or file[0].rpartition("/")[0] in folders]

    def others(self, now: Collection[OutputFile]) -> str:
        """Say which files an overwriting write would have removed; empty text if there are none.

        They count even if the same job appended them later: it may append others this time.
        """
        strange = self._strange(self.where_written(now))
        return f"{len(strange)} other files are there" if strange else ""

    def _strange(self, now: Collection[OutputFile]) -> list[OutputFile]:
        return [file for file in now if not self.write or write_of(file[0]) != self.write]


DOUBT = "doubt"
"""What is remembered of a write under this name says why its rows may be there twice, or be missing."""


def doubts(coordinators: Mapping[str, object]) -> list[str]:
    """Return a sentence for each write whose rows may be there twice, or be missing."""
    states = [state for state in coordinators.values() if isinstance(state, dict)]
    return [str(state[DOUBT]) for state in states if state.get(DOUBT)]


def write_of(path: str) -> str:
    """Return the UUID of the write that made a file; empty text if its name has none."""
    found = _WRITE.search(path)
    return found[1] if found else ""
