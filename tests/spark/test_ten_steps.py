"""A long job holds what it works on, not all that it has ever made; killed at any moment it gives the right rows."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from airflow_provider.core import faults
from airflow_provider.core.job import JobId
from tests.spark.killed_jobs import KILLED, result
from tests.support.driver import DriverHarness
from tests.support.parameters import thinned

pytestmark = [pytest.mark.process, pytest.mark.integration]

OPTIONS = {"overhead-budget": "100"}
"""Steps of a second each: what looking for what may go costs is not measured here."""
STEPS = 10


def expected() -> list[tuple[int, int]]:
    rows = []
    for number in range(8000):
        amount = number
        for _ in range(STEPS - 1):
            amount = (amount * 31 + 7) % 100003
        rows.append((number, amount))
    return rows


class Listing:
    """Looks again and again which vertices have objects in the store of a driver."""

    def __init__(self, driver: DriverHarness) -> None:
        self._folder = driver.folder / "store" / JobId.parse(driver.job_id).prefix / "partitions"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.seen: list[frozenset[str]] = []

    def _run(self) -> None:
        while not self._ended.wait(0.01):
            walked = os.walk(self._folder)  # what goes meanwhile is no error
            files = (Path(folder, name) for folder, _, names in walked for name in names if name.endswith(".parquet"))
            now = frozenset(path.relative_to(self._folder).parts[0] for path in files)
            if now and (not self.seen or self.seen[-1] != now):
                self.seen.append(now)

    def __enter__(self) -> Listing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def most(self) -> int:
        return max(map(len, self.seen))


def test_a_job_of_ten_steps_never_holds_more_than_three_steps_data(driver: DriverHarness) -> None:
    """Each is read only by the next: what a step reads, what it writes, and what was read before that."""
    with Listing(driver) as listing:
        outcome = driver.run("ten_steps.py", str(driver.folder / "out"), options=OPTIONS)
    assert outcome.code == 0, outcome.log
    assert result(driver.folder / "out") == expected()
    assert len(frozenset().union(*listing.seen)) == STEPS
    assert listing.most <= 3, listing.seen
    assert "step-0 (released)" in outcome.log


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("fault", "steps"),
    thinned(
        [
            (f"{faults.AFTER_PARTITION_EVENT}@14", 3),
            (f"{faults.BEFORE_FLUSH}@12", 0),
            (f"{faults.AFTER_FLUSH}@9", 0),
            (f"{faults.AFTER_VERTEX_FINISHED}@5", 5),
            (f"{faults.AFTER_FLUSH}@12", 0),
            (f"{faults.AFTER_SNAPSHOT}@3", 0),
            (faults.AFTER_SINK_COMMIT, STEPS),
            (faults.BEFORE_JOB_FINISHED, STEPS),
        ],
        5,
    ),
)
def test_killed_at_any_moment_it_ends_with_the_right_rows(driver: DriverHarness, fault: str, steps: int) -> None:
    """Steps that were finished do not run again, although what they had stored is gone; nor is more held than by a job
    that nobody kills: what the killed attempt had still to let go of goes before a step is computed.
    """
    target = str(driver.folder / "out")
    first = driver.run("ten_steps.py", target, fault=fault, options=OPTIONS)
    assert first.code == KILLED, first.log
    with Listing(driver) as listing:
        second = driver.run("ten_steps.py", target, options=OPTIONS)
    assert second.code == 0, second.log
    assert result(Path(target)) == expected()
    assert not [number for number in range(steps) if second.tasks[f"checkpoint step-{number}"]], second.log
    assert listing.most <= 3, listing.seen
