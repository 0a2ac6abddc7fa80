"""A first attempt that ends in the middle of a shuffle: one map task waits at a gate, the other's output is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from tests.spark.auto.watched import AutoAttempt

Collect: TypeAlias = "Callable[[DataFrame], list[Any]]"
"""How the rows of a query come to the driver."""
COLLECT: Collect = methodcaller("collect")


@dataclass(frozen=True)
class Gate:
    """Where rows of one file wait.

    :ivar path: the gate is open once this file is there
    :ivar waits: rows wait whose file has this name
    :ivar dropped: rows that do not pass when the gate is open, by the name of their file
    """

    path: Path
    waits: str
    dropped: str = ""

    def open(self) -> None:
        """Let all rows pass."""
        self.path.touch()

    def passes(self, file: Column) -> Column:
        """Whether a row passes, sooner or later."""
        from pyspark.sql import functions as F

        path, waits, dropped = str(self.path), self.waits, self.dropped

        def wait(name: str) -> bool:
            import os
            import time

            while name == waits and not os.path.exists(path):
                time.sleep(0.02)
            return name != dropped

        return F.udf(wait, "boolean", useArrow=False)(file)


@contextmanager
def running(df: DataFrame, gate: Gate, collect: Collect = COLLECT) -> Iterator[Any]:
    """Run a query in a thread of its own; its rows are there after the gate was opened."""
    with ThreadPoolExecutor(1) as pool:
        rows = pool.submit(collect, df)
        try:
            yield rows
        finally:
            gate.open()


def interrupted(
    spark: SparkSession,
    first: AutoAttempt,
    gate: Gate,
    make: Callable[[], DataFrame],
    collect: Collect = COLLECT,
) -> list[Any]:
    """Store the map outputs of the tasks that do not wait, and nothing after that; return the query's rows."""
    with running(make(), gate, collect) as rows:
        store_what_is_there(spark, first)
        gate.open()
        return sorted(rows.result())


def store_what_is_there(spark: SparkSession, attempt: AutoAttempt, outputs: int = 1) -> None:
    """Look until so many map outputs of a shuffle that still runs are in the store."""

    def stored() -> bool:
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        attempt.application.look()
        assert not attempt.skipped(), attempt.skipped()
        vertices = attempt.application.registry.vertices.values()
        return any(len(vertex.stored) >= outputs and not vertex.sealed for vertex in vertices)

    wait_until(stored, f"{outputs} map outputs are stored")
