"""The long form of the differential tests.

    python -m tests.differential --cases 1500 --killed 300 --seed 1
    python -m tests.differential --cases 200 --plain-only           # the harness's own noise

Prints a line for each script and mode, and at the end what was found. The cases that differ are in FOLDER/findings.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.differential.bundle import bundles, of_cases
from tests.differential.data import make_data
from tests.differential.differential import Differential, moments
from tests.differential.fixed import BY_HAND, fixed_cases
from tests.differential.walk import walk
from tests.support.quick_jvm import write_archive
from tests.support.sparks import OWN, spark_python


def main() -> int:
    """Run; return 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cases", type=int, default=150)
    parser.add_argument("--killed", type=int, default=0, help="drivers killed while a case is at work")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=24, help="most cases of one script")
    parser.add_argument(
        "--plain-only", action="store_true", help="plain Spark against plain Spark, also on 1 and 3 cores"
    )
    parser.add_argument("--fixed", action="store_true", help="the fixed cases in the place of generated ones")
    parser.add_argument("--by-hand", action="store_true", help="cases written by hand, killed at each of their moments")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the scripts to run, of those of this seed")
    parser.add_argument("--spark", default=OWN, help="version, of those in .tools/sparks (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="kept; default: a temporary one, kept if something is found")
    parser.add_argument("--keep", action="store_true", help="keep the files of all scripts")
    parsed = parser.parse_args()
    write_archive()
    folder = (parsed.folder or Path(tempfile.mkdtemp(prefix="differential-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    python = spark_python(parsed.spark)
    runs = Differential(folder, make_data(folder / "data"), parsed.seed, _say, parsed.keep, python)
    began = time.monotonic()
    fixed = of_cases(fixed_cases()) if parsed.fixed else None
    if parsed.by_hand:
        fixed = of_cases(fixed_cases(BY_HAND), size=parsed.size)
    if parsed.plain_only:
        for bundle in fixed or bundles(parsed.seed, parsed.cases, parsed.size):
            if not parsed.only or bundle.number in parsed.only:
                runs.plain_twice(bundle)
    elif fixed:
        for bundle in fixed:
            runs.compare(bundle, stops=moments(bundle)[: None if parsed.by_hand else parsed.killed])
    else:
        walk(runs, parsed.cases, parsed.killed, parsed.size, parsed.only)
    _summary(runs, time.monotonic() - began, folder)
    return 1 if runs.outcome.findings else 0


def _summary(runs: Differential, seconds: float, folder: Path) -> None:
    outcome = runs.outcome
    _say(
        f"{outcome.cases} cases, seed {runs.seed}, {outcome.kills} drivers killed, {outcome.struck} of them while a "
        f"case was at work; {len(outcome.run_again)} cases begun by a killed attempt and run again; "
        f"{seconds / 60:.0f} min"
    )
    for mode, number in outcome.differing().items():
        _say(f"{mode}: {number} cases differ")
    _say(f"findings: {folder / 'findings'}" if outcome.findings else "nothing differs")


def _say(line: str) -> None:
    print(time.strftime("%H:%M:%S"), line, flush=True)  # noqa: T201 - a command's answer


if __name__ == "__main__":
    sys.exit(main())
