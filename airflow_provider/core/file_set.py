"""A compact record of a source's files, to explain later what changed; small enough for an event.

A retry reports, for example, "3 input files are new", for up to 10,000 files and without storing their names. So eight
bytes are kept per file: four of a digest of its path and four of a digest of its size and time. They only explain;
decisions use the full digest over all names, sizes and times.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from airflow_provider.core.digest import digest

MOST_FILES = 10_000
"""Beyond that only count and size are kept."""


@dataclass(frozen=True)
class FileSet:
    """Files of one source.

    :ivar digest: over every path, size and version, in hexadecimal
    :ivar size: total bytes
    :ivar versions: short digest of the path → short digest of the version; empty if there are too many files
    """

    digest: str
    count: int
    size: int
    versions: dict[bytes, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Iterable[tuple[str, str, str]]) -> FileSet:
        """Return the set of *files*, each a path, a size in bytes and a version (modification time or ETag)."""
        ordered = sorted(files)
        versions = {}
        if len(ordered) <= MOST_FILES:
            versions = {_short(path): _short(f"{size} {version}") for path, size, version in ordered}
        return cls(
            digest(*(text for file in ordered for text in file)),
            len(ordered),
            sum(int(size) for _, size, _ in ordered),
            versions,
        )

    def encode(self) -> str:
        """Return the set as one word of text."""
        packed = b"".join(path + version for path, version in sorted(self.versions.items()))
        return f"{self.digest[:32]}:{self.count}:{self.size}:{base64.b85encode(packed).decode()}"

    @classmethod
    def decode(cls, text: str) -> FileSet | None:
        """Read what :meth:`encode` wrote; ``None`` for anything else."""
        try:
            digest, count, size, packed = text.split(":", 3)
            data = base64.b85decode(packed)
            versions = {data[i : i + 4]: data[i + 4 : i + 8] for i in range(0, len(data), 8)}
            return cls(digest, int(count), int(size), versions)
        except (ValueError, binascii.Error):
            return None

    def changes_since(self, old: FileSet, place: str) -> str:
        """Describe what changed since *old*, an earlier set of the same *place*."""
        if not (self.versions or self.count == 0) or not (old.versions or old.count == 0):
            return (
                f"the input under {place} was {old.count:,} files of {old.size:,} bytes, "
                f"is {self.count:,} files of {self.size:,} bytes"
                if (old.count, old.size) != (self.count, self.size)
                else f"some of the {self.count:,} input files under {place} have changed"
            )
        new = sum(path not in old.versions for path in self.versions)
        gone = sum(path not in self.versions for path in old.versions)
        changed = sum(old.versions.get(path, version) != version for path, version in self.versions.items())
        said = [
            f"{number:,} input {'file' if number == 1 else 'files'} {'is' if number == 1 else 'are'} {what}"
            for number, what in ((new, "new"), (changed, "changed"), (gone, "gone"))
            if number
        ]
        return f"{', '.join(said)} under {place}" if said else f"how the files under {place} are read has changed"


def _short(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:4]
