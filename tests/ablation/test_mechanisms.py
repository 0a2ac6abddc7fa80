"""Each mechanism has a switch that fits, tests that have failed under it, and nothing else counts as a failure."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.ablation.ablate import bench, read_results
from tests.ablation.mechanisms import Edit, Switch
from tests.ablation.outcomes import Outcome, why_no_proof
from tests.ablation.patched_copy import ROOT, PatchDoesNotFit, patched
from tests.ablation.rows import ROWS

SWITCHES = [(row, switch) for row in ROWS for switch in row.switches]


def test_the_rows_are_those_of_the_seeds() -> None:
    """35, in order, each with a switch; none has two of one name."""
    assert [row.number for row in ROWS] == list(range(1, 36))
    assert [row.number for row in ROWS if not row.switches] == []
    assert len({(row.number, switch.without) for row, switch in SWITCHES}) == len(SWITCHES)


def test_every_patch_fits_the_package() -> None:
    """What it replaces is there, once, and the result is Python."""
    for _, switch in SWITCHES:
        assert patched(switch.edits)


def test_every_module_and_every_test_of_a_row_is_there() -> None:
    """Where a row says that something is."""
    modules = [module.partition(" ") for row in ROWS for module in row.modules]
    assert [
        (file, name) for file, _, name in modules if name not in (ROOT / "airflow_provider" / file).read_text()
    ] == []
    tests = [test.partition("[")[0].partition("::") for _, switch in SWITCHES for test in switch.tests]
    assert [(file, name) for file, _, name in tests if f"def {name}(" not in (ROOT / "tests" / file).read_text()] == []


@pytest.mark.integration
@pytest.mark.process
def test_every_case_of_a_row_is_there() -> None:
    """A test whose parameters have changed is collected under another name, and shows nothing any more."""
    named = {test for _, switch in SWITCHES for test in switch.tests}
    files = sorted({f"tests/{test.partition('::')[0]}" for test in named})
    command = [sys.executable, "-m", "pytest", "--walk", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    found = {line.removeprefix("tests/") for line in listed}
    found |= {case.partition("[")[0] for case in found}
    assert named - found == set()


def test_every_switch_was_tried_as_it_is_now() -> None:
    """After a change of a patch, or of the tests that it names: ``make ablate``, with the row's number."""
    results = read_results()
    not_tried = [(row.number, switch.without) for row, switch in SWITCHES if switch.digest not in results]
    assert not_tried == []
    assert results.keys() == {switch.digest for _, switch in SWITCHES}
    for _, switch in SWITCHES:
        assert tuple(results[switch.digest]["failed"]) == switch.tests


@pytest.mark.parametrize("edit", [Edit("core/job.py", "no such line", ""), Edit("core/job.py", "import", "")])
def test_a_patch_that_does_not_fit_is_an_error(edit: Edit) -> None:
    """Nothing, or several things, to replace: then nobody knows what would be switched off."""
    with pytest.raises(PatchDoesNotFit, match=r"core/job\.py has \d+ times, not once"):
        patched([edit])


def test_a_patch_that_leaves_no_python_is_an_error() -> None:
    """It would fail every test."""
    with pytest.raises(PatchDoesNotFit, match="is no Python any more"):
        patched([Edit("core/classify.py", "def classify(", "def (")])


def failed(text: str, *classes: str) -> Outcome:
    return Outcome("test", "failed", (classes,), text)


@pytest.mark.parametrize(
    ("outcomes", "why"),
    [
        ([], "it was not found"),
        ([Outcome("test", "passed")], "it passed"),
        ([Outcome("test", "skipped")], "it skipped"),
        ([Outcome("test", "error", text="fixture 'x' not found")], "it could not begin: fixture 'x' not found"),
        ([failed("Timeout (>300.0s) from pytest-timeout.", "Failed")], "it was ended from outside: Timeout"),
        ([failed("Command 'x' timed out after 180 seconds", "TimeoutExpired")], "it was ended from outside: Command"),
        ([failed("No module named 'x'", "ModuleNotFoundError", "ImportError")], "it failed with ModuleNotFoundError"),
        (
            [failed("assert 1 == 0\nTraceback\nImportError: cannot import name 'x'", "AssertionError")],
            "something could not be imported: ImportError:",
        ),
        ([failed("name 'x' is not defined", "NameError")], "it failed with NameError, which the switch does not name"),
        ([failed("assert 1 == 2", "AssertionError"), failed("x", "KeyError")], "it failed with KeyError"),
    ],
)
def test_what_shows_nothing(outcomes: list[Outcome], why: str) -> None:
    """Tests that pass, are skipped, cannot begin, hang, or fail because the patch has broken something else."""
    assert why_no_proof(outcomes).startswith(why)


@pytest.mark.parametrize(
    "outcomes",
    [
        [failed("assert 1 == 2", "AssertionError", "Exception")],
        [Outcome("test[1]", "passed"), failed("assert 1 == 2", "AssertionError", "Exception")],
        [failed("DID NOT RAISE <class 'ValueError'>", "Failed", "Exception")],
        [failed("it is FAILED", "IllegalMove", "RecoveryError", "Exception")],
    ],
)
def test_what_shows_that_a_mechanism_is_missed(outcomes: list[Outcome]) -> None:
    """An assertion, an error that did not come, or the error that the switch names, in one case at least."""
    assert why_no_proof(outcomes, "IllegalMove") == ""


@pytest.mark.integration
@pytest.mark.process
def test_tests_run_with_the_patch_and_without_it_afterwards() -> None:
    """In a copy: the test fails under its switch, shows nothing under one that breaks an import, and then passes."""
    test = "core/test_partition_tracker.py::test_what_finishes_after_the_attempt_is_over_is_released_at_once"
    switch = next(switch for _, switch in SWITCHES if test in switch.tests)
    broken = Switch(
        "a name is gone", (Edit("core/partition_tracker.py", "class PartitionTracker:", "class Other:"),), (test,)
    )
    with bench() as here:
        assert test in here.without(switch).failed
        assert here.without(broken).unproved[test].startswith("it could not begin")
        assert here.not_passing([test]) == {}
