"""How fast events reach the store, and how many requests they cost: a driver that tells as fast as it can."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from airflow_provider.core.events import AttemptStarted
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.event_writer import JobEventWriter
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.object_store import ObjectStore
from benchmarks import jobs, s3
from tests.support.stores import WatchedStore

EVENTS = 100_000


def compare(rounds: int) -> dict[str, Any]:
    """Return events per second and requests on a file store and on S3."""
    told = [
        event
        for number in range(EVENTS // 100)
        for vertex in [jobs.initialized(number, 99)]
        for event in (vertex, *jobs.partitions_of(vertex))
    ]
    singles: dict[str, list[dict[str, float]]] = {}
    with s3.local_s3() as (name, server):
        for number in range(1, rounds + 1):
            with tempfile.TemporaryDirectory(prefix="events-") as folder:
                watched = WatchedStore(FileObjectStore(Path(folder)))
                rate = _append(watched, told)
            singles.setdefault("file", []).append({"events_per_second": rate, **watched.calls})
            store, requests = s3.counted_store(server, f"events-{number}")
            rate = _append(store, told)
            singles.setdefault(f"S3 ({name})", []).append({"events_per_second": rate, **requests.count()})
            print(f"  round {number}: { {way: found[-1] for way, found in singles.items()} }", file=sys.stderr)
    return {
        "title": f"{EVENTS:,} events from the claim to the last confirmation",
        "rounds": rounds,
        "cases": {way: jobs.summary(found, {}) for way, found in singles.items()},
        "all_rounds": singles,
    }


def _append(store: ObjectStore, told: list[Any]) -> float:
    began = time.perf_counter()
    claim = Claims(store, jobs.JOB.prefix).claim()
    writer = JobEventWriter(
        store, jobs.JOB.prefix, claim, RecoveryOptions(), on_fenced=jobs.never, on_broken=jobs.never
    )
    writer.begin(lambda _: AttemptStarted(epoch=claim.epoch))
    for event in told:
        writer.append(event)
    assert writer.flush(), "the events could not be stored"
    writer.close()
    return len(told) / (time.perf_counter() - began)
