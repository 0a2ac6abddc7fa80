"""The token that names a vertex, ``<encoded name>-<fingerprint>``, and how plans show that they read one."""

from __future__ import annotations

from airflow_provider.core.job import encode_segment

VERTEX_ALIAS = "spark_recovery_vertex:"
"""Before a token: the name by which a plan shows that it reads a recovery point."""

READER = "spark_recovery_read_"
"""Begins the name of the function that reads stored partitions, by which an optimized plan shows the same."""

FOR_RETRIES = "@reading"
"""Ends the token of a vertex that is for automatic retries alone, because functions read something by themselves."""


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
