"""Executors come late, stand idle and die under restored map outputs: trap 2, on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.storage.bundle import build_package
from tests.support.cluster_retries import TWO_EXECUTORS, Driver, retrying_driver
from tests.support.disks import small_disk
from tests.support.sparks import ROOT
from tests.support.standalone import StandaloneCluster, standalone_cluster

pytestmark = [pytest.mark.integration, pytest.mark.process]

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


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory, orders: Path) -> Iterator[Driver]:
    """A driver on a cluster of two workers, whose first attempt has kept its shuffles."""
    folder = tmp_path_factory.mktemp("cluster")
    with (
        standalone_cluster(folder, environment={"PYTHONPATH": str(ROOT)}) as cluster,
        retrying_driver(cluster, folder, orders) as driver,
    ):
        yield driver


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


@pytest.mark.walk
def test_an_executor_that_comes_late_gets_its_share(driver: Driver, one_worker: StandaloneCluster) -> None:
    """A retry waits for the executors that it has asked for, and spreads map outputs over all of them."""
    driver.begin(**TWO_EXECUTORS, **waiting_for("120s"))
    assert driver.says("for executors: 1 of 2 have registered")
    one_worker.add_worker()
    retry = driver.end()
    assert retry["put_back"] == {"shuffle(customer)": 2, "shuffle(total)": 1}
    assert len(retry["holders"]) == 2
    assert retry["rows"] == driver.rows


@pytest.mark.walk
def test_an_executor_that_never_comes_is_waited_for_as_long_as_spark_would(
    driver: Driver, one_worker: StandaloneCluster
) -> None:
    """When ``spark.scheduler.maxRegisteredResourcesWaitingTime`` is over, the executor that is there gets all."""
    retry = driver.retry(**TWO_EXECUTORS, **waiting_for("8s"))
    assert driver.log.read_text().count("for executors: ") == 1
    assert retry["put_back"] == {"shuffle(customer)": 2, "shuffle(total)": 1}
    assert len(retry["holders"]) == 1
    assert retry["rows"] == driver.rows


@pytest.mark.walk
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


@pytest.mark.walk
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
