"""Vertices of a made-up history."""

from __future__ import annotations

from airflow_provider.core.events import VertexInitialized


def initialized(name: str, *upstream: str, deterministic: bool = True) -> VertexInitialized:
    """A vertex of two partitions that attempt 1 has come to."""
    return VertexInitialized(
        epoch=1,
        vertex=name,
        name=name,
        fingerprint=name,
        parallelism=2,
        layout="l",
        deterministic=deterministic,
        upstream=upstream,
    )
