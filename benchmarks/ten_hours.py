"""A job that tells one event a second for ten hours: what it writes, and how long its successor reads.

Nobody waits ten hours: the clock by which snapshots are taken is driven, and each second's event is flushed as the
writer does at its interval. That the writer keeps to its interval is measured beside it, in real time.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

from airflow_provider.core.events import JobEvent, VertexFinished
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.job import recording
from airflow_provider.storage.files import FileObjectStore
from benchmarks import jobs, reader
from tests.support.stores import WatchedStore

SECONDS = 10 * 3600
PARTITIONS = 98
"""With its beginning and its end, a vertex has a hundred events."""
VERTICES = SECONDS // (PARTITIONS + 2)
REAL_SECONDS, EVENTS_PER_SECOND = 10, 20
GOALS = {"seconds": 2.0, "blocks per flush interval": 1.0}


class _Clock:
    """Takes the place of the module ``time`` where snapshots are timed."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


def compare(rounds: int) -> dict[str, Any]:
    """Return the blocks that are written, those that are left, and the time to read them."""
    with tempfile.TemporaryDirectory(prefix="ten-hours-") as name:
        written = _write(Path(name))
        partitions = VERTICES * PARTITIONS
        singles = [reader.read(Path(name), jobs.JOB.prefix, "snapshot", partitions) for _ in range(rounds)]
    paces = []
    for number in range(1, rounds + 1):
        paces.append(_pace())
        print(f"  round {number}: {singles[number - 1]}, {paces[-1]:.3f} blocks per interval", file=sys.stderr)
    singles = [{**single, "blocks per flush interval": pace} for single, pace in zip(singles, paces, strict=True)]
    return {
        "title": f"One event a second for ten hours ({SECONDS:,} events), then killed",
        "rounds": rounds,
        "cases": {"file": jobs.summary(singles, GOALS)},
        "written": written,
        "all_rounds": singles,
    }


def _write(folder: Path) -> dict[str, int]:
    """Record the job and return how many objects of each kind were written, and are left."""
    files = FileObjectStore(folder)
    written = {"events": 0, "snapshots": 0}

    def count(operation: str, key: str) -> None:
        kind = key.removeprefix(f"{jobs.JOB.prefix}/").partition("/")[0]
        if operation == "put_new" and kind in written:
            written[kind] += 1

    clock = _Clock()
    with mock.patch.object(recording, "time", clock), jobs.recording(WatchedStore(files, count)) as record:
        for number in range(VERTICES):
            vertex = jobs.initialized(number, PARTITIONS)
            told: list[JobEvent] = [vertex, *jobs.partitions_of(vertex)]
            # The job is killed before its last vertex ends: then most is behind the newest snapshot.
            if number < VERTICES - 1:
                told.append(VertexFinished(epoch=vertex.epoch, vertex=vertex.vertex, layout=vertex.layout))
            for event in told:
                record.add(event)
                assert record.flush(), "an event could not be stored"
                clock.now += 1
    return {
        "blocks": written["events"],
        "snapshots": written["snapshots"],
        **{f"{kind}_left": len([*files.list(f"{jobs.JOB.prefix}/{kind}/")]) for kind in written},
    }


def _pace() -> float:
    """Return blocks per flush interval of a driver that tells more than one event in each."""
    interval = RecoveryOptions().write_buffer_flush_interval
    with tempfile.TemporaryDirectory(prefix="pace-") as name:
        watched = WatchedStore(FileObjectStore(Path(name)))
        with jobs.recording(watched) as record:
            assert record.flush()
            vertex = jobs.initialized(0, REAL_SECONDS * EVENTS_PER_SECOND)
            before, began = watched.calls["put_new"], time.monotonic()
            record.add(vertex)
            for event in jobs.partitions_of(vertex):
                time.sleep(1 / EVENTS_PER_SECOND)
                record.add(event)
            passed, blocks = time.monotonic() - began, watched.calls["put_new"] - before
    return blocks / (passed / interval)
