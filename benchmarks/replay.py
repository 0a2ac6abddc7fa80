"""How long a new driver takes to read a large job: 10,000 vertices of 100 partitions, in a process of its own."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from airflow_provider.storage.files import FileObjectStore
from benchmarks import jobs, reader

VERTICES, PARTITIONS = 10_000, 100
GOALS = {"seconds": 5.0, "peak_megabytes": 500.0}


class _KeepsAll(FileObjectStore):
    """Deletes nothing, so that the blocks which snapshots stand for can be read, too."""

    def delete(self, keys: Iterable[str]) -> None:
        """Do nothing."""


def compare(rounds: int) -> dict[str, Any]:
    """Return seconds and memory of both ways to read the job."""
    singles: dict[str, list[dict[str, float]]] = {way: [] for way in reader.WAYS}
    with tempfile.TemporaryDirectory(prefix="replay-") as name:
        with jobs.recording(_KeepsAll(Path(name))) as record:
            jobs.tell(record, VERTICES, PARTITIONS)
        for number in range(1, rounds + 1):
            for way, found in singles.items():
                found.append(reader.read(Path(name), jobs.JOB.prefix, way, VERTICES * PARTITIONS))
            print(f"  round {number}: { {way: found[-1] for way, found in singles.items()} }", file=sys.stderr)
    return {
        "title": f"Replay of {VERTICES:,} vertices with {VERTICES * PARTITIONS:,} partitions",
        "rounds": rounds,
        "cases": {way: jobs.summary(found, GOALS) for way, found in singles.items()},
        "all_rounds": singles,
    }
