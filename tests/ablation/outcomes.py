"""What became of each test of a run, written by a plugin of pytest, and whether that shows a missing mechanism.

A test that fails under a patch proves nothing if the patch has only broken an import, if the test was not found, or if
it hung until somebody ended it. So only a test's own failure counts: an assertion (``pytest.raises`` that meets nothing
is one), or the very error that the switch names. What a driver in a process of its own has said is looked at, too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

REPORT = "ABLATION_REPORT"
"""Names the file that the plugin writes."""
_NOT_IMPORTED = re.compile(
    r"^\s*(?:E\s+)?(ImportError|ModuleNotFoundError|SyntaxError|IndentationError): ", re.MULTILINE
)
_ENDED = re.compile(r"Timeout \(?>|timed out after")
"""How pytest-timeout and ``subprocess`` say that they have ended something."""
_TOLD = 4000


@dataclass(frozen=True)
class Outcome:
    """What became of one case of a test.

    :ivar test: its path and name, with the case
    :ivar result: ``passed``, ``failed`` or ``skipped``; ``error`` where it could not be collected or set up
    :ivar classes: of the error and all that it is derived from, the nearest first; several errors are one after another
    :ivar text: the error's text
    """

    test: str
    result: str
    classes: tuple[tuple[str, ...], ...] = ()
    text: str = ""

    @property
    def error(self) -> str:
        """The class of the error; ``AssertionError`` where a test missed an error."""
        return "" if not self.classes else self.classes[0][0].replace("Failed", "AssertionError")


@dataclass(frozen=True)
class Run:
    """A run of pytest.

    :ivar package: the file of the package that was tested; empty text if the run did not come to its end
    """

    outcomes: tuple[Outcome, ...] = ()
    package: str = ""

    @classmethod
    def read(cls, report: Path) -> Run:
        """Read what the plugin has written; nothing if it has not."""
        if not report.exists():
            return cls()
        told = json.loads(report.read_text())
        outcomes = [{**each, "classes": tuple(map(tuple, each["classes"]))} for each in told["outcomes"]]
        return cls(tuple(Outcome(**each) for each in outcomes), told["package"])

    @property
    def ended(self) -> str:
        """Why nothing of the run counts: a test that is ended from outside may leave Spark in any state."""
        for each in self.outcomes:
            if _ENDED.search(_first_line(each.text)):
                return f"{each.test} was ended from outside: {_first_line(each.text)}"
        return ""

    def of(self, test: str) -> list[Outcome]:
        """Return what became of a test's cases, or of the one that *test* names, or of its file."""
        file = test.partition("::")[0]
        return [each for each in self.outcomes if each.test in (test, file) or each.test.partition("[")[0] == test]


def why_no_proof(outcomes: Iterable[Outcome], error: str = "") -> str:
    """Return why *outcomes*, those of one test, do not show that it fails without a mechanism; empty text if they do.

    :param error: the class of error that is expected instead of a failed assertion
    """
    failed = [each for each in outcomes if each.result == "failed"]
    for each in outcomes:
        if each.result == "error":
            return f"it could not begin: {_first_line(each.text)}"
    for each in failed:
        if _ENDED.search(_first_line(each.text)):
            return f"it was ended from outside: {_first_line(each.text)}"
        if found := _NOT_IMPORTED.search(each.text):
            return f"something could not be imported: {found[0].strip()}"
        wanted = {"AssertionError", "Failed", error}
        if not all(wanted.intersection(classes) for classes in each.classes):
            return f"it failed with {each.classes[0][0]}, which the switch does not name: {_first_line(each.text)}"
    if not failed:
        results = sorted({each.result for each in outcomes})
        return f"it {' and '.join(results)}" if results else "it was not found"
    return ""


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")


def _errors(error: BaseException) -> list[BaseException]:
    """Return an error, or all of a group of them: Hypothesis finds several ways in which a test fails."""
    if isinstance(error, BaseExceptionGroup):
        return [each for member in error.exceptions for each in _errors(member)]
    return [error]


class _Recorder:
    def __init__(self, report: Path) -> None:
        self._report = report
        self._outcomes: list[Outcome] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "call" or (report.when == "setup" and not report.passed):
            result = "error" if report.when == "setup" and report.failed else report.outcome
            errors = _errors(call.excinfo.value) if call.excinfo is not None and report.failed else []
            classes = tuple(tuple(cls.__name__ for cls in type(each).__mro__) for each in errors)
            text = "\n".join(map(str, errors))
            self._outcomes.append(Outcome(item.nodeid, result, classes, text[:_TOLD]))
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._outcomes.append(Outcome(report.nodeid, "error", text=report.longreprtext[-_TOLD:]))

    def pytest_sessionfinish(self) -> None:
        import airflow_provider

        told: dict[str, Any] = {"package": airflow_provider.__file__, "outcomes": list(map(asdict, self._outcomes))}
        self._report.write_text(json.dumps(told))


def pytest_configure(config: pytest.Config) -> None:
    """Take part in a run that asks for a report."""
    if report := os.environ.get(REPORT):
        settings.register_profile("ablation", deadline=None)  # how fast an example is says nothing about a mechanism
        settings.load_profile("ablation")
        config.pluginmanager.register(_Recorder(Path(report)))
