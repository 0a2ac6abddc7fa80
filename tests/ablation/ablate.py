"""Switch mechanisms off, one at a time, and look whether the tests that the table names fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.ablation.mechanisms import Row, Switch
from tests.ablation.outcomes import REPORT, Run, why_no_proof
from tests.ablation.patched_copy import make_copy, switched_off

RESULTS = Path(__file__).with_name("results.json")
_LONGEST = 1800.0
"""Seconds for the tests of one switch."""


@dataclass(frozen=True)
class Finding:
    """What the tests of one switch have shown.

    :ivar failed: test → the class of the error that it failed with
    :ivar unproved: test → why it shows nothing
    """

    failed: Mapping[str, str]
    unproved: Mapping[str, str]


class Bench:
    """Runs tests in a copy of the package.

    :param runs: forks them
    """

    def __init__(self, folder: Path, runs: subprocess.Popen[str]) -> None:
        self._folder = folder
        self._runs = runs

    def not_passing(self, tests: Iterable[str]) -> dict[str, str]:
        """Return which *tests* do not pass although nothing is switched off, and why."""
        wanted = list(dict.fromkeys(tests))
        run = self._run(wanted)
        found = {}
        for test in wanted:
            outcomes = run.of(f"tests/{test}")
            bad = [each for each in outcomes if each.result in ("failed", "error")]
            if bad or not any(each.result == "passed" for each in outcomes):
                found[test] = bad[0].text if bad else "it did not run"
        return found

    def without(self, switch: Switch) -> Finding:
        """Run a switch's tests with its mechanism away."""
        with switched_off(switch.edits, self._folder):
            run = self._run(switch.tests)
        failed, unproved = {}, {}
        for test in switch.tests:
            outcomes = run.of(f"tests/{test}")
            if why := run.ended or why_no_proof(outcomes, switch.error):
                unproved[test] = why
            else:
                failed[test] = next(each.error for each in outcomes if each.result == "failed")
        return Finding(failed, unproved)

    def _run(self, tests: Sequence[str]) -> Run:
        report = self._folder / "report.json"
        report.unlink(missing_ok=True)
        arguments = ["-q", "--walk", "-p", "no:cacheprovider", "-p", "tests.ablation.outcomes", "--hypothesis-seed=0"]
        arguments += ["--timeout=900"]  # a busy machine is no reason to be wrong
        arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins are imported before the fork
        arguments += [f"tests/{test}" for test in tests]
        assert self._runs.stdin is not None
        assert self._runs.stdout is not None
        self._runs.stdin.write(json.dumps({"arguments": arguments, "seconds": _LONGEST}) + "\n")
        self._runs.stdin.flush()
        self._runs.stdout.readline()
        run = Run.read(report)
        if run.package and not Path(run.package).is_relative_to(self._folder):
            raise RuntimeError(f"The tests ran with {run.package}, not with the copy in {self._folder}.")
        return run


@contextmanager
def bench() -> Iterator[Bench]:
    """Make a copy of the package, and processes that run its tests."""
    with TemporaryDirectory(prefix="ablation-") as name:
        folder = Path(name).resolve()
        make_copy(folder)
        environment = {**os.environ, "PYTHONPATH": name, REPORT: str(folder / "report.json")}
        command = [sys.executable, "-m", "tests.ablation.forked_runs", str(folder / "pytest.log")]
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as runs:
            yield Bench(folder, runs)
            assert runs.stdin is not None
            runs.stdin.close()


def ablate(rows: Sequence[Row], say: Callable[[str], None]) -> bool:
    """Switch off all that *rows* name; keep what is shown, and return whether all of it is."""
    with bench() as here:
        broken = here.not_passing(test for row in rows for switch in row.switches for test in switch.tests)
        for test, why in broken.items():
            say(f"    {test} does not pass with everything in place: {why}")
        shown = not broken
        for row in rows:
            say(f"{row.number}. {row.seed}")
            for switch in row.switches:
                began = time.monotonic()
                finding = here.without(switch)
                say(f"  {switch.without} ({time.monotonic() - began:.0f} s)")
                for test, error in finding.failed.items():
                    say(f"    fails: {test} ({error})")
                for test, why in finding.unproved.items():
                    say(f"    SHOWS NOTHING: {test}: {why}")
                results = read_results()
                results.pop(switch.digest, None)
                if finding.unproved or not broken.keys().isdisjoint(switch.tests):
                    shown = False
                else:
                    results[switch.digest] = {"row": row.number, "without": switch.without, "failed": finding.failed}
                write_results(results)
    return shown


def read_results() -> dict[str, Any]:
    """Return what has been shown, by the digest of the switch."""
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def write_results(results: Mapping[str, Any]) -> None:
    """Keep what has been shown, in the order of the rows."""
    ordered = sorted(results.items(), key=lambda item: (item[1]["row"], item[1]["without"]))
    RESULTS.write_text(json.dumps(dict(ordered), indent=1, ensure_ascii=False) + "\n")
