"""A recovery point as the script reached it, before anything is known of its partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider.spark.identity.fingerprint import Fingerprint


@dataclass(frozen=True)
class RecoveryPoint:
    """One call of ``checkpoint`` or ``source``.

    :ivar name: as the user gave it, made unique within the attempt
    :ivar vertex: identity of the vertex, ``<encoded name>-<fingerprint>``
    :ivar unversioned: sources that tell no version, so that it is kept whole, for automatic retries alone
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

    @property
    def title(self) -> str:
        """What the log calls it."""
        return f"checkpoint {self.name!r}"
