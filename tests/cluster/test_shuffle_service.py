"""A cluster whose worker runs Spark's external shuffle service: map outputs outlive their executors.

One worker, because two on one machine would need one port; it has room for two executors.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.orders import check_rows, killed_and_retried, settings
from tests.support.cluster_retries import TWO_EXECUTORS, Driver, retrying_driver
from tests.support.driver import DriverHarness
from tests.support.s3_gateway import free_port
from tests.support.standalone import StandaloneCluster, standalone_cluster

pytestmark = [pytest.mark.process, pytest.mark.integration]

DYNAMIC: dict[str, Any] = {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.initialExecutors": "2"}
LOCAL = {"spark.master": "local[2]"}


@pytest.fixture(scope="module")
def service() -> dict[str, str]:
    """What the worker with the service, and all applications that use it, are told."""
    return {"spark.shuffle.service.enabled": "true", "spark.shuffle.service.port": str(free_port())}


@pytest.fixture(scope="module")
def running_cluster(
    tmp_path_factory: pytest.TempPathFactory, role: dict[str, str], service: dict[str, str]
) -> Iterator[StandaloneCluster]:
    options = " ".join(f"-D{name}={value}" for name, value in service.items())
    environment = {**role, "SPARK_WORKER_OPTS": options}
    folder = tmp_path_factory.mktemp("cluster")
    with standalone_cluster(folder, workers=1, cores=2, environment=environment) as cluster:
        yield cluster


@pytest.fixture
def cluster(running_cluster: StandaloneCluster) -> StandaloneCluster:
    """The cluster, idle."""
    running_cluster.wait_for_workers(1)
    return running_cluster


@pytest.fixture(scope="module")
def retrying(
    tmp_path_factory: pytest.TempPathFactory, running_cluster: StandaloneCluster, orders: Path, service: dict[str, str]
) -> Iterator[Driver]:
    """A driver whose first attempt has kept its shuffles."""
    with retrying_driver(running_cluster, tmp_path_factory.mktemp("retries"), orders, service) as driver:
        yield driver


@pytest.mark.parametrize(
    "where",
    [
        pytest.param({}, id="static", marks=pytest.mark.walk),
        pytest.param(DYNAMIC, id="dynamic"),
        pytest.param(LOCAL, id="local", marks=pytest.mark.walk),
    ],
)
def test_shuffles_of_a_killed_driver_are_put_back(
    tmp_path: Path,
    cluster: StandaloneCluster,
    bare_python: str,
    orders: Path,
    service: dict[str, str],
    where: dict[str, str],
) -> None:
    """The retry computes only the map outputs that were not stored, and its reducers find all of them.

    A local master, to which the setting means nothing, does as it does without.
    """
    driver = DriverHarness(
        tmp_path,
        f"file://{tmp_path}/store",
        environment={"PYSPARK_PYTHON": bare_python},
        settings={**settings(cluster), **service, **where},
    )
    job = killed_and_retried(driver, orders)
    assert job.put_back in job.second.log
    assert "FetchFailed" not in job.second.log
    check_rows(orders, job.target)


@pytest.mark.walk  # tests/spark/auto/test_traps_executors.py kills one without the service
def test_an_executor_with_restored_map_outputs_may_die(retrying: Driver, cluster: StandaloneCluster) -> None:
    """What it held is read from its directories, which the service names: only the reducers run."""
    retry = retrying.retry("kill", **TWO_EXECUTORS)
    assert retry["put_back"] == {"shuffle(customer)": 2, "shuffle(total)": 1}
    assert len(retry["holders"]) == 2
    assert retry["tasks"] == 1
    assert retry["rows"] == retrying.rows


@pytest.mark.walk
def test_idle_executors_with_restored_map_outputs_are_let_go(retrying: Driver, cluster: StandaloneCluster) -> None:
    """Dynamic allocation ends all of them; the service itself sends what they held to the reducers of later ones."""
    idle: dict[str, Any] = {
        "spark.dynamicAllocation.executorIdleTimeout": "4s",
        "spark.shuffle.readHostLocalDisk": "false",
    }
    retry = retrying.retry("gone", **DYNAMIC, **idle)
    assert retry["put_back"] == {"shuffle(customer)": 2, "shuffle(total)": 1}
    assert retry["left"] == []
    assert retry["tasks"] == 1
    assert retry["rows"] == retrying.rows


@pytest.mark.walk
def test_what_an_executor_has_left_is_kept(retrying: Driver, cluster: StandaloneCluster) -> None:
    """An executor goes before its map outputs are copied: another one of its machine reads them where they are."""
    first = retrying.retry("lose", job="another", **TWO_EXECUTORS)
    assert first["kept"] == ["shuffle(customer)", "shuffle(total)"]
    retry = retrying.retry(job="another", **TWO_EXECUTORS)
    assert retry["put_back"] == {"shuffle(customer)": 2, "shuffle(total)": 1}
    assert retry["rows"] == first["rows"] == retrying.rows
