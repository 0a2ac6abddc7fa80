"""Auto mode keeps what map tasks have written, and a retry's own plans begin with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.attempts import Attempts
from tests.spark.auto.watched import auto_attempt, tasks_run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def totals(spark: SparkSession, orders: Path) -> DataFrame:
    return spark.read.parquet(str(orders)).groupBy("customer").sum("amount")


def test_a_retry_takes_a_complete_shuffle_and_runs_no_map_task(
    spark: SparkSession, orders: Path, attempts: Attempts
) -> None:
    """Nothing below a complete shuffle runs again, and the rows are equal."""
    with auto_attempt(attempts, spark) as first:
        df = totals(spark, orders)
        rows = sorted(df.collect())
        assert first.keep(df) == ["shuffle(customer)"]
    with auto_attempt(attempts, spark) as second:
        again = totals(spark, orders)
        found: list[list[object]] = []
        tasks = tasks_run(spark, lambda: found.append(sorted(again.collect())))
        assert found == [rows]
        assert second.put_back() == {"shuffle(customer)": 2}
        assert tasks == 1  # the coalesced reducer
