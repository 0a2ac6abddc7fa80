"""How soon a retry's first task has run where 10,000 partitions are stored, against a plain start on the same machine.

One attempt stores them and is killed at its end. Then the script starts by plain Python, and as the next attempt, in
turn: the time is that from the start of its process until it has one row. The first attempt is dead and was on this
machine, so that nobody waits for its lease.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from airflow_provider.core.faults import BEFORE_JOB_FINISHED
from airflow_provider.storage.files import file_uri
from benchmarks.drivers import environment
from benchmarks.jobs import summary

JOB = Path(__file__).parent / "start_job.py"
PARTITIONS = 10_000
GOALS = {"more_than_plain": 3.0}


def compare(rounds: int) -> dict[str, Any]:
    """Return seconds of both, and by how many the retry's are more."""
    singles = []
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        folder = Path(name)
        _start(folder, recorded=True)
        for number in range(1, rounds + 1):
            order = (True, False) if number % 2 else (False, True)
            seconds = {recorded: _start(folder, recorded=recorded) for recorded in order}
            singles.append(
                {"plain": seconds[False], "retry": seconds[True], "more_than_plain": seconds[True] - seconds[False]}
            )
            print(
                f"  round {number}: { {name: round(each, 2) for name, each in singles[-1].items()} }", file=sys.stderr
            )
    return {
        "title": f"Seconds from the start of a process to its first row, {PARTITIONS:,} partitions stored on files",
        "rounds": rounds,
        "cases": {"file store": summary(singles, GOALS)},
        "all_rounds": singles,
    }


def _start(folder: Path, *, recorded: bool) -> float:
    said = folder / "first-row"
    runner = ["-m", "airflow_provider.cli", "run", "--event-store", file_uri(folder / "store"), "--job-id", "start"]
    command = [sys.executable, *(runner if recorded else []), str(JOB), str(said), str(PARTITIONS)]
    surroundings = environment(folder, BEFORE_JOB_FINISHED if recorded else "")
    began = time.time()
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, cwd=folder, check=False)
    expected = -signal.SIGKILL if recorded else os.EX_OK
    if done.returncode != expected:
        raise SystemExit(f"It ended with {done.returncode} instead of {expected}:\n{done.stdout}{done.stderr}")
    return float(said.read_text()) - began
