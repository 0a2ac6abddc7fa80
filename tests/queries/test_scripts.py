"""Ordinary PySpark scripts, none of which knows of recovery: the same outputs, uninterrupted, killed and run again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from tests.queries.query_data import QuerySuite
from tests.queries.query_outputs import output_differences
from tests.queries.runs import JOBS, SCRIPTS, ScriptRuns
from tests.queries.seeded_moments import SEED, fault, killed_after, killed_at, moment, well

pytestmark = [pytest.mark.process, pytest.mark.integration, pytest.mark.timeout(1200)]

NAMES = sorted(script.stem for script in SCRIPTS.glob("*.py"))


@dataclass(frozen=True)
class Outputs:
    """Of all scripts, one after another in one driver; the folders have one for each script.

    :ivar seconds: that the run under ``spark-recovery run`` took
    """

    plain: Path
    recorded: Path
    seconds: float


@pytest.fixture(scope="module")
def outputs(tpch: QuerySuite, tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    folder = tmp_path_factory.mktemp("scripts")
    runs = ScriptRuns(folder, JOBS / "all_scripts.py", (str(tpch.tables),))
    plain, attempt = runs.plain_and_attempt(folder / "plain", folder / "recorded")
    well(plain)
    return Outputs(folder / "plain", folder / "recorded", well(attempt).seconds)


@pytest.mark.parametrize("name", NAMES)
def test_a_script_does_the_same_under_the_runner(outputs: Outputs, name: str) -> None:
    """What a script leaves under ``spark-recovery run`` is what it leaves by plain Python."""
    assert output_differences(outputs.plain / name, outputs.recorded / name) == []


@pytest.mark.walk
def test_scripts_killed_in_the_middle_and_run_again(outputs: Outputs, tpch: QuerySuite, tmp_path: Path) -> None:
    """All scripts in one driver, killed in the middle; the next driver leaves what plain Python leaves."""
    target, random = tmp_path / "outputs", Random(SEED)
    runs = ScriptRuns(tmp_path, JOBS / "all_scripts.py", (str(tpch.tables),))
    killed_after(runs, target, moment(random, outputs.seconds, 0.3, 0.6))
    well(runs.attempt(target))
    told = {name: output_differences(outputs.plain / name, target / name) for name in NAMES}
    assert {name: problems for name, problems in told.items() if problems} == {}
    assert runs.reused() > 0


@pytest.mark.walk
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NAMES)
def test_each_script_alone_killed_at_seeded_moments(tpch: QuerySuite, tmp_path: Path, name: str) -> None:
    """A script in its own driver: uninterrupted, killed at three moments and at a fault point, each time run again, it
    leaves what plain Python leaves.
    """
    random = Random(f"{SEED} {name}")

    def job(folder: str) -> tuple[ScriptRuns, Path]:
        own = tmp_path / folder
        own.mkdir()
        return ScriptRuns(own, SCRIPTS / f"{name}.py", (str(tpch.tables),)), own / "outputs"

    runs, expected = job("plain")
    well(runs.plain(expected))
    runs, target = job("full")
    full = well(runs.attempt(target)).seconds
    assert output_differences(expected, target) == []
    for folder in ("first", "second", "third"):
        runs, target = job(folder)
        killed_after(runs, target, moment(random, full))
        well(runs.attempt(target))
        assert output_differences(expected, target) == [], folder
    runs, target = job("fault")
    killed_at(runs, target, fault(random))
    well(runs.attempt(target))
    assert output_differences(expected, target) == []
