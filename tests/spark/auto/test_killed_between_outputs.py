"""A real driver that is killed between two outputs whose shuffles call the same function."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.events import SHUFFLE
from airflow_provider.core.job import JobId
from airflow_provider.core.options import StorageOptions
from airflow_provider.storage.inspection import inspect_job
from airflow_provider.storage.uris import open_store
from tests.support.driver import JOBS, DriverHarness
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.process]

OPTIONS = {
    "recovery-points": "auto",
    "overhead-budget": "1e6",
    "write-buffer-flush-interval": "100 ms",
    "keep-partitions": "",
}


def rows(target: Path) -> list[dict[str, object]]:
    """What the two outputs hold."""
    tables = [pq.read_table(target / output, columns=["answer", "count"]) for output in "ab"]
    return [row for table in tables for row in table.to_pylist()]


def kept_whole(driver: DriverHarness) -> int:
    """How many shuffles the event store knows to be complete."""
    try:
        graph = inspect_job(open_store(driver.event_store, StorageOptions()), JobId.parse(driver.job_id))
    except ConfigurationError:  # the driver has not begun
        return 0
    return sum(vertex.finished and vertex.initialized.rule == SHUFFLE for vertex in graph.vertices.values())


def test_a_second_output_has_its_own_answer_of_the_killed_attempt(driver: DriverHarness, orders: Path) -> None:
    """Killed when the first output is written and the second one's shuffle is kept: the retry writes the second one of
    what the function had said for it, and rows are those of one run of plain Spark.
    """
    world, target = driver.folder / "world", driver.folder / "target"
    world.mkdir()
    running = driver.start("asked_twice.py", str(orders), str(world), str(target), "1", options=OPTIONS)
    try:
        wait_until(lambda: kept_whole(driver) == 1, "the first shuffle is kept")
        (world / "gate a").touch()
        wait_until((target / "a" / "_SUCCESS").exists, "the first output is written")
        wait_until(lambda: kept_whole(driver) == 2, "the second shuffle is kept")
    finally:
        os.kill(running.pid, signal.SIGKILL)
        log, _ = running.communicate()
    assert running.returncode == -signal.SIGKILL, log
    assert not (target / "b" / "_SUCCESS").exists()
    (world / "gate b").touch()
    second = driver.run("asked_twice.py", str(orders), str(world), str(target), "2", options=OPTIONS)
    assert second.code == 0, second.log
    assert "map outputs put back, 0 to compute" in second.log
    plain = driver.folder / "plain"
    subprocess.run(
        [driver.python, str(JOBS / "asked_twice.py"), str(orders), str(world), str(plain), "1"],
        env=driver.env(),
        check=True,
        timeout=120,
    )
    assert rows(target) == rows(plain)
