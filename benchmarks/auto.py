"""What auto mode costs and saves: TPC-H's queries as one unmodified job, and a nightly job with several outputs.

Failure-free: the whole job runs by plain Python and under ``spark-recovery run``, in turn, the first of a pair being
now the one and now the other; each output's time is taken inside the application. After a failure: a query that takes
long enough runs in a driver of its own, is run once more, killed with SIGKILL when 80 % of its time have passed, and
run again. Every result is compared with plain Spark's.
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from pyarrow.dataset import dataset

from airflow_provider.core.job import JobId
from airflow_provider.core.options import StorageOptions
from airflow_provider.core.report import JobReport, build_report
from airflow_provider.storage.files import file_uri
from airflow_provider.storage.inspection import inspect_job
from airflow_provider.storage.uris import open_store
from benchmarks.drivers import environment
from benchmarks.measure import cpu_of
from tests.queries.compare import SAME_ENGINE, differences
from tests.queries.query_data import QuerySuite, query_suite
from tests.queries.runs import JOBS
from tests.support.waiting import kill_tree, wait_until

GOALS = {"median_overhead": 0.02, "nightly_overhead": 0.02, "median_retry_ratio": 0.62}
"""The most that each should be; shares of the time without recovery, and of a full run."""
KILLED_AT = 0.8
"""Share of a query's time after which its driver is killed."""
LONG = 5.0
"""Seconds from which on a query counts for the overhead: Spark's own times of shorter ones differ by more than it."""
JOB = "benchmark"
QUERIES, NIGHTLY = JOBS / "queries.py", Path(__file__).parent / "nightly_job.py"


@dataclass(frozen=True)
class Run:
    """One driver.

    :ivar wall: seconds from the start of its process to its end
    :ivar cpu: CPU seconds of all its processes, its start among them; up to a second before its end
    :ivar outputs: seconds inside the application for each output, from its first line to its last file; empty if killed
    :ivar report: of the job so far; ``None`` without recovery
    """

    wall: float
    cpu: float
    outputs: Mapping[str, float] = field(default_factory=dict)
    report: JobReport | None = None

    @property
    def inside(self) -> float:
        """Seconds of all outputs together."""
        return sum(self.outputs.values())


@dataclass(frozen=True)
class Pair:
    """The same job by plain Spark and with recovery, one after the other."""

    plain: Run
    auto: Run

    def overhead(self, output: str) -> float:
        """Additional time of one output, as a share of plain Spark's."""
        return self.auto.outputs[output] / self.plain.outputs[output] - 1


@dataclass(frozen=True)
class Retry:
    """A run after a kill.

    :ivar killed_after: seconds that the query had run in the killed driver
    :ivar full: seconds of the query in a full run with recovery, in a driver of its own
    :ivar again: seconds of the query in the retry
    :ivar reused: partitions that the retry reused
    """

    query: str
    killed_after: float
    full: float
    again: float
    reused: int

    @property
    def ratio(self) -> float:
        """The query's time in the retry, as a share of that in a full run."""
        return self.again / self.full


@dataclass
class Job:
    """A script over TPC-H's tables that says in ``seconds.json`` how long each output took.

    :ivar store: where its event stores are; by default beside what it writes
    :ivar storage: how to reach them
    """

    suite: QuerySuite
    script: Path
    folder: Path
    store: str = ""
    storage: StorageOptions = field(default_factory=StorageOptions)

    def pair(self, number: int, *outputs: str) -> Pair:
        """Run the job in both ways, the first time beginning with recovery; the rows are compared."""
        plain, auto = self.folder / f"plain-{number}", self.folder / f"auto-{number}"
        order = (plain, auto) if number % 2 else (auto, plain)
        run = {own: self.run(own, *outputs, recorded=own is auto) for own in order}
        pair = Pair(run[plain], run[auto])
        for output in pair.plain.outputs:
            self.check(plain, auto, output)
        print(f"  {self.script.stem}, round {number}: {_told(pair)}", file=sys.stderr, flush=True)
        for own in (plain, auto):
            shutil.rmtree(own / "store", ignore_errors=True)
        return pair

    def run(self, folder: Path, *outputs: str, recorded: bool, kill_after: float | None = None) -> Run:
        """Run the job in a driver of its own.

        :param outputs: only these
        :param kill_after: seconds after the first output's beginning; how long Spark takes to start differs by more
        """
        folder.mkdir(exist_ok=True, parents=True)
        job = [str(self.script), str(self.suite.folder), str(folder / "out"), *outputs]
        store = f"{self.store}/{folder.parent.name}/{folder.name}" if self.store else file_uri(folder / "store")
        runner = ["-m", "airflow_provider.cli", "run", "--event-store", store, "--job-id", JOB]
        options = ["--recovery-points", "auto"]
        if self.storage.endpoint_url:
            options += [
                "--endpoint-url",
                self.storage.endpoint_url,
                "--addressing-style",
                self.storage.addressing_style,
            ]
        command = [sys.executable, *([*runner, *options] if recorded else []), *job]
        log = folder / "log"
        began = time.monotonic()
        with log.open("a") as output:
            process = subprocess.Popen(
                command,
                env=environment(folder),
                cwd=folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                if kill_after is not None:
                    wait_until(lambda: process.poll() is not None or "begins\n" in log.read_text(), f"{log} to begin")
                cpu = _wait(process, kill_after)
            except subprocess.TimeoutExpired:
                cpu = 0.0
                kill_tree(process.pid)
                process.wait()
        wall = time.monotonic() - began
        if process.returncode not in {0, 0 if kill_after is None else -signal.SIGKILL}:
            raise SystemExit(f"{self.script.stem} ended with {process.returncode}:\n{log.read_text()[-5000:]}")
        shutil.rmtree(folder / "spark-local", ignore_errors=True)
        seconds = json.loads((folder / "out" / "seconds.json").read_text()) if process.returncode == 0 else {}
        taken_by = {str(name): float(taken) for name, taken in seconds.items()}
        return Run(round(wall, 3), round(cpu, 1), taken_by, self._report(store) if recorded else None)

    def retry(self, output: str, expected: Path) -> Retry | None:
        """Run one output, kill it on its way, and run it again; ``None`` if it was through before the kill thrice."""
        folder = self.folder / f"retry-{output}"
        full = self.run(folder / "full", output, recorded=True).inside
        for count in range(3):
            own = folder / f"killed-{count}"
            after = KILLED_AT * full
            killed = self.run(own, output, recorded=True, kill_after=after)
            if killed.outputs:
                full = killed.inside
                continue
            again = self.run(own, output, recorded=True)
            self.check(expected, own, output)
            reused = again.report.partitions_reused if again.report else 0
            retry = Retry(output, round(after, 3), full, again.inside, reused)
            shutil.rmtree(folder)
            return retry
        return None

    def check(self, plain: Path, auto: Path, output: str) -> None:
        """Compare the rows of an output.

        :raises SystemExit: they differ
        """
        name = f"{int(output):02}" if output.isdigit() else output
        expected, got = (dataset(folder / "out" / name, partitioning="hive").to_table() for folder in (plain, auto))
        problems = differences(expected, got, SAME_ENGINE)
        if problems:
            raise SystemExit(f"The rows of {name} differ: {problems}")

    def _report(self, store: str) -> JobReport:
        return build_report(JOB, inspect_job(open_store(store, self.storage), JobId.parse(JOB)))


def compare(
    scale: float,
    rounds: int,
    queries: Sequence[int],
    retry_over: float,
    keep: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Run the comparison.

    :param scale: TPC-H's scale factor
    :param rounds: pairs of each job
    :param queries: their numbers; empty for all
    :param retry_over: seconds that a query has to take in plain Spark for a retry to be measured
    :param keep: is given the result so far after each step, because all of them take an hour or two
    """
    asked = {
        "job": f"TPC-H scale {scale:g}, its results written as Parquet one after another by one application",
        "recovery_points": "auto",
        "rounds": rounds,
        "retry_over_seconds": retry_over,
        "killed_at": KILLED_AT,
    }
    nights: list[Pair] = []
    pairs: list[Pair] = []
    retries: list[Retry] = []

    def result() -> dict[str, Any]:
        made = {**asked, "nightly": outputs_of(nights), "queries": outputs_of(pairs)}
        made["retries"] = [{**asdict(one), "ratio": round(one.ratio, 3)} for one in retries]
        return {**made, "summary": summary(nights, pairs, retries)}

    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        folder = Path(name)
        suite = query_suite("tpch", scale, folder / "data", parts=8)
        nightly, all_queries = Job(suite, NIGHTLY, folder / "nightly"), Job(suite, QUERIES, folder / "queries")
        numbers = [str(number) for number in queries or suite.numbers]
        for number in range(rounds):
            nights.append(nightly.pair(number))
            pairs.append(all_queries.pair(number, *numbers))
            keep(result())
        for query in numbers:
            if statistics.median(pair.plain.outputs[query] for pair in pairs) >= retry_over:
                retry = all_queries.retry(query, folder / "queries" / "plain-0")
                if retry is not None:
                    retries.append(retry)
                    print(f"  query {query}: retry / full {retry.ratio:.2f}", file=sys.stderr, flush=True)
                    keep(result())
    return result()


def summary(nights: Sequence[Pair], pairs: Sequence[Pair], retries: Sequence[Retry]) -> dict[str, Any]:
    """Return the figures that have goals; ``None`` where nothing was measured."""
    overheads = [one["overhead"] for one in outputs_of(pairs).values() if one["plain_seconds"] >= LONG]
    return {
        "median_overhead": round(statistics.median(overheads), 4) if overheads else None,
        "worst_overhead": max(overheads, default=None),
        "total_overhead": _together(pairs, "inside"),
        "total_cpu_overhead": _together(pairs, "cpu"),
        "nightly_overhead": _together(nights, "inside"),
        "nightly_cpu_overhead": _together(nights, "cpu"),
        "median_retry_ratio": round(statistics.median(one.ratio for one in retries), 3) if retries else None,
        "worst_retry_ratio": round(max(one.ratio for one in retries), 3) if retries else None,
        "goals": GOALS,
    }


def table(result: Mapping[str, Any]) -> str:
    """Return the comparison as Markdown."""
    retries = {one["query"]: one for one in result["retries"]}
    lines = [
        f"{result['job']}; medians of {result['rounds']} pairs",
        "",
        "| output | plain s | auto s | overhead | each round | retry s | retry / full |",
        "|---|--:|--:|--:|---|--:|--:|",
    ]
    for name, output in {**result["queries"], **result["nightly"]}.items():
        retry = retries.get(name, {"again": "", "ratio": ""})
        rounds = " ".join(f"{each:+.1%}" for each in output["rounds"])
        lines.append(
            f"| {name} | {output['plain_seconds']} | {output['auto_seconds']} | {output['overhead']:+.1%} | {rounds} "
            f"| {retry['again']} | {retry['ratio']} |"
        )
    lines += ["", "| figure | measured | goal |", "|---|--:|--:|"]
    for name, told in (
        ("median_overhead", f"overhead, median of the queries of at least {LONG:g} s"),
        ("worst_overhead", "the same, worst query"),
        ("total_overhead", "overhead, all queries together, median of the rounds"),
        ("total_cpu_overhead", "the same in CPU seconds of the whole processes"),
        ("nightly_overhead", "overhead of the nightly job, median of the rounds"),
        ("nightly_cpu_overhead", "the same in CPU seconds of the whole processes"),
        ("median_retry_ratio", "retry / full, median"),
        ("worst_retry_ratio", "retry / full, worst"),
    ):
        found, goal = result["summary"][name], GOALS.get(name)
        form = "{}" if "retry" in name else "{:.1%}"
        shown = "not measured" if found is None else form.format(found)
        lines.append(f"| {told} | {shown} | {'' if goal is None else 'at most ' + form.format(goal)} |")
    return "\n".join(lines) + "\n"


def outputs_of(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return the figures of each output."""
    return {
        name: {
            "plain_seconds": round(statistics.median(pair.plain.outputs[name] for pair in pairs), 2),
            "auto_seconds": round(statistics.median(pair.auto.outputs[name] for pair in pairs), 2),
            "overhead": round(statistics.median(pair.overhead(name) for pair in pairs), 4),
            "rounds": [round(pair.overhead(name), 4) for pair in pairs],
        }
        for name in (pairs[0].plain.outputs if pairs else ())
    }


def _together(pairs: Sequence[Pair], seconds: str) -> float | None:
    """Return what whole jobs took more of *seconds*, the name of a figure of :class:`Run`."""
    taken = attrgetter(seconds)
    shares = [taken(pair.auto) / taken(pair.plain) - 1 for pair in pairs]
    return round(statistics.median(shares), 4) if shares else None


def _wait(process: subprocess.Popen[bytes], seconds: float | None) -> float:
    """Wait for the end of a driver; returns its CPU seconds.

    :raises subprocess.TimeoutExpired: it runs for longer
    """
    began, cpu = time.monotonic(), 0.0
    while process.poll() is None:
        if seconds is not None and time.monotonic() - began > seconds:
            raise subprocess.TimeoutExpired(process.args, seconds)
        cpu = max(cpu, cpu_of(process.pid))
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0 if seconds is None else min(1.0, max(0.0, began + seconds - time.monotonic())))
    return cpu


def _told(pair: Pair) -> str:
    more = pair.auto.inside / pair.plain.inside - 1
    walls = f"processes {pair.plain.wall:.1f}, {pair.auto.wall:.1f} s"
    cpu = f"CPU {pair.plain.cpu:.1f}, {pair.auto.cpu:.1f} s"
    return f"plain {pair.plain.inside:.1f} s, overhead {more:+.1%}; {walls}, {cpu}"
