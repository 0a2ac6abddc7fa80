"""A pinned source as the script came to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider.spark.jvm.file_source import FileSource, Listing, PinnedFile, PinnedFiles


@dataclass
class PinnedSource:
    """A source that the script has come to.

    :ivar name: of its coordinator
    :ivar source: what the script gave
    :ivar files: what all DataFrames over it read
    :ivar pinned: these files
    :ivar on_reset: the script's own, which is told
    :ivar looks: how often the script had looked at rows, or written some, when it came here
    """

    name: str
    source: FileSource
    files: PinnedFiles
    pinned: list[PinnedFile]
    on_reset: Callable[[str, str], object] | None
    looks: int

    def gone(self) -> tuple[Listing, str] | None:
        """Return what is there now, and what has become of pinned files; ``None`` if all of them are still there, or
        nothing can be put in their place.
        """
        listing = self.source.listed_anew()
        said = listing and what_is_gone(self.pinned, listing.files)
        return (listing, said) if listing and said else None


def what_is_gone(pinned: list[PinnedFile], listed: list[PinnedFile]) -> str:
    """Say which pinned files are not there any more as they were; empty text if all are."""
    gone = sorted(set(pinned) - set(listed))
    return f"{len(gone)} of its {len(pinned)} files are gone or were changed, {gone[0][0]} first" if gone else ""
