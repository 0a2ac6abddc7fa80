"""A test that loses shuffle files leaves the Spark application as it found it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider.spark.jvm.reflection import of_environment, private_field

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def registered(request: pytest.FixtureRequest) -> Iterator[None]:
    """Register the block manager again that Spark gives up when a shuffle file cannot be fetched.

    A local master's only executor is refused when it does so itself. Then nothing would be removed from its memory any
    more, and heartbeats would fail until the JVM that all tests share ends.
    """
    yield
    if "spark" in request.fixturenames:
        _register_again(request.getfixturevalue("spark"))


@pytest.fixture
def count_requests(requests: list[str]) -> Callable[[Callable[[], Any]], int]:
    """Say how often Python asks the JVM something while it runs a function."""

    def run(function: Callable[[], Any]) -> int:
        requests.clear()
        function()
        return len(requests)

    return run


def _register_again(spark: SparkSession) -> None:
    manager = of_environment(spark, "blockManager", "org.apache.spark.storage.BlockManager")
    place, master = manager.blockManagerId(), manager.master()
    if not master.getMemoryStatus().contains(place):
        memory = (private_field(manager, name) for name in ("maxOnHeapMemory", "maxOffHeapMemory"))
        endpoint = private_field(manager, "storageEndpoint")
        master.registerBlockManager(place, manager.diskBlockManager().localDirsString(), *memory, endpoint, False)
    assert master.getMemoryStatus().contains(place)
