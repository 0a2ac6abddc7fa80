"""Reads a job's state in a process of its own, as a new driver does: seconds, and the most memory it had."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.files import FileObjectStore

WAYS = ("blocks", "snapshot")
"""From blocks alone, or from the newest snapshot and the blocks behind it, which is what a driver does."""


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
    log = JobEventLog(FileObjectStore(Path(folder)), prefix)
    began, cpu = time.perf_counter(), time.process_time()
    logged = log.load() if way == "snapshot" else log.read()
    graph = logged.replay()
    figures = {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "peak_megabytes": _peak_bytes() / 1e6,
        "events": len(logged.events),
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
