"""A script that stops its Spark application and makes another: Spark counts broadcasts, RDDs and shuffles anew."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.driver import DriverHarness

pytestmark = [pytest.mark.process, pytest.mark.integration]


def expected(day: int) -> list[str]:
    return [f'{number},"day {day}, {number % 4}"' for number in range(8)]


def lines(target: Path, day: int) -> list[str]:
    return [line for file in sorted((target / str(day)).glob("*.csv")) for line in file.read_text().splitlines()]


def test_no_application_gets_the_rows_of_another(driver: DriverHarness, tmp_path: Path) -> None:
    """A loop over days with equal names, ids and code: each day has its own rows, also after a kill, from the store."""
    die = tmp_path / "die"
    die.touch()
    first = driver.run("two_applications.py", str(tmp_path / "out"), str(die))
    assert first.code == -signal.SIGKILL, first.log
    assert [lines(tmp_path / "out", day) for day in (1, 2, 3)] == [expected(day) for day in (1, 2, 3)]
    second = driver.run("two_applications.py", str(tmp_path / "again"), str(die))
    assert second.code == 0, second.log
    assert [lines(tmp_path / "again", day) for day in (1, 2, 3)] == [expected(day) for day in (1, 2, 3)]
    assert second.log.count("reused, nothing to compute") == 3
