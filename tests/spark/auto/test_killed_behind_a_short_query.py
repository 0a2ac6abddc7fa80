"""A real driver that is killed in a query, an equal one of which was over before anybody looked."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from airflow_provider.core.events import SHUFFLE
from airflow_provider.core.job import JobId
from airflow_provider.core.options import StorageOptions
from airflow_provider.storage.inspection import inspect_job
from airflow_provider.storage.uris import open_store
from tests.support.driver import DriverHarness
from tests.support.sparks import EACH_OR_OLDEST, spark_python
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(420)]

OPTIONS = {
    "recovery-points": "auto",
    "overhead-budget": "1e6",
    "write-buffer-flush-interval": "100 ms",
    "keep-partitions": "",
}


def kept(driver: DriverHarness) -> int:
    """How many shuffles the event store knows to be complete."""
    graph = inspect_job(open_store(driver.event_store, StorageOptions()), JobId.parse(driver.job_id))
    return sum(vertex.finished and vertex.initialized.rule == SHUFFLE for vertex in graph.vertices.values())


@pytest.mark.parametrize("version", EACH_OR_OLDEST)
def test_each_time_has_its_own_answer(tmp_path: Path, orders: Path, version: str) -> None:
    """A function is asked twice, and the driver is killed when both answers are kept: the retry has each in its place,
    though the first query may have been over before anybody looked.
    """
    driver = DriverHarness(tmp_path, f"file://{tmp_path}/store", python=spark_python(version))
    # Spark 4.2 may wait for ever for a Python function over columns that it has read from files.
    driver.settings = {"spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false"}
    world = tmp_path / "world"
    world.mkdir()
    running = driver.start("asked_shortly.py", str(orders), str(world), "1", options=OPTIONS)
    try:
        wait_until((world / "first-1").exists, "the short query is over")
        wait_until(lambda: kept(driver) == 2, "its shuffle is kept, and one before it")
        (world / "go").touch()
        wait_until((world / "behind").exists, "the last shuffle is complete")
        wait_until(lambda: kept(driver) == 3, "the last shuffle is kept")
    finally:
        os.kill(running.pid, signal.SIGKILL)
        log, _ = running.communicate()
    assert running.returncode == -signal.SIGKILL, log
    (world / "gate").touch()
    second = driver.run("asked_shortly.py", str(orders), str(world), "2", options=OPTIONS)
    assert second.code == 0, second.log
    answers = json.loads((world / "answers-2").read_text())
    assert answers == ["run 1, at first", "run 1, later"], log + second.log
