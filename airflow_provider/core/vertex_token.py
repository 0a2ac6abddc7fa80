"""Make and parse the token that names a vertex, ``<encoded name>-<fingerprint>``."""

from __future__ import annotations

from airflow_provider.core.job import encode_segment

VERTEX_ALIAS = "spark_recovery_vertex:"
"""Before a token: the name by which a plan shows that it reads a recovery point."""

READER = "spark_recovery_read_"
"""Begins the name of the function that reads stored partitions, by which an optimized plan shows the same."""

FOR_RETRIES = "@reading"
"""Ends the token of a vertex that is for automatic retries alone, because functions read something by themselves."""


def vertex_identity(name: str, digest: str) -> str:
    """Return the identity of a vertex by name and fingerprint, a token that the functions below parse."""
    return f"{encode_segment(name)}-{digest[:32]}"


def fingerprint_of(token: str) -> str:
    """Return the fingerprint in a vertex token, which identifies its content."""
    return token.rsplit("-", 1)[-1]


def name_of(token: str) -> str:
    """Return the user's name in a vertex token, still encoded."""
    return token.rsplit("-", 1)[0]


def vertex_of(token: str) -> str:
    """Return the vertex in a token, without the incarnation."""
    return token.split("@", 1)[0]
