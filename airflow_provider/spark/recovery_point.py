"""A recovery point as the script reached it, before anything is known of its partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider.recovery.job import encode_segment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider.spark.fingerprint import Fingerprint


VERTEX_ALIAS = "spark_recovery_vertex:"
"""Before a token: the name by which a plan shows that it reads a recovery point."""

READER = "spark_recovery_read_"
"""Begins the name of the function that reads stored partitions, by which an optimized plan shows the same."""


@dataclass(frozen=True)
class RecoveryPoint:
    """One call of ``checkpoint`` or ``source``.

    :ivar name: as the user gave it, made unique within the attempt
    :ivar vertex: identity of the vertex, ``<encoded name>-<fingerprint>``
    :ivar not_deterministic: why it can only be kept whole; empty if single partitions may be kept
    """

    df: DataFrame
    name: str
    vertex: str
    fingerprint: Fingerprint
    not_deterministic: tuple[str, ...]

    @property
    def title(self) -> str:
        """What the log calls it."""
        return f"checkpoint {self.name!r}"


def vertex_identity(name: str, digest: str) -> str:
    """Return the identity of the vertex of that name and fingerprint, a token that the functions below take apart."""
    return f"{encode_segment(name)}-{digest[:32]}"


def fingerprint_of(token: str) -> str:
    """Return the part of a vertex token that says what it holds, without the name that the user gave it."""
    return token.rsplit("-", 1)[-1]


def name_of(token: str) -> str:
    """Return the part of a vertex token that the user gave, in its encoded form."""
    return token.rsplit("-", 1)[0]


def vertex_of(token: str) -> str:
    """Return the vertex that a token names, without the incarnation."""
    return token.split("@", 1)[0]
