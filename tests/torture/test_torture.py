"""Drivers that are killed, paused, replaced and cut off from their store write each row once, one driver at a time."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.torture.jobs_in_turn import walk
from tests.torture.outputs import Write, differences, two_drivers

SEED = int(os.environ.get("SPARK_RECOVERY_SEED", "1"))
REPEATING = 27
"""The seed of a job of appends that is killed three times."""


@pytest.mark.walk
@pytest.mark.integration
@pytest.mark.process
@pytest.mark.timeout(900)
def test_a_job_that_is_disturbed_again_and_again_leaves_what_a_plain_run_leaves(tmp_path: Path) -> None:
    """Whatever happens to its drivers, a job's outputs are those of a plain run, row by row, and no two of its drivers
    write at one time.
    """
    outcome = walk(tmp_path, SEED, kills=1, stores=["moto"], disturbances=4)
    assert outcome.findings == []


@pytest.mark.walk
@pytest.mark.process
@pytest.mark.timeout(900)
def test_a_driver_that_writes_again_what_is_there_is_found(tmp_path: Path) -> None:
    """A job that is told to repeat its outputs leaves rows twice: as a driver would that is wrong, and it is seen."""
    outcome = walk(tmp_path, REPEATING, kills=1, stores=["moto"], options={"sinks": "repeat"}, disturbances=3)
    assert any("too many" in finding for finding in outcome.findings)


@pytest.mark.walk
@pytest.mark.process
@pytest.mark.timeout(12 * 3600)
def test_torture(tmp_path: Path) -> None:
    """The same, until 300 drivers were killed, on files and two S3 servers."""
    outcome = walk(tmp_path, SEED, kills=300)
    assert outcome.findings == []


def test_rows_that_are_missing_or_doubled_are_seen() -> None:
    """The comparison of outputs counts each row."""
    expected = {"log": Counter(["a", "b", "b"]), "gone": Counter(["c"])}
    assert differences(expected, expected) == []
    assert differences(expected, {"log": Counter(["a", "a", "b"]), "more": Counter(["d"])}) == [
        "gone: 1 rows missing, 0 too many",
        "log: 1 rows missing, 1 too many",
        "more: 0 rows missing, 1 too many",
    ]


def test_two_drivers_that_write_at_one_time_are_seen() -> None:
    """A write that ends behind the begin of a later driver's first one is a finding; one that ends before it is not."""
    one, two = Write("a", 1, 10.0, 20.0), Write("a", 2, 20.5, 30.0)
    assert two_drivers([one, two]) == []
    assert len(two_drivers([one, Write("b", 2, 19.0, 30.0)])) == 1
    assert len(two_drivers([one, two, Write("c", 1, 21.0, 22.0)])) == 1
