"""A retry after a kill at 80 % against running everything again, with real drivers.

Each round runs the job once without interruption, once until SIGKILL hits the driver as 16 of its 20 partitions are
recorded, and once more to the end. All three are ``spark-recovery run`` in processes of their own, so that starting
Python, the JVM and Spark is in every figure; a job that does nothing shows how much that is.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from airflow_provider.core.faults import AFTER_PARTITION_EVENT
from airflow_provider.core.job import JobId
from airflow_provider.storage.files import file_uri
from airflow_provider.storage.partition_store import PartitionStore
from airflow_provider.storage.uris import open_store
from benchmarks.drivers import environment

JOB = Path(__file__).parent / "costly_job.py"
PARTITIONS, KILL_AT = 20, 16


def compare(data: Path, rounds: int, iterations: int) -> dict[str, Any]:
    """Run the comparison and return medians and all single figures, in seconds."""
    figures: dict[str, list[float]] = {"full": [], "killed": [], "retry": [], "nothing": []}
    reused: list[int] = []
    for number in range(1, rounds + 1):
        with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
            folder = Path(name)
            figures["nothing"].append(_run(folder, data, "nothing", 0))
            figures["full"].append(_run(folder, data, "full", iterations))
            figures["killed"].append(_run(folder, data, "retry", iterations, f"{AFTER_PARTITION_EVENT}@{KILL_AT}"))
            store = PartitionStore(open_store(file_uri(folder / "store")), JobId.parse("retry").prefix)
            reused.append(sum(map(len, store.survivors().values())))
            figures["retry"].append(_run(folder, data, "retry", iterations))
            assert pq.read_table(folder / "full-out") == pq.read_table(folder / "retry-out"), "the answers differ"
        print(f"  round {number}: { {name: round(times[-1], 1) for name, times in figures.items()} }", file=sys.stderr)
    medians = {name: round(statistics.median(times), 1) for name, times in figures.items()}
    return {
        "job": f"TPC-H scale 1: a pandas UDF over 6,001,215 line items in {PARTITIONS} partitions, then sums by month",
        "rounds": rounds,
        "iterations": iterations,
        "killed_at": f"{KILL_AT} of {PARTITIONS} partitions recorded",
        "partitions_reused": reused,
        "full_seconds": medians["full"],
        "retry_seconds": medians["retry"],
        "start_up_seconds": medians["nothing"],
        "ratio": round(statistics.median(r / f for r, f in zip(figures["retry"], figures["full"], strict=True)), 3),
        "all_rounds": {name: [round(value, 2) for value in times] for name, times in figures.items()},
    }


def _run(folder: Path, data: Path, job: str, iterations: int, fault: str = "") -> float:
    command = [sys.executable, "-m", "airflow_provider.cli", "run", "--event-store", file_uri(folder / "store")]
    command += ["--job-id", job, str(JOB), str(data / "lineitem"), str(folder / f"{job}-out"), str(iterations)]
    began = time.monotonic()
    done = subprocess.run(
        command, env=environment(folder, fault), capture_output=True, text=True, cwd=folder, check=False
    )
    seconds = time.monotonic() - began
    expected = -signal.SIGKILL if fault else 0
    if done.returncode != expected:
        raise SystemExit(f"{job} ended with {done.returncode} instead of {expected}:\n{done.stdout}{done.stderr}")
    return seconds
