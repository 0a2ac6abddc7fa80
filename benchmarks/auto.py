"""What auto mode costs and saves: TPC-H's queries as an unmodified script.

Failure-free: each query runs in a driver of its own, by plain Python and under ``spark-recovery run``, in turn, the
first of a pair being now the one and now the other. The overhead is the median over the pairs. After a failure: a query
that takes long enough is run once more, killed with SIGKILL when 80 % of its time have passed, and run again. Times are
those of the query inside the application, from its SQL to its last file; beside them stand those of the whole
processes, which start Spark first. Every result is compared with plain Spark's.
"""

from __future__ import annotations

import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airflow_provider.recovery.job import JobId
from airflow_provider.recovery.report import JobReport, build_report
from airflow_provider.storage.inspection import inspect_job
from airflow_provider.storage.uris import file_uri, open_store
from benchmarks.drivers import environment
from tests.queries.compare import SAME_ENGINE, differences, spark_result
from tests.queries.data import QuerySuite, query_suite
from tests.queries.runs import JOBS, kill_tree
from tests.support.waiting import wait_until

GOALS = {"median_overhead": 0.05, "worst_overhead": 0.15, "retry_ratio": 0.35}
"""The most that each should be; shares of the time without recovery, and of a full run."""
KILLED_AT = 0.8
"""Share of a query's time after which its driver is killed."""
JOB = "query"


@dataclass(frozen=True)
class Run:
    """One driver.

    :ivar wall: seconds from the start of its process to its end
    :ivar inside: seconds of them that the query took inside the application, from its SQL to its last file; 0 if killed
    """

    wall: float
    inside: float


@dataclass(frozen=True)
class Pair:
    """A query by plain Spark and with recovery."""

    plain: Run
    auto: Run

    @property
    def overhead(self) -> float:
        """Additional time of the query, as a share of plain Spark's."""
        return self.auto.inside / self.plain.inside - 1

    @property
    def wall_overhead(self) -> float:
        """The same of the whole process."""
        return self.auto.wall / self.plain.wall - 1


@dataclass(frozen=True)
class Retry:
    """A run after a kill.

    :ivar killed_after: seconds that the query had run in the killed driver
    :ivar full: median of full runs with recovery
    :ivar again: the retry
    :ivar reused: partitions that it reused
    """

    killed_after: float
    full: Run
    again: Run
    reused: int

    @property
    def ratio(self) -> float:
        """The query's time in the retry, as a share of that in a full run."""
        return self.again.inside / self.full.inside

    @property
    def wall_ratio(self) -> float:
        """The same of the whole process."""
        return self.again.wall / self.full.wall


def compare(
    scale: float,
    rounds: int,
    kills: int,
    queries: Sequence[int],
    retry_over: float,
    keep: Callable[[dict[str, Any]], None],
    earlier: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run the comparison.

    :param scale: TPC-H's scale factor
    :param rounds: pairs of each query
    :param kills: how often each long query is killed and run again
    :param queries: their numbers; empty for all
    :param retry_over: seconds that a query has to take in plain Spark for a retry to be measured
    :param keep: is given the result so far after each query, because all of them take hours
    :param earlier: a result so far, whose queries are not measured again
    :raises SystemExit: *earlier* was measured otherwise
    """
    asked = {
        "job": f"TPC-H scale {scale:g}, each query in a driver of its own, its result written as Parquet",
        "recovery_points": "auto",
        "rounds": rounds,
        "kills": kills,
        "retry_over_seconds": retry_over,
        "killed_at": KILLED_AT,
    }
    measured: dict[int, dict[str, Any]] = {}
    if earlier is not None:
        if {name: earlier[name] for name in asked} != asked:
            raise SystemExit("What was measured so far has another scale, or other rounds: measure it anew.")
        measured = {int(number): figures for number, figures in earlier["queries"].items()}

    def result() -> dict[str, Any]:
        queries = {str(number): measured[number] for number in sorted(measured)}
        return {**asked, "queries": queries, "summary": summary(measured.values())}

    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        folder = Path(name)
        suite = query_suite("tpch", scale, folder / "data", parts=8)
        for number in (number for number in queries or suite.numbers if number not in measured):
            own = folder / f"{number:02}"
            own.mkdir()
            measured[number] = _measure(suite, number, own, rounds, kills, retry_over)
            shutil.rmtree(own, ignore_errors=True)  # what was stored for 22 queries may be more than the disk holds
            print(f"  query {number}: {_told(measured[number])}", file=sys.stderr, flush=True)
            keep(result())
    return result()


def summary(measured: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures that have goals, over all queries; those of retries are ``None`` if there was none."""
    queries = list(measured)
    overheads, walls = ([query[name] for query in queries] for name in ("overhead", "wall_overhead"))
    retries, wall_retries = (
        [query["retry"][name] for query in queries if query["retry"]] for name in ("ratio", "wall_ratio")
    )
    plain, auto = (sum(query[name] for query in queries) for name in ("plain_seconds", "auto_seconds"))
    return {
        "median_overhead": round(statistics.median(overheads), 4),
        "worst_overhead": max(overheads),
        "total_overhead": round(auto / plain - 1, 4),
        "median_wall_overhead": round(statistics.median(walls), 4),
        "worst_wall_overhead": max(walls),
        "median_retry_ratio": round(statistics.median(retries), 3) if retries else None,
        "worst_retry_ratio": max(retries) if retries else None,
        "median_retry_wall_ratio": round(statistics.median(wall_retries), 3) if retries else None,
        "goals": GOALS,
    }


def table(result: Mapping[str, Any]) -> str:
    """Return the comparison as Markdown, each figure that has a goal with its goal beside it."""
    lines = [
        f"{result['job']}; recovery points: {result['recovery_points']}; "
        f"medians of {result['rounds']} pairs and of {result['kills']} retries",
        "",
        "| query | plain s | auto s | overhead | whole process: plain s | auto s | overhead | points | MiB stored "
        "| retry s | retry / full | whole process |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for number, query in result["queries"].items():
        retry = query["retry"] or {"seconds": "", "ratio": "", "wall_ratio": ""}
        lines.append(
            f"| {number} | {query['plain_seconds']} | {query['auto_seconds']} | {query['overhead']:+.1%} "
            f"| {query['plain_wall_seconds']} | {query['auto_wall_seconds']} | {query['wall_overhead']:+.1%} "
            f"| {query['recovery_points']} | {query['stored_mebibytes']} | {retry['seconds']} | {retry['ratio']} "
            f"| {retry['wall_ratio']} |"
        )
    found, goals = result["summary"], result["summary"]["goals"]
    lines += ["", "| figure | measured | goal |", "|---|--:|--:|"]
    for name, told, goal in (
        ("median_overhead", "overhead inside the application, median of the queries", "median_overhead"),
        ("worst_overhead", "the same, worst query", "worst_overhead"),
        ("total_overhead", "the same, all queries together", ""),
        ("median_wall_overhead", "overhead of the whole process, median of the queries", "median_overhead"),
        ("worst_wall_overhead", "the same, worst query", "worst_overhead"),
    ):
        limit = f"at most {goals[goal]:.0%}" if goal else ""
        lines.append(f"| {told} | {found[name]:+.1%} | {limit} |")
    for name, told in (("median_retry_ratio", "retry / full, median"), ("worst_retry_ratio", "retry / full, worst")):
        ratio = found[name] if found[name] is not None else f"no query took {result['retry_over_seconds']:g} s"
        lines.append(f"| {told} | {ratio} | at most {goals['retry_ratio']} |")
    return "\n".join(lines) + "\n"


def _measure(
    suite: QuerySuite, number: int, folder: Path, rounds: int, kills: int, retry_over: float
) -> dict[str, Any]:
    pairs = []
    for count in range(rounds):
        plain, auto = folder / f"plain-{count}", folder / f"auto-{count}"
        order = (plain, auto) if (number + count) % 2 else (auto, plain)
        run = {own: _run(suite, number, own, recorded=own is auto) for own in order}
        pairs.append(Pair(run[plain], run[auto]))
        _check(plain, auto, number)
    report = _report(auto)
    times = {way: [getattr(pair, way) for pair in pairs] for way in ("plain", "auto")}
    medians = {
        f"{way}{kind}_seconds": round(statistics.median(getattr(run, field) for run in runs), 2)
        for way, runs in times.items()
        for kind, field in (("", "inside"), ("_wall", "wall"))
    }
    retries: list[Retry] = []
    if medians["plain_seconds"] >= retry_over:
        full = Run(medians["auto_wall_seconds"], medians["auto_seconds"])
        tried = [_retry(suite, number, folder / f"retry-{count}", full, plain) for count in range(kills)]
        retries = [one for one in tried if one is not None]
    retry = None
    if retries:
        retry = {
            "seconds": round(statistics.median(one.again.inside for one in retries), 2),
            "ratio": round(statistics.median(one.ratio for one in retries), 3),
            "wall_seconds": round(statistics.median(one.again.wall for one in retries), 2),
            "wall_ratio": round(statistics.median(one.wall_ratio for one in retries), 3),
            "all_rounds": [asdict(one) for one in retries],
        }
    return {
        **medians,
        "overhead": round(statistics.median(pair.overhead for pair in pairs), 4),
        "wall_overhead": round(statistics.median(pair.wall_overhead for pair in pairs), 4),
        "recovery_points": len(report.vertices),
        "stored_mebibytes": round(sum(vertex.bytes for vertex in report.vertices) / 2**20, 1),
        "retry": retry,
        "all_rounds": [asdict(pair) for pair in pairs],
    }


def _retry(suite: QuerySuite, number: int, folder: Path, full: Run, expected: Path) -> Retry | None:
    """Kill a driver when :data:`KILLED_AT` of the query's seconds have passed, and run the job again.

    A driver that was through before that tells how long a full run takes now; ``None`` if that happened three times.
    """
    for count in range(3):
        own = folder.with_name(f"{folder.name}-{count}")
        after = KILLED_AT * full.inside
        killed = _run(suite, number, own, recorded=True, kill_after=after)
        if killed.inside:
            full = killed
            continue
        again = _run(suite, number, own, recorded=True)
        _check(expected, own, number)
        return Retry(round(after, 3), full, again, _report(own).partitions_reused)
    return None


def _run(suite: QuerySuite, number: int, folder: Path, *, recorded: bool, kill_after: float | None = None) -> Run:
    """Run a query in a driver of its own.

    :param kill_after: seconds after the query's beginning; how long starting Spark takes differs by more than that
    """
    folder.mkdir(exist_ok=True)
    job = [str(JOBS / "queries.py"), str(suite.folder), str(folder / "out"), str(number)]
    options = ["--recovery-points", "auto"]
    runner = ["-m", "airflow_provider.cli", "run", "--event-store", file_uri(folder / "store"), "--job-id", JOB]
    command = [sys.executable, *([*runner, "--keep-partitions", *options] if recorded else []), *job]
    with (folder / "log").open("a") as log:
        began = time.monotonic()
        process = subprocess.Popen(
            command, env=environment(folder), cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            if kill_after is not None:
                _wait_for(f"query {number} begins\n", folder / "log", process)
            process.wait(kill_after)
        except subprocess.TimeoutExpired:
            kill_tree(process.pid)
            process.wait()
        wall = time.monotonic() - began
    if process.returncode not in {0, 0 if kill_after is None else -signal.SIGKILL}:
        told = (folder / "log").read_text()[-5000:]
        raise SystemExit(f"query {number} ended with {process.returncode}:\n{told}")
    seconds = json.loads((folder / "out" / "seconds.json").read_text()) if process.returncode == 0 else {}
    return Run(round(wall, 3), seconds.get(str(number), 0.0))


def _wait_for(line: str, log: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until a driver has said *line*, or has ended."""
    wait_until(lambda: process.poll() is not None or line in log.read_text(errors="replace"), f"{log} to say {line!r}")


def _check(plain: Path, auto: Path, number: int) -> None:
    expected, got = (spark_result(folder / "out" / f"{number:02}") for folder in (plain, auto))
    problems = differences(expected, got, SAME_ENGINE)
    if problems:
        raise SystemExit(f"The rows of query {number} differ: {problems}")


def _report(folder: Path) -> JobReport:
    job = JobId.parse(JOB)
    return build_report(JOB, inspect_job(open_store(file_uri(folder / "store")), job))


def _told(query: Mapping[str, Any]) -> str:
    retry = f", retry / full {query['retry']['ratio']}" if query["retry"] else ""
    return (
        f"{query['plain_seconds']} s, overhead {query['overhead']:+.1%} (process {query['wall_overhead']:+.1%}){retry}"
    )
