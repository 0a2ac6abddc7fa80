"""Reads a job's state in a process of its own, as a new driver does: seconds, and the most memory it had."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.object_store import ObjectInfo

WAYS = ("blocks", "snapshot")
"""From blocks alone, or from the newest snapshot and the blocks behind it, which is what a driver does."""


class _WithoutSnapshots(FileObjectStore):
    """Shows no snapshots, as if none could be trusted."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield everything else."""
        return (info for info in super().list(prefix) if "/snapshots/" not in info.key)


def read(folder: Path, prefix: str, way: str, partitions: int) -> dict[str, float]:
    """Have a new process read the job below *folder*, and return what that took.

    :param partitions: how many must be found
    """
    command = [sys.executable, "-m", "benchmarks.reader", str(folder), prefix, way]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    if done.returncode:
        raise SystemExit(f"The {way} could not be read:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout)
    assert figures["partitions"] == partitions, figures
    return figures


def main(folder: str, prefix: str, way: str) -> None:
    """Read, and print the figures as JSON."""
    store = {"blocks": _WithoutSnapshots, "snapshot": FileObjectStore}[way](Path(folder))
    log = JobEventLog(store, prefix)
    began, cpu = time.perf_counter(), time.process_time()
    replayed = log.replay()
    graph = replayed.graph
    figures = {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "peak_megabytes": _peak_bytes() / 1e6,
        "blocks": replayed.next_block - max(1, replayed.snapshot),
        "partitions": sum(len(vertex.partitions) for vertex in graph.vertices.values()),
    }
    assert not graph.problems, graph.problems
    print(json.dumps(figures))


def _peak_bytes() -> int:
    """Return the most memory that this program had; ``ru_maxrss`` would count what its parent had, too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
