"""Executors come late, stand idle and die under restored map outputs: trap 2, on a real cluster."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from airflow_provider.storage.bundle import build_package
from tests.support.disks import small_disk
from tests.support.driver import JOBS, SPARK_SETTINGS
from tests.support.standalone import EXECUTOR_SETTINGS, StandaloneCluster, standalone_cluster
from tests.support.waiting import kill_tree, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.process]

ROOT = Path(__file__).parents[3]
TWO_EXECUTORS: dict[str, Any] = {"spark.cores.max": "2"}
DYNAMIC: dict[str, Any] = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "4s",
}


def waiting_for(time: str) -> dict[str, Any]:
    """How long the application waits for its executors."""
    return {"spark.scheduler.maxRegisteredResourcesWaitingTime": time}


SMALL_DISK = 4
"""Mebibytes."""
LEFT = 74 * 2**10
"""Bytes: too few for a map output."""


@dataclass
class Driver:
    """A process that makes one attempt after the other, each in a new application.

    :ivar rows: that the first attempt has computed
    """

    process: subprocess.Popen[str]
    requests: IO[str]
    log: Path
    answers: Path
    cluster: StandaloneCluster
    rows: Any = None
    asked: int = 0

    def begin(self, then: str = "", *, options: dict[str, str] | None = None, **settings: str) -> None:
        """Begin an attempt.

        :param then: what happens to what was put back before the action
        """
        self.asked += 1
        self.log.write_text("")
        self.requests.write(json.dumps({"settings": settings, "options": options or {}, "then": then}) + "\n")
        self.requests.flush()

    def end(self) -> Any:
        """Return what has become of the attempt."""
        wait_until(lambda: self._answer() or self.process.poll() is not None, "an attempt to end", 240)
        assert self._answer(), self.log.read_text()
        return json.loads(self._answer())

    def retry(self, then: str = "", *, options: dict[str, str] | None = None, **settings: str) -> Any:
        """Make an attempt; return what has become of it."""
        self.begin(then, options=options, **settings)
        return self.end()

    def says(self, text: str) -> bool:
        """Whether the attempt that is under way logs *text* before it ends."""
        wait_until(lambda: text in self.log.read_text() or self._answer(), f"{text} in the log")
        return text in self.log.read_text()

    def _answer(self) -> str:
        lines = self.answers.read_text().splitlines(keepends=True)
        return lines[-1] if len(lines) == self.asked and lines[-1].endswith("\n") else ""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory, orders: Path) -> Iterator[Driver]:
    """A driver on a cluster of two workers, whose first attempt has kept its shuffles."""
    folder = tmp_path_factory.mktemp("cluster")
    with standalone_cluster(folder, environment={"PYTHONPATH": str(ROOT)}) as cluster:
        settings = {**SPARK_SETTINGS, **EXECUTOR_SETTINGS, "spark.master": cluster.url, "spark.executor.cores": "1"}
        settings["spark.executorEnv.PYTHONPATH"] = str(ROOT)
        flags = " ".join(f'--conf "{name}={value}"' for name, value in settings.items())
        answers = folder / "answers"
        answers.touch()
        with (folder / "driver.log").open("a") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    str(JOBS / "retries_on_a_cluster.py"),
                    str(folder / "attempts"),
                    str(orders),
                    str(answers),
                ],
                env={
                    **os.environ,
                    "PYSPARK_SUBMIT_ARGS": f"{flags} pyspark-shell",
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONPATH": str(ROOT),
                },
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert process.stdin is not None
        driver = Driver(process, process.stdin, folder / "driver.log", answers, cluster)
        try:
            first = driver.retry(**TWO_EXECUTORS)
            assert len(first["kept"]) == 2, driver.log.read_text()
            driver.rows = first["rows"]
            yield driver
        finally:
            with contextlib.suppress(ProcessLookupError):
                kill_tree(process.pid)
            process.wait()


@pytest.fixture
def one_worker(driver: Driver) -> StandaloneCluster:
    """The driver's cluster with one worker."""
    driver.cluster.restore(workers=2)
    driver.cluster.workers.pop().kill()
    driver.cluster.wait_for_workers(1)
    return driver.cluster


@pytest.fixture
def two_workers(driver: Driver) -> StandaloneCluster:
    """The driver's cluster with both workers."""
    driver.cluster.restore(workers=2)
    return driver.cluster


def test_an_executor_that_comes_late_gets_its_share(driver: Driver, one_worker: StandaloneCluster) -> None:
    """A retry waits for the executors that it has asked for, and spreads map outputs over all of them."""
    driver.begin(**TWO_EXECUTORS, **waiting_for("120s"))
    assert driver.says("for executors: 1 of 2 have registered")
    one_worker.add_worker()
    retry = driver.end()
    assert retry["put_back"] == {"shuffle(customer)": 2, "shuffle(total)": 1}
    assert len(retry["holders"]) == 2
    assert retry["rows"] == driver.rows


def test_an_executor_that_never_comes_is_waited_for_as_long_as_spark_would(
    driver: Driver, one_worker: StandaloneCluster
) -> None:
    """When ``spark.scheduler.maxRegisteredResourcesWaitingTime`` is over, the executor that is there gets all."""
    retry = driver.retry(**TWO_EXECUTORS, **waiting_for("8s"))
    assert driver.log.read_text().count("for executors: ") == 1
    assert retry["put_back"] == {"shuffle(customer)": 2, "shuffle(total)": 1}
    assert len(retry["holders"]) == 1
    assert retry["rows"] == driver.rows


def test_what_took_no_time_is_not_waited_for(driver: Driver, one_worker: StandaloneCluster) -> None:
    """A wait costs no more than ``overhead_budget`` allows for what putting back saves."""
    retry = driver.retry(
        options={"overhead_budget": "0.001"},
        **TWO_EXECUTORS,
        **{"spark.scheduler.maxRegisteredResourcesWaitingTime": "20s"},
    )
    assert "Waiting" not in driver.log.read_text()
    assert retry["put_back"] == {"shuffle(customer)": 2, "shuffle(total)": 1}
    assert retry["rows"] == driver.rows


def test_what_finds_no_room_on_an_executor_goes_to_another(
    driver: Driver, one_worker: StandaloneCluster, tmp_path: Path
) -> None:
    """An executor whose disk holds the job's package, and little more, takes none; the other one takes every one."""
    with small_disk(tmp_path / "small", SMALL_DISK) as disk:
        if disk is None:
            pytest.skip("a file system can be mounted by root only")
        filling = SMALL_DISK * 2**20 - build_package().stat().st_size - LEFT
        (disk / "full").write_bytes(bytes(filling))
        full = one_worker.add_worker({"SPARK_LOCAL_DIRS": str(disk)})
        one_worker.wait_for_workers(2)
        retry = driver.retry(**TWO_EXECUTORS)
        full.kill()
    assert "found no room on 1 executors" in driver.log.read_text()
    assert retry["put_back"] == {"shuffle(customer)": 2, "shuffle(total)": 1}
    assert len(retry["holders"]) == 1
    assert retry["rows"] == driver.rows


def test_an_executor_with_restored_map_outputs_may_die(driver: Driver, two_workers: StandaloneCluster) -> None:
    """What it held is computed again on the others by the true child; the rows are plain Spark's."""
    retry = driver.retry("kill", **TWO_EXECUTORS)
    assert len(retry["holders"]) == 2
    assert "shuffle(total)" in retry["put_back"]
    assert retry["rows"] == driver.rows


def test_an_idle_executor_with_restored_map_outputs_is_not_let_go(
    driver: Driver, two_workers: StandaloneCluster
) -> None:
    """Dynamic allocation keeps it as one that has computed what it holds: only the reducers of the last shuffle run."""
    retry = driver.retry(
        "idle",
        **DYNAMIC,
    )
    assert retry["holders"]
    assert set(retry["holders"]) <= set(retry["left"])
    assert retry["tasks"] == 1
    assert retry["rows"] == driver.rows
