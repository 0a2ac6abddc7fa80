"""Jobs of minutes: what recovery costs them on files and on S3, and what a retry takes after kills.

Undisturbed, the nightly job runs by plain Python and under ``spark-recovery run``, in turn, its event store on files or
on a local S3 server. That server takes CPU time from the job, on the same cores, which one elsewhere would not: it is
counted apart, and the overhead is told without it, too. Then the job is killed with SIGKILL when a share of its time
has passed, and run again: the least that a retry can take is what was left. All rows are compared with plain Spark's.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_provider.core.options import StorageOptions
from benchmarks.auto import NIGHTLY, QUERIES, Job, Pair, outputs_of
from benchmarks.auto import summary as figures_of
from benchmarks.jobs import summary
from benchmarks.measure import cpu_of, descendants
from benchmarks.s3 import local_s3
from tests.queries.query_data import query_suite

KILLED_AT = (0.2, 0.5, 0.8, 0.95)
"""Shares of a full run's time after which its driver is killed."""
OVERHEAD = {"files": 0.02, "S3": 0.06}
"""The most that an undisturbed run should take more, as a share of plain Spark's time."""
QUERIES_OVERHEAD = {
    "files": {"median_overhead": 0.01, "worst_overhead": 0.05},
    "S3": {"median_overhead": 0.04, "worst_overhead": 0.1},
}
"""The most that TPC-H's queries should take more with the event store there."""
PROCESS_OVERHEAD = 0.03
"""The most that the whole process of the 22 queries should take more with the event store on files."""
MORE_THAN_LEFT = 0.1
"""The most that a retry should take more than what the kill has left to do, as a share of a full run."""
MIB = 2**20


def undisturbed(scale: float, rounds: int) -> dict[str, Any]:
    """Run the job to its end by plain Spark and with recovery, in turn, the event store on files and on S3.

    :param scale: TPC-H's scale factor
    :param rounds: pairs with each event store
    :return: medians with their goals, and all single figures
    """
    with _on_s3(NIGHTLY, scale) as (gateway, on_s3):
        jobs = {"files": Job(on_s3.suite, NIGHTLY, on_s3.folder.with_name("files")), "S3": on_s3}
        servers = descendants(os.getpid())[1:]
        found = {
            f"undisturbed, event store on {store}": (
                [_overhead(*_counted(job, servers, number)) for number in range(rounds)],
                {"overhead_without_server": OVERHEAD[store]},
            )
            for store, job in jobs.items()
        }
    return _result(f"{_title(scale)}; S3 is {gateway}", rounds, found)


def queries(scale: float, rounds: int) -> dict[str, Any]:
    """Run TPC-H's 22 queries by plain Spark and with recovery, in turn, the event store on S3.

    :param scale: TPC-H's scale factor
    :param rounds: pairs
    :return: the median query of at least :data:`.auto.LONG` seconds, the worst one, and all of them together
    """
    with _on_s3(QUERIES, scale) as (gateway, job):
        servers, numbers = descendants(os.getpid())[1:], list(map(str, job.suite.numbers))
        counted = [_counted(job, servers, number, *numbers) for number in range(rounds)]
    pairs = [pair for pair, _ in counted]
    found = {
        "single queries, the server's time among theirs": ([_by_query(pairs)], QUERIES_OVERHEAD["S3"]),
        "all 22 together": ([_overhead(*each) for each in counted], {}),
    }
    title = f"{_queries_title(scale)}; S3 is {gateway}"
    return {**_result(title, rounds, found), "queries": outputs_of(pairs)}


def queries_on_files(scale: float, rounds: int) -> dict[str, Any]:
    """Run TPC-H's 22 queries by plain Spark and with recovery, in turn, the event store on files.

    Behind each pair plain Spark runs once more. How far it is from itself is what this machine can tell at all: the
    worst of 22 queries is far from plain Spark by chance, too.

    :param scale: TPC-H's scale factor
    :param rounds: pairs
    :return: as of :func:`queries`, and the same figures of plain Spark against itself
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        job = Job(query_suite("tpch", scale, Path(name, "data"), parts=8), QUERIES, Path(name, "files"))
        numbers = list(map(str, job.suite.numbers))
        pairs, alike = [], []
        for number in range(rounds):
            pair = job.pair(number, *numbers)
            again = job.run(job.folder / f"again-{number}", *numbers, recorded=False)
            pairs.append(pair)
            alike.append(Pair(pair.plain, again))
    found = {
        "single queries": ([_by_query(pairs)], QUERIES_OVERHEAD["files"]),
        "all 22 together": ([_overhead(pair) for pair in pairs], {"overhead_of_processes": PROCESS_OVERHEAD}),
        "single queries, plain Spark against itself": ([_by_query(alike)], {}),
        "all 22 together, plain Spark against itself": ([_times(pair) for pair in alike], {}),
    }
    by_query = {"queries": outputs_of(pairs), "queries of plain Spark against itself": outputs_of(alike)}
    return {**_result(f"{_queries_title(scale)}; event store on files", rounds, found), **by_query}


def killed(scale: float, rounds: int, shares: Sequence[float] = KILLED_AT) -> dict[str, Any]:
    """Kill the job on its way and run it again, the event store on files.

    :param scale: TPC-H's scale factor
    :param rounds: kills at each share of a full run's time
    :return: medians with their goals, and all single figures
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        folder = Path(name)
        job = Job(query_suite("tpch", scale, folder / "data", parts=8), NIGHTLY, folder / "files")
        expected = folder / "plain"
        job.run(expected, recorded=False)
        singles: dict[float, list[dict[str, float]]] = {share: [] for share in shares}
        for number in range(rounds):
            own = folder / f"round-{number}"
            full = job.run(own / "full", recorded=True).inside
            for share in shares:
                singles[share].append(_retry(job, share, full, expected, own / f"killed-{share}"))
            shutil.rmtree(own)
        found = {
            f"killed at {share:.0%}": (singles[share], {"retry_ratio": round(1 - share + MORE_THAN_LEFT, 2)})
            for share in shares
        }
    return _result(f"{_title(scale)}; event store on files", rounds, found)


def _title(scale: float) -> str:
    return f"The nightly job over TPC-H scale {scale:g}, four outputs"


def _queries_title(scale: float) -> str:
    return f"TPC-H scale {scale:g}, 22 queries in one application"


def _by_query(pairs: Sequence[Pair]) -> dict[str, float]:
    """Return the median query and the worst one; nothing if none took long enough."""
    figures = figures_of([], pairs, [])
    return {name: figures[name] for name in ("median_overhead", "worst_overhead") if figures[name] is not None}


def _result(
    title: str, rounds: int, found: Mapping[str, tuple[list[dict[str, float]], dict[str, float]]]
) -> dict[str, Any]:
    return {
        "title": title,
        "rounds": rounds,
        "cases": {case: summary(singles, goals) for case, (singles, goals) in found.items()},
        "all_rounds": {case: singles for case, (singles, _) in found.items()},
    }


@contextmanager
def _on_s3(script: Path, scale: float) -> Iterator[tuple[str, Job]]:
    """Yield what S3 is here, and a job whose event store is there."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name, local_s3() as (gateway, server):
        suite = query_suite("tpch", scale, Path(name, "data"), parts=8)
        os.environ.update(server.environment)
        storage = StorageOptions(endpoint_url=server.endpoint, addressing_style="path")
        yield gateway, Job(suite, script, Path(name, "s3"), f"s3://{server.create_bucket('benchmark')}", storage)


def _counted(job: Job, servers: Sequence[int], number: int, *outputs: str) -> tuple[Pair, float]:
    """Run the job in both ways; return that, and the CPU seconds of the S3 server meanwhile.

    :param servers: its processes
    :param outputs: only these
    """
    before = sum(map(cpu_of, servers))
    return job.pair(number, *outputs), sum(map(cpu_of, servers)) - before


def _times(pair: Pair) -> dict[str, float]:
    """Return how much more the second run took."""
    return {
        "plain_seconds": pair.plain.inside,
        "overhead": pair.auto.inside / pair.plain.inside - 1,
        "overhead_of_processes": pair.auto.wall / pair.plain.wall - 1,
        "cpu_overhead_of_processes": pair.auto.cpu / pair.plain.cpu - 1,
    }


def _overhead(pair: Pair, server_cpu: float | None = None) -> dict[str, float]:
    """Return what recovery has cost.

    :param server_cpu: CPU seconds of the S3 server, if there is one
    """
    plain, auto = pair.plain, pair.auto
    assert auto.report is not None
    figures = _times(pair)
    if server_cpu is not None:
        # What the run with recovery would have taken if the server had run elsewhere.
        without_server = auto.inside - server_cpu / len(os.sched_getaffinity(0))
        figures |= {"overhead_without_server": without_server / plain.inside - 1, "server_cpu_seconds": server_cpu}
    return {
        **figures,
        "MiB_stored_at_the_end": auto.report.bytes_held / MIB,
        "MiB_stored_at_the_most": auto.report.most_bytes_held / MIB,
    }


def _retry(job: Job, share: float, full: float, expected: Path, folder: Path) -> dict[str, float]:
    """Kill the job when a share of a full run's time has passed, and run it again.

    :param full: seconds that a full run has taken right before
    :raises SystemExit: it was through before the kill, thrice
    """
    for count in range(3):
        own = folder / str(count)
        killed = job.run(own, recorded=True, kill_after=share * full)
        if killed.outputs:  # quicker than the full run was
            full = killed.inside
            continue
        again = job.run(own, recorded=True)
        for output in again.outputs:
            job.check(expected, own, output)
        print(f"  killed at {share:.0%}: retry / full {again.inside / full:.2f}", file=sys.stderr, flush=True)
        return {"full_seconds": full, "retry_seconds": again.inside, "retry_ratio": again.inside / full}
    raise SystemExit(f"The job was through before {share:.0%} of the time that a full run had taken.")
