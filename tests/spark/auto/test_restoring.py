"""Auto mode keeps what map tasks have written, and a retry's own plans begin with it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider.core.errors import StoreError
from airflow_provider.storage.partition_store import PartitionStore
from tests.spark.attempts import Attempts
from tests.spark.auto.watched import auto_attempt, configured, is_filled, tasks_run

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


@pytest.mark.few(1)
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


@pytest.mark.few(1)
@pytest.mark.parametrize("missing", [["shuffle(key)"], ["shuffle(key)", "shuffle(id)"]])
def test_what_a_retry_computes_of_a_query_is_kept_for_the_next_one(
    spark: SparkSession, attempts: Attempts, missing: list[str]
) -> None:
    """A query that dies again and again goes further each time. Spark's scheduler says twice that a stage has ended
    which was there already, so the listener takes the query for ended, and begins a new record of it.
    """
    from pyspark.sql import functions as F

    def query() -> DataFrame:
        ids = spark.range(0, 2000, 1, 2).withColumn("key", F.col("id") % 50)
        both = ids.groupBy("id", "key").count().join(ids.groupBy("id").agg(F.sum("key").alias("keys")), "id")
        slow = both.where(F.length(F.sha2(F.repeat(F.col("id").cast("string"), 50_000), 512)) == 128)
        return slow.groupBy("key").agg(F.sum("keys"))

    with configured(spark, {"spark.sql.autoBroadcastJoinThreshold": "-1"}):
        with auto_attempt(attempts, spark) as first:
            df = query()
            rows = sorted(df.collect())
            kept = first.keep(df)
            assert {"shuffle(key)", "shuffle(id)"} < set(kept)
            for name in missing:
                first.lose(name)
        with auto_attempt(attempts, spark) as second, ThreadPoolExecutor(1) as pool:
            df = query()
            action = pool.submit(df.collect)
            while not action.done():
                second.application.look()
            assert sorted(action.result()) == rows
            assert len(second.put_back()) == len(kept) - len(missing)
            assert second.look() == kept, second.skipped()


def test_a_query_begins_with_what_survived_beside_a_cached_frame_that_was_read_in_part(
    spark: SparkSession, orders: Path, attempts: Attempts
) -> None:
    """Its query joins what survived with a cached frame, of which an earlier one has filled a part."""
    from pyspark.sql import functions as F

    def query() -> tuple[DataFrame, DataFrame]:
        counted = spark.range(0, 2000, 1, 2).groupBy((F.col("id") % 300).alias("number")).count().cache()
        return counted, totals(spark, orders).join(counted, F.col("customer") == F.col("number"))

    in_parts = {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.adaptive.coalescePartitions.enabled": "false"}
    with configured(spark, in_parts):
        with auto_attempt(attempts, spark) as first:
            counted, joined = query()
            rows = sorted(joined.collect())
            assert "shuffle(customer)" in first.keep(joined)
            first.lose("cached(number, count)")
            counted.unpersist(blocking=True)
        with auto_attempt(attempts, spark) as second:
            counted, joined = query()
            with configured(spark, {"spark.sql.adaptive.enabled": "false"}):  # or it fills all of it
                assert len(counted.head(3)) == 3
            assert not is_filled(counted)
            assert sorted(joined.collect()) == rows
            assert "shuffle(customer)" in second.put_back()
            counted.unpersist(blocking=True)


def test_what_a_cached_frame_has_shuffled_before_is_not_of_the_query_that_reads_it(
    spark: SparkSession, attempts: Attempts
) -> None:
    """A query begins with what survived, under settings that the frame below it was not made with: what the frame has
    shuffled is not kept under these.
    """
    from pyspark.sql import functions as F

    ids = spark.range(0, 2000, 1, 2).withColumn("key", F.col("id") % 50)
    survives = ids.groupBy("key").count()
    with configured(spark, {"spark.sql.autoBroadcastJoinThreshold": "-1"}):
        with configured(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}), auto_attempt(attempts, spark) as first:
            survives.collect()
            assert first.keep(survives) == ["shuffle(key)"]
        with auto_attempt(attempts, spark) as second:
            minutes = ids.withColumn("minute", F.col("id") % 97).groupBy("minute")
            hours = minutes.agg(F.max(F.hour(F.timestamp_seconds("key"))).alias("hour")).cache()
            try:
                hours.count()
                with configured(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
                    df = hours.select("hour").union(ids.groupBy("key").count().select("count"))
                    df.collect()
                    assert second.put_back()
                    assert "shuffle(minute)" not in second.look()
            finally:
                hours.unpersist()


@pytest.mark.parametrize("grouped", [False, True])
def test_functions_that_see_names_are_told_apart_by_them(
    spark: SparkSession, orders: Path, attempts: Attempts, grouped: bool
) -> None:
    """Spark compares plans without the names of columns, by which functions over pandas find theirs."""
    from pyspark.sql import functions as F

    def less(frame: Any) -> Any:
        return (frame["x"] - frame["y"]).to_frame("less")

    def query(*names: str) -> DataFrame:
        df = spark.read.parquet(str(orders)).selectExpr("customer", "amount * 2 AS twice").toDF(*names)
        if grouped:
            made = df.groupBy("x").applyInPandas(less, "less long")
        else:
            made = df.mapInPandas(lambda frames: map(less, frames), "less long")
        return made.groupBy().agg(F.sum("less").alias("less"))

    with auto_attempt(attempts, spark) as first:
        df = query("x", "y")
        before = df.collect()[0][0]
        assert "shuffle" in first.keep(df)
    with auto_attempt(attempts, spark) as second:  # the script was corrected
        assert query("y", "x").collect()[0][0] == -before != 0
        assert "shuffle" not in second.put_back()
    with auto_attempt(attempts, spark) as third:
        assert query("x", "y").collect()[0][0] == before
        assert "shuffle" in third.put_back()


@pytest.mark.parametrize("pruned", [False, True])
def test_values_that_only_the_catalog_knows(
    spark: SparkSession, orders: Path, attempts: Attempts, pruned: bool
) -> None:
    """Somebody corrects which day a folder holds: its files are the same, its rows are not."""
    which = "WHERE day > 0" if pruned else ""

    def query() -> DataFrame:
        counted = f"SELECT day, customer, count(*) AS n FROM days {which} GROUP BY day, customer"
        return spark.sql(f"SELECT day, sum(n) AS n FROM ({counted}) GROUP BY day")

    spark.sql(
        f"CREATE TABLE days (customer BIGINT, amount BIGINT, day INT) USING parquet PARTITIONED BY (day) "
        f"LOCATION '{orders}/table'"
    )
    try:
        spark.sql(f"ALTER TABLE days ADD PARTITION (day=1) LOCATION '{orders}'")
        with auto_attempt(attempts, spark) as first:
            df = query()
            (row,) = df.collect()
            assert row.day == 1
            assert first.keep(df)
        spark.sql("ALTER TABLE days DROP PARTITION (day=1)")
        spark.sql(f"ALTER TABLE days ADD PARTITION (day=2) LOCATION '{orders}'")
        with auto_attempt(attempts, spark) as second:
            assert [tuple(row) for row in query().collect()] == [(2, row.n)]
            assert second.put_back() == {}
    finally:
        spark.sql("DROP TABLE days")
