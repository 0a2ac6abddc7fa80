"""A job of minutes with several outputs: what recovery costs it on files and on S3, and what a retry takes after kills.

Undisturbed, the nightly job runs by plain Python and under ``spark-recovery run``, in turn, its event store on files or
on a local S3 server, whose own CPU time counts for neither. Then it is killed with SIGKILL when a share of its time has
passed, and run again: the least that a retry can take is what was left. All rows are compared with plain Spark's.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow_provider.core.options import StorageOptions
from benchmarks.auto import NIGHTLY, Job, Pair
from benchmarks.jobs import summary
from benchmarks.s3 import local_s3
from tests.queries.query_data import query_suite

KILLED_AT = (0.2, 0.5, 0.8, 0.95)
"""Shares of a full run's time after which its driver is killed."""
OVERHEAD = {"files": 0.02, "S3": 0.06}
"""The most that an undisturbed run should take more, as a share of plain Spark's time."""
MORE_THAN_LEFT = 0.1
"""The most that a retry should take more than what the kill has left to do, as a share of a full run."""
MIB = 2**20


def compare(scale: float, rounds: int, kills: Sequence[float] = KILLED_AT) -> dict[str, Any]:
    """Run the comparison.

    :param scale: TPC-H's scale factor
    :param rounds: of each figure
    :return: medians with their goals, and all single figures
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name, local_s3() as (gateway, server):
        folder = Path(name)
        suite = query_suite("tpch", scale, folder / "data", parts=8)
        os.environ.update(server.environment)
        storage = StorageOptions(endpoint_url=server.endpoint, addressing_style="path")
        jobs = {
            "files": Job(suite, NIGHTLY, folder / "files"),
            "S3": Job(suite, NIGHTLY, folder / "s3", f"s3://{server.create_bucket('benchmark')}", storage),
        }
        cases: dict[str, Any] = {}
        singles: dict[str, list[dict[str, float]]] = {}
        for store, job in jobs.items():
            pairs = [job.pair(number) for number in range(rounds)]
            singles[f"undisturbed, event store on {store}"] = found = [_undisturbed(pair) for pair in pairs]
            cases[f"undisturbed, event store on {store}"] = summary(found, {"overhead": OVERHEAD[store]})
        job = jobs["files"]
        for number in range(rounds):
            for share in kills:
                case = f"killed at {share:.0%}, event store on files"
                singles.setdefault(case, []).append(_killed(job, share, folder / f"killed-{number}"))
        for share in kills:
            case = f"killed at {share:.0%}, event store on files"
            goals = {"retry_ratio": round(1 - share + MORE_THAN_LEFT, 2)}
            cases[case] = summary(singles[case], goals)
    return {
        "title": f"The nightly job over TPC-H scale {scale:g}, four outputs; S3 is {gateway}",
        "rounds": rounds,
        "cases": cases,
        "all_rounds": singles,
    }


def _undisturbed(pair: Pair) -> dict[str, float]:
    report = pair.auto.report
    assert report is not None
    return {
        "plain_seconds": pair.plain.inside,
        "overhead": pair.auto.inside / pair.plain.inside - 1,
        "overhead_of_processes": pair.auto.wall / pair.plain.wall - 1,
        "cpu_overhead_of_processes": pair.auto.cpu / pair.plain.cpu - 1,
        "MiB_stored_at_the_end": report.bytes_held / MIB,
        "MiB_stored_at_the_most": report.most_bytes_held / MIB,
    }


def _killed(job: Job, share: float, folder: Path) -> dict[str, float]:
    """Kill the job when a share of a full run's time has passed, and run it again.

    :raises SystemExit: it was through before the kill, thrice
    """
    full = job.run(folder / "full", recorded=True).inside
    for count in range(3):
        own = folder / f"killed-{count}"
        killed = job.run(own, recorded=True, kill_after=share * full)
        if killed.outputs:  # quicker than the full run was
            full = killed.inside
            continue
        again = job.run(own, recorded=True)
        for output in again.outputs:
            job.check(job.folder / "plain-0", own, output)
        shutil.rmtree(folder)
        print(f"  killed at {share:.0%}: retry / full {again.inside / full:.2f}", file=sys.stderr, flush=True)
        return {"full_seconds": full, "retry_seconds": again.inside, "retry_ratio": again.inside / full}
    raise SystemExit(f"The job was through before {share:.0%} of the time that a full run had taken.")
