"""Watch a heartbeat alone, whoever has claimed the epoch."""

from __future__ import annotations

from airflow_provider.storage.claims import Claim
from airflow_provider.storage.liveness import Life, Liveness
from airflow_provider.storage.object_store import ObjectStore


def watch(store: ObjectStore, prefix: str, epoch: int, timeout: float) -> bool:
    """Whether the heartbeat of *epoch* moves within *timeout* seconds; the process is not looked at."""
    elsewhere = Claim(
        epoch, "owner", "elsewhere", "another", 1, 1, 0.0, beat_interval=timeout / 4, lease=timeout * 0.75
    )
    return Liveness(store, prefix, elsewhere).wait() is Life.ALIVE
