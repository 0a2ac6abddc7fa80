"""``python -m benchmarks``: run the comparisons, print them as tables, keep them as JSON."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import (
    auto,
    checkpoint,
    events,
    fingerprint,
    idle,
    machine,
    outputs,
    reconcile,
    replay,
    retry,
    s3a,
    start,
    ten_hours,
)

EVENT_STORE = {"events": events, "replay": replay, "reconcile": reconcile, "ten-hours": ten_hours, "idle": idle}
"""What is measured of the job event store; none of it needs Spark."""
BY_NAME = {
    "outputs": outputs.undisturbed,
    "kills": outputs.killed,
    "queries": outputs.queries,
    "queries-on-files": outputs.queries_on_files,
}
"""What is measured of jobs of minutes."""
RESULTS = Path(__file__).parent / "results"
PICTURES = Path(__file__).parents[1] / "docs"


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = ["checkpoint", "s3a", "retry", "start", "fingerprint", "auto", *BY_NAME, *EVENT_STORE]
    by_name = f"one measurement alone; {', '.join(['auto', *BY_NAME])} take long and only run if named"
    parser.add_argument("--only", choices=names, help=by_name)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the checkpoint comparison (default: 5)")
    parser.add_argument("--retry-rounds", type=int, default=3, help="rounds of the retry comparison (default: 3)")
    parser.add_argument("--store-rounds", type=int, default=5, help="rounds with the event store (default: 5)")
    parser.add_argument("--iterations", type=int, default=1200, help="how costly the retry's job is (default: 1200)")
    parser.add_argument("--auto-rounds", type=int, default=3, help="rounds of these four (default: 3)")
    parser.add_argument("--scale", type=float, default=3, help="TPC-H's scale factor for these four (default: 3)")
    parser.add_argument("--queries", type=int, nargs="+", default=[], help="queries of 'auto' (default: all 22)")
    parser.add_argument("--retry-over", type=float, default=10, help="seconds of the queries retried (default: 10)")
    parser.add_argument("--pictures", type=Path, default=PICTURES, help="where 'auto' draws (default: docs)")
    parser.add_argument("--data", type=Path, help="TPC-H tables as Parquet; by default they are generated")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where to write JSON (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.only == "auto":  # takes hours, and so is run by name only
        from benchmarks import pictures  # imports matplotlib, which is slow

        described = machine.describe()
        result = auto.compare(
            arguments.scale,
            arguments.auto_rounds,
            arguments.queries,
            arguments.retry_over,
            lambda so_far: _keep(arguments.results, "auto", described, so_far),
        )
        print(auto.table(result))
        for file in pictures.draw(result, arguments.pictures):
            print(f"drawn: {file.name}")
        return
    if arguments.only in BY_NAME:
        compare = partial(BY_NAME[arguments.only], arguments.scale, arguments.auto_rounds)
        _measure(arguments.results, arguments.only, compare, goal_table)
        return
    for name, measured in EVENT_STORE.items():
        if arguments.only in (None, name):
            _measure(arguments.results, name, partial(measured.compare, arguments.store_rounds), goal_table)
    if arguments.only in EVENT_STORE:
        return
    if arguments.only in (None, "fingerprint"):
        compare = partial(fingerprint.compare, arguments.rounds)
        _measure(arguments.results, "fingerprint", compare, fingerprint_table)
    if arguments.only in (None, "start"):
        _measure(arguments.results, "start", partial(start.compare, arguments.retry_rounds), goal_table)
    if arguments.only in ("fingerprint", "start"):
        return
    with tempfile.TemporaryDirectory(prefix="tpch-") as temporary:
        data = arguments.data.resolve() if arguments.data else _generate(Path(temporary))
        if arguments.only in (None, "checkpoint"):
            compare = partial(checkpoint.compare, data, arguments.rounds)
            _measure(arguments.results, "checkpoint", compare, checkpoint_table)
        if arguments.only in (None, "s3a"):
            compare = partial(s3a.compare, data, arguments.rounds)
            _measure(arguments.results, "s3a", compare, checkpoint_table)
        if arguments.only in (None, "retry"):
            compare = partial(retry.compare, data, arguments.retry_rounds, arguments.iterations)
            _measure(arguments.results, "retry", compare, retry_table)


def _measure(
    folder: Path, name: str, compare: Callable[[], dict[str, Any]], table: Callable[[dict[str, Any]], str]
) -> None:
    """Measure, print and keep."""
    described = machine.describe()
    result = compare()
    print(table(result))
    _keep(folder, name, described, result)


def _generate(folder: Path) -> Path:
    program = Path(sys.executable).with_name("tpchgen-cli")
    command = [str(program), "parquet", "-s", "1", "--parts=8", "--tables=lineitem", "--output-dir", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def _keep(folder: Path, name: str, described: dict[str, Any], result: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    content = {"machine": {**described, "load_after": machine.load()}, **result}
    (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")


def goal_table(result: dict[str, Any]) -> str:
    """Return a measurement of the event store as Markdown, each figure with its goal beside it."""
    lines = [f"{result['title']}; median of {result['rounds']} rounds", "", "| case | figure | median | goal |"]
    lines.append("|---|---|--:|--:|")
    for case, figures in result["cases"].items():
        for name, figure in figures.items():
            goal = "" if figure["goal"] is None else f"at most {figure['goal']:g}"
            lines.append(f"| {case} | {name.replace('_', ' ')} | {figure['median']:,.7g} | {goal} |")
    for name in ("requests", "written"):
        if name in result:
            lines += ["", f"{name}: " + ", ".join(f"{number:,} {kind}" for kind, number in result[name].items())]
    return "\n".join(lines) + "\n"


def fingerprint_table(result: dict[str, Any]) -> str:
    """Return the fingerprint's time as Markdown."""
    return (
        f"{result['nodes']:,} nodes over {result['files']:,} files; median of {result['rounds']} rounds: "
        f"{result['seconds']:.2f} s (worst {result['worst_seconds']:.2f} s), "
        f"of which Spark's own print of the plan as JSON {result['to_json_seconds']:.2f} s"
    )


def checkpoint_table(result: dict[str, Any]) -> str:
    """Return the checkpoint comparison as Markdown."""
    lines = [
        f"{result['input']}; median of {result['rounds']} rounds",
        "",
        "| way | wall s | CPU s | MiB | wall ratio | CPU ratio | bytes ratio |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, way in result["ways"].items():
        figures = ("wall_seconds", "cpu_seconds", "mebibytes", "wall_ratio", "cpu_ratio", "bytes_ratio")
        lines.append(f"| {name} | {' | '.join(str(way[figure]) for figure in figures)} |")
    return "\n".join(lines) + "\n"


def retry_table(result: dict[str, Any]) -> str:
    """Return the retry comparison as Markdown."""
    lines = [
        f"{result['job']}; killed with {result['killed_at']}; median of {result['rounds']} rounds",
        "",
        "| run | wall s |",
        "|---|--:|",
        f"| full, never interrupted | {result['full_seconds']} |",
        f"| retry after the kill | {result['retry_seconds']} |",
        f"| of which starting (a job that does nothing) | {result['start_up_seconds']} |",
        f"| **retry / full** | **{result['ratio']}** |",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
