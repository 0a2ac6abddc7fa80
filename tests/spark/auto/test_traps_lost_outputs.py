"""A restored map output that is lost is computed again, by its true child: traps 2, 3, 10 and 11, and checksums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider.spark.shuffles import placing
from airflow_provider.spark.shuffles.map_output import restore_map_output
from tests.spark.attempts import Attempts
from tests.spark.auto.watched import auto_attempt, configured, tasks_run
from tests.support.parameters import each_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ADAPTIVE = "spark.sql.adaptive.enabled"
NO_BROADCAST = {"spark.sql.autoBroadcastJoinThreshold": "-1"}


def by_customer(spark: SparkSession, orders: Path) -> DataFrame:
    return spark.read.parquet(str(orders)).groupBy("customer").sum("amount")


def in_all(spark: SparkSession, orders: Path) -> DataFrame:
    """One reducer for all rows."""
    return spark.read.parquet(str(orders)).groupBy().sum("amount", "customer")


def two_levels(spark: SparkSession, orders: Path) -> DataFrame:
    """A shuffle of totals above the shuffles that make them."""
    return by_customer(spark, orders).withColumnRenamed("sum(amount)", "total").groupBy("total").count()


def joined(spark: SparkSession, orders: Path) -> DataFrame:
    """Two shuffles side by side, and a join of them."""
    df = spark.read.parquet(str(orders))
    return df.join(by_customer(spark, orders).hint("merge"), "customer").groupBy("amount").count()


@pytest.mark.few(1)
@each_value(
    case={"by_customer": (by_customer, 1), "in_all": (in_all, 0), "two_levels": (two_levels, 1), "joined": (joined, 0)},
    adaptive=["true", "false"],
)
def test_a_restored_file_that_is_lost_costs_no_rows(
    spark: SparkSession,
    orders: Path,
    attempts: Attempts,
    case: tuple[Callable[[SparkSession, Path], DataFrame], int],
    adaptive: str,
) -> None:
    """Whichever restored file is gone before the reducers read it, Spark computes its task again from the true rows.

    Also where the shuffles below were restored, and where Spark registers them as lost together with it.

    :param case: the query, and which of a map output's files is gone: index or data
    """
    query, file = case
    with configured(spark, {ADAPTIVE: adaptive, **NO_BROADCAST}):
        with auto_attempt(attempts, spark) as first:
            df = query(spark, orders)
            rows = sorted(df.collect())
            assert first.keep(df)
        with auto_attempt(attempts, spark) as second:
            again = query(spark, orders)
            assert second.restore(again)
            lost = [files[file] for files in second.restored_files() if files[file].exists()]
            assert lost
            lost[-1].unlink()
            assert sorted(again.collect()) == rows


def test_all_restored_files_may_be_lost(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """All restored files of all shuffles of a query are lost at once: it runs as if nothing had been restored."""
    with configured(spark, NO_BROADCAST):
        with auto_attempt(attempts, spark) as first:
            df = joined(spark, orders)
            rows = sorted(df.collect())
            first.keep(df)
        with auto_attempt(attempts, spark) as second:
            again = joined(spark, orders)
            assert second.restore(again)
            for index, data in second.restored_files():
                index.unlink()
                data.unlink(missing_ok=True)
            assert sorted(again.collect()) == rows


def test_the_checksum_of_the_rows_is_registered(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """A recomputed map output has the checksum of the restored one, so Spark does not take it for another result.

    Since 4.1 a difference counts as a result that is not deterministic, and a job whose tasks have read it is aborted.
    """
    checks = {"spark.sql.shuffle.orderIndependentChecksum.enabled": "true"}
    with configured(spark, checks):
        with auto_attempt(attempts, spark) as first:
            df = by_customer(spark, orders)
            df.collect()
            assert first.keep(df)
            written = checksums(spark, first)
        with auto_attempt(attempts, spark) as second:
            again = by_customer(spark, orders)
            assert second.restore(again)
            assert checksums(spark, second) == written
            assert spark.version < "4.1" or all(written.values())
            for index, _ in second.restored_files():
                index.unlink()
            again.collect()
            assert checksums(spark, second) == written


def checksums(spark: SparkSession, attempt: Any) -> dict[int, int]:
    """Checksums that Spark's tracker knows, by map task, of the only shuffle of an attempt."""
    from airflow_provider.spark.jvm.map_output_tracker import MapOutputTracker

    (number,) = attempt.application.registry.vertices
    return {status.index: status.checksum for status in MapOutputTracker(spark).statuses(number)}


def test_map_outputs_of_another_number_of_reducers_are_not_registered(
    spark: SparkSession, orders: Path, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets, partitioner and tracker agree on the number of reducers, or the query runs as written (trap 3)."""
    with auto_attempt(attempts, spark) as first:
        df = by_customer(spark, orders)
        rows = sorted(df.collect())
        assert first.keep(df)
    restore = restore_map_output

    def without_the_last_reducer(*arguments: Any) -> Any:
        restored = restore(*arguments)
        return replace(restored, sizes=restored.sizes[:-1])

    monkeypatch.setattr(placing, "restore_map_output", without_the_last_reducer)
    with auto_attempt(attempts, spark) as second:
        assert sorted(by_customer(spark, orders).collect()) == rows
        assert second.put_back() == {}


def test_a_later_job_runs_after_a_retry_with_another_number_of_map_tasks(
    spark: SparkSession, orders: Path, attempts: Attempts
) -> None:
    """As many map outputs are registered as the shuffle has map tasks now, or none; else the scheduler never ends."""
    with auto_attempt(attempts, spark) as first:
        df = by_customer(spark, orders)
        rows = sorted(df.collect())
        assert first.keep(df)
    smaller = {"spark.sql.files.maxPartitionBytes": "2000", "spark.sql.files.openCostInBytes": "0"}
    with configured(spark, smaller), auto_attempt(attempts, spark) as second:
        again = by_customer(spark, orders)
        found: list[Any] = []
        tasks = tasks_run(spark, lambda: found.extend(sorted(again.collect())))
        assert found == rows
        assert second.put_back() == {}
        assert tasks > 3
    assert spark.range(10).count() == 10
