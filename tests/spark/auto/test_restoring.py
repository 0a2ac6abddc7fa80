"""Auto mode keeps what map tasks have written, and a retry's own plans begin with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider.core.errors import StoreError
from airflow_provider.storage.partition_store import PartitionStore
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
        found = list[list[Any]]()
        tasks = tasks_run(spark, lambda: found.append(sorted(again.collect())))
        assert found == [rows]
        assert second.put_back() == {"shuffle(customer)": 2}
        assert tasks == 1  # the coalesced reducer


def test_what_the_store_refused_is_stored_when_it_answers_again(
    spark: SparkSession, orders: Path, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage of the store costs time, no map output."""
    refusals = iter(range(5))
    put = PartitionStore.put_map_output

    def refusing(*arguments: object) -> None:
        if next(refusals, None) is not None:
            raise StoreError("The store does not answer.")
        put(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(PartitionStore, "put_map_output", refusing)
    monkeypatch.setattr("airflow_provider.spark.auto.copying._BACK_OFF", 0.0)
    with auto_attempt(attempts, spark) as first:
        df = totals(spark, orders)
        df.collect()
        assert first.keep(df) == ["shuffle(customer)"]
    assert next(refusals, None) is None


@pytest.mark.parametrize("mode", ["overwrite", "append", "error", "ignore"])
def test_a_write_begins_with_what_survived(
    spark: SparkSession, orders: Path, attempts: Attempts, tmp_path: Path, mode: str
) -> None:
    """Files have plain Spark's rows in each mode, and the query below a write is filled, too."""
    with auto_attempt(attempts, spark) as first:
        df = totals(spark, orders)
        rows = sorted(df.collect())
        first.keep(df)
    with auto_attempt(attempts, spark) as second:
        target = str(tmp_path / "target")
        totals(spark, orders).write.mode(mode).parquet(target)
        assert second.put_back() == {"shuffle(customer)": 2}
    assert sorted(spark.read.parquet(target).collect()) == rows


def test_sql_and_count_begin_with_what_survived(
    spark: SparkSession, orders: Path, attempts: Attempts, tmp_path: Path
) -> None:
    """``INSERT`` in SQL and ``count()`` make queries of their own, which are filled and give what they always give."""
    spark.read.parquet(str(orders)).createOrReplaceTempView("orders_to_add_up")
    spark.sql(f"CREATE TABLE added_up (customer BIGINT, total BIGINT) USING parquet LOCATION '{tmp_path}/added_up'")
    query = "SELECT customer, sum(amount) AS total FROM orders_to_add_up GROUP BY customer"
    try:
        with auto_attempt(attempts, spark) as first:
            df = spark.sql(query)
            rows = sorted(df.collect())
            first.keep(df)
            counted = df.groupBy().count()
            assert counted.collect()[0][0] == 300
            first.keep(counted)
        with auto_attempt(attempts, spark) as second:
            assert spark.sql(f"INSERT INTO added_up {query}").collect() == []
            assert second.put_back()["shuffle(customer)"] == 2
            assert spark.sql(query).count() == 300
            assert len(second.put_back()) >= 2
        assert sorted(spark.table("added_up").collect()) == rows
    finally:
        spark.sql("DROP TABLE added_up")
