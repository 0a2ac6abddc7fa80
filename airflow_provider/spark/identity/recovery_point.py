"""A recovery point, or a pinned source, as the script reached it: before anything is known of stored partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider.core.vertex_token import FOR_RETRIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from airflow_provider.spark.identity.fingerprint import Fingerprint
    from airflow_provider.spark.jvm.file_source import FileSource, Listing, PinnedFile, PinnedFiles


@dataclass(frozen=True)
class RecoveryPoint:
    """One call of ``checkpoint`` or ``source``.

    :ivar name: as the user gave it, made unique within the attempt
    :ivar vertex: identity of the vertex, ``<encoded name>-<fingerprint>``
    :ivar unversioned: its sources without a version, because of which it is kept whole, for automatic retries alone
    :ivar resets: how often sources had been pinned anew when it got its identity
    :ivar natively: whether Spark's own writer stores it
    :ivar not_deterministic: why it can only be kept whole; empty if single partitions may be kept
    """

    df: DataFrame
    name: str
    vertex: str
    fingerprint: Fingerprint
    not_deterministic: tuple[str, ...]
    resets: int = 0
    unversioned: tuple[str, ...] = ()
    natively: bool = False

    def token(self, incarnation: str = "") -> str:
        """Return the text by which plans show that they read it.

        :param incarnation: of its rows, if they vary from run to run
        """
        text = f"{self.vertex}@{incarnation}" if incarnation else self.vertex
        return f"{text}{FOR_RETRIES}" if self.fingerprint.reads else text

    @property
    def title(self) -> str:
        """Its name in the log."""
        return f"checkpoint {self.name!r}"


@dataclass
class PinnedSource:
    """A source that the script has reached.

    :ivar name: of its coordinator
    :ivar source: what the script gave
    :ivar files: what all DataFrames over it read
    :ivar pinned: these files
    :ivar on_reset: the script's callback
    :ivar looks: how often the script had looked at rows, or written some, when it reached the source
    """

    name: str
    source: FileSource
    files: PinnedFiles
    pinned: list[PinnedFile]
    on_reset: Callable[[str, str], object] | None
    looks: int

    def gone(self) -> tuple[Listing, str] | None:
        """Return the current listing, and what has become of pinned files; ``None`` if all of them are still there, or
        nothing can replace them.
        """
        listing = self.source.listed_anew()
        said = listing and what_is_gone(self.pinned, listing.files)
        return (listing, said) if listing and said else None


def what_is_gone(pinned: list[PinnedFile], listed: list[PinnedFile]) -> str:
    """Return what has become of pinned files that are gone or changed; empty if all are unchanged."""
    gone = sorted(set(pinned) - set(listed))
    return f"{len(gone)} of its {len(pinned)} files are gone or were changed, {gone[0][0]} first" if gone else ""
