"""How long each file of tests takes: kept in ``durations.json``, compared at the end of a run, the longest ones first.

A file with tests of both kinds has two entries, because ``make test`` and ``make integration`` each run a part of it.
What was kept comes from another machine, perhaps: all files together say how much slower this one is.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

import pytest

KEPT = Path(__file__).parents[1] / "durations.json"
_PARTS = ("test", "integration")
_SHORT = 10.0
"""Seconds below which a file is not worth a word."""
_SLOWER = 1.5


def kept_durations() -> dict[str, dict[str, float]]:
    """Return seconds by part and file, as last kept."""
    return {part: dict(files) for part, files in json.loads(KEPT.read_text()).items()}


def longest_first(items: Iterable[pytest.Item], kept: Mapping[str, Mapping[str, float]]) -> list[pytest.Item]:
    """Return the tests by file, the longest file first, so that two workers end at about the same moment."""
    files: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.location[0]].append(item)

    def seconds(file: str) -> float:
        return sum(kept[part].get(file, 0.0) for part in {_part(item.keywords) for item in files[file]})

    return [item for file in sorted(files, key=lambda file: -seconds(file)) for item in files[file]]


def slower(taken: Mapping[str, float], kept: Mapping[str, float]) -> list[str]:
    """Return a line for each file that took much longer than kept, beside the others."""
    known = [file for file in taken if kept.get(file, 0.0) >= _SHORT]
    pace = statistics.median(taken[file] / kept[file] for file in known) if known else 1.0
    return [
        f"{file}: {taken[file]:.0f} s, expected {kept.get(file, 0.0) * pace:.0f} s"
        for file in sorted(taken, key=lambda file: -taken[file])
        if taken[file] >= _SHORT and taken[file] > _SLOWER * pace * kept.get(file, 0.0)
    ]


def _part(keywords: Container[str]) -> str:
    return _PARTS["integration" in keywords]


class Durations:
    """A plugin of the process that has the reports: with several workers, the one that gave them their tests.

    :param keep: whether to write down what this run took
    """

    def __init__(self, keep: bool) -> None:
        self._keep = keep
        self._taken: dict[str, dict[str, float]] = {part: defaultdict(float) for part in _PARTS}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up setup, call and teardown."""
        self._taken[_part(report.keywords)][report.location[0]] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say which files have become slower."""
        kept = kept_durations()
        lines = [line for part in _PARTS for line in slower(self._taken[part], kept[part])]
        if lines:
            terminalreporter.section("files that took longer than kept in tests/durations.json")
            terminalreporter.write_line("\n".join(lines))
        if self._keep:
            for part, taken in self._taken.items():
                kept[part] |= {file: round(seconds, 1) for file, seconds in taken.items()}
            known = {
                part: {file: files[file] for file in sorted(files) if (KEPT.parents[1] / file).exists()}
                for part, files in kept.items()
            }
            KEPT.write_text(json.dumps(known, indent=1) + "\n")
