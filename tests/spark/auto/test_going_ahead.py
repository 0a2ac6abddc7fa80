"""What a retry runs ahead of its action, to learn how the plan goes on, is what the action would run (trap 13)."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from tests.spark.attempts import Attempts
from tests.spark.auto.gates import Gate, running
from tests.spark.auto.plans import joins
from tests.spark.auto.watched import auto_attempt, configured, job_group, jobs_of
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TWO_JOINS = {
    "spark.sql.adaptive.localShuffleReader.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "3000",
}
"""Planned with two sort-merge joins; of the smaller one adaptive execution makes a broadcast join."""


@pytest.fixture
def holidays(tmp_path: Path) -> Path:
    """300 customers' days as people type them; only the lenient parser of old Spark takes 31/02."""
    folder = tmp_path / "holidays"
    folder.mkdir()
    lines = (f"{customer},{1 + customer % 31:02}/02/2020\n" for customer in range(300))
    (folder / "days.csv").write_text("".join(lines))
    return folder


@pytest.mark.parametrize("adaptive", ["true", pytest.param("false", marks=pytest.mark.integration)])
def test_a_table_that_is_broadcast_ahead_is_read_as_the_session_says(
    spark: SparkSession, orders: Path, attempts: Attempts, holidays: Path, adaptive: str
) -> None:
    """Tasks that run ahead of the action know the settings of the session."""

    def query() -> DataFrame:
        days = spark.read.schema("customer long, day date").option("dateFormat", "dd/MM/yyyy").csv(str(holidays))
        return spark.read.parquet(str(orders)).join(F.broadcast(days), "customer").groupBy("customer").agg(F.max("day"))

    settings = {
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.adaptive.enabled": adaptive,
    }
    with configured(spark, settings):
        with auto_attempt(attempts, spark) as first:
            df = query()
            rows = sorted(df.collect())
            assert all(row[1] is not None for row in rows)
            assert first.keep(df) == ["shuffle(customer)"]
            first.lose("shuffle(customer)", 1)
        with auto_attempt(attempts, spark):
            assert sorted(query().collect()) == rows


def test_a_shuffle_above_one_that_was_not_kept_is_found(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """What is below it and was too cheap to keep runs first, as in the attempt before, and so the plan goes on in the
    same way.
    """

    def query() -> DataFrame:
        df = spark.read.parquet(str(orders))
        few = df.where("customer < 20").groupBy("customer").agg(F.count("*").alias("times"))
        return df.join(few, "customer").groupBy("amount").agg(F.sum("times")).groupBy("sum(times)").count()

    with configured(spark, TWO_JOINS):
        with auto_attempt(attempts, spark) as first:
            df = query()
            rows = sorted(df.collect())
            assert "BroadcastHashJoin" in joins(df)
            assert len(first.keep(df)) == 4
            first.lose("shuffle(customer)")
        with auto_attempt(attempts, spark) as second:
            assert sorted(query().collect()) == rows
            assert second.put_back()["shuffle(sum(times))"] > 0


@pytest.mark.few(1)
@pytest.mark.parametrize("survivor", ["of the same name", "of another name"])
def test_a_sort_of_a_retry_is_read_as_in_plain_spark(
    spark: SparkSession, orders: Path, attempts: Attempts, survivor: str
) -> None:
    """Spark does not coalesce the partitions of a range shuffle from its stage cache if the columns of the order have a
    qualifier: a sort below a write would leave as many files as it has shuffle partitions.
    """
    spark.read.parquet(str(orders)).createOrReplaceTempView("sorted_orders")
    orders_of = spark.table("sorted_orders")
    kept = orders_of.groupBy() if survivor == "of the same name" else orders_of.groupBy("customer")

    def in_order() -> DataFrame:
        return spark.table("sorted_orders").select("customer", "amount").orderBy(F.desc("amount"), "customer")

    plain = in_order()
    rows = plain.collect()
    with auto_attempt(attempts, spark) as first:
        df = kept.agg(F.sum("amount"))
        df.collect()
        assert len(first.keep(df)) == 1
    with auto_attempt(attempts, spark):
        again = in_order()
        assert again.collect() == rows
    assert shown(again) == shown(plain)
    assert "AQEShuffleRead coalesced" in shown(again)


@pytest.mark.few(1)
@pytest.mark.parametrize("exchange", ["broadcast", "shuffle"])
def test_what_fails_ahead_of_its_action_does_not_run_again(
    spark: SparkSession, orders: Path, attempts: Attempts, tmp_path: Path, exchange: str
) -> None:
    """The action fails with its error, as in plain Spark, though another try would not fail."""
    tried = tmp_path / "tried"

    def fails_once(customer: int) -> bool:
        if tried.exists():
            return True
        tried.touch()
        raise ValueError("only once")

    df = spark.read.parquet(str(orders))
    few = df.coalesce(1).where(F.udf(fails_once, "boolean", useArrow=False)("customer"))
    few = F.broadcast(few.select("customer")) if exchange == "broadcast" else few.hint("merge").select("customer")
    with auto_attempt(attempts, spark) as first:
        kept = df.groupBy("amount").agg(F.sum("customer"))
        kept.collect()
        assert first.keep(kept) == ["shuffle(amount)"]
    with configured(spark, {"spark.sql.autoBroadcastJoinThreshold": "-1"}), auto_attempt(attempts, spark) as second:
        query = df.join(few, "customer").groupBy("amount").count()
        assert second.restore(query)
        assert tried.exists()
        with pytest.raises(Exception, match="only once"):
            query.collect()


@pytest.mark.few(1)
@pytest.mark.parametrize("by", ["another name", "the name of what was made of another"])
def test_a_query_that_reaches_no_survivor_is_left_to_spark(
    spark: SparkSession, orders: Path, attempts: Attempts, requests: list[str], by: str
) -> None:
    """Nothing of it runs ahead, and its plan is not touched: not even if a survivor that was made of another one has
    the name of a shuffle of it.
    """
    df = spark.read.parquet(str(orders))

    def query() -> DataFrame:
        by_amount = df.where("amount > 5").groupBy("amount").agg(F.sum("customer").alias("sum"))
        return by_amount if by == "another name" else by_amount.agg(F.max("sum"))

    plain = query()
    rows = sorted(plain.collect())
    with auto_attempt(attempts, spark) as first:
        kept = df.groupBy("customer").agg(F.sum("amount").alias("sum"))
        kept = kept if by == "another name" else kept.agg(F.max("sum"))
        kept.collect()
        names = ["shuffle(customer)"] if by == "another name" else ["shuffle", "shuffle(customer)"]
        assert first.keep(kept) == names
    with auto_attempt(attempts, spark) as second:
        again = query()
        again._jdf.queryExecution().executedPlan()
        with job_group(spark, "left") as group:
            requests.clear()
            assert not second.restore(again)
            assert jobs_of(spark, group) == 0
        assert by == "the name of what was made of another" or len(requests) < 200
        assert sorted(again.collect()) == rows
    assert shown(again) == shown(plain)


def shown(df: DataFrame) -> str:
    """The plan that ran, without numbers."""
    return re.sub(r"\d+", "", str(df._jdf.queryExecution().executedPlan().executedPlan().toString()))


@pytest.mark.integration
def test_what_runs_ahead_has_the_properties_of_the_action(
    spark: SparkSession, orders: Path, attempts: Attempts
) -> None:
    """Its jobs belong to the job group of the thread that asks for the rows, and no job belongs to none."""

    def query() -> DataFrame:
        df = spark.read.parquet(str(orders))
        few = df.where("customer < 20").groupBy("customer").agg(F.count("*").alias("times"))
        return df.join(F.broadcast(few), "customer").groupBy("amount").agg(F.sum("times"))

    with auto_attempt(attempts, spark) as first:
        df = query()
        rows = sorted(df.collect())
        assert "shuffle(amount)" in first.keep(df)
        first.lose("shuffle(customer)")
    with auto_attempt(attempts, spark) as second:
        again = query()
        nobodys = jobs_of(spark, None)
        with job_group(spark, "ahead") as group:
            assert second.restore(again)
            assert jobs_of(spark, group) > 0
            assert sorted(again.collect()) == rows
        assert jobs_of(spark, None) == nobodys
        assert "shuffle(amount)" in second.put_back()


def test_a_stage_that_runs_ahead_can_be_interrupted(
    spark: SparkSession, orders: Path, attempts: Attempts, tmp_path: Path
) -> None:
    """It has the tag of its session, and the action fails with it, as in plain Spark."""
    gate = Gate(tmp_path / "gate", waits="all")
    df = spark.read.parquet(str(orders))
    with auto_attempt(attempts, spark) as first:
        kept = df.groupBy("amount").agg(F.sum("customer"))
        kept.collect()
        assert first.keep(kept) == ["shuffle(amount)"]

    with auto_attempt(attempts, spark) as second, ThreadPoolExecutor(1) as pool, ExitStack() as at_last:
        at_last.callback(gate.open)
        tracker = spark.sparkContext.statusTracker()
        action = pool.submit(df.where(gate.passes(F.lit("all"))).groupBy("amount").count().collect)
        wait_until(lambda: second.restorer._under_way and tracker.getActiveStageIds(), "a stage to run ahead")
        spark.interruptAll()
        with pytest.raises(Exception, match="cancelled"):
            action.result(60)


@pytest.mark.integration
def test_an_action_waits_for_stages_that_run_ahead_of_another_of_its_frame(
    spark: SparkSession, orders: Path, attempts: Attempts, tmp_path: Path
) -> None:
    """Two threads run one frame; a third, with a frame of its own, does not wait for them."""
    gate = Gate(tmp_path / "gate", waits="few")

    def query() -> DataFrame:
        df = spark.read.parquet(str(orders))
        waiting = spark.read.parquet(f"{orders}/part-0.parquet").where("customer < 20").where(gate.passes(F.lit("few")))
        few = waiting.groupBy(F.col("customer").alias("who")).agg(F.count("*").alias("n"))
        return df.join(few, F.col("customer") == F.col("who")).groupBy("amount").agg(F.sum("n"))

    with configured(spark, TWO_JOINS):
        with auto_attempt(attempts, spark) as first:
            df = query()
            with running(df, gate) as rows:
                gate.open()
            expected = sorted(rows.result())
            assert "shuffle(amount)" in first.keep(df)
            vertices = first.application.registry.vertices.values()
            first.lose(next(vertex.name for vertex in vertices if vertex.maps == 1 and "customer" in vertex.name))
        gate.path.unlink()
        with auto_attempt(attempts, spark) as second, ThreadPoolExecutor(3) as pool, ExitStack() as at_last:
            at_last.callback(gate.open)
            again = query()
            one, other = pool.submit(again.collect), pool.submit(again.collect)
            wait_until(lambda: second.restorer._under_way, "a stage to run ahead")
            third = pool.submit(second.restore, again)
            assert spark.read.parquet(str(orders)).groupBy("amount").count().count() == 97
            assert not one.done()
            assert not other.done()
            assert not third.done()
            gate.open()
            assert not third.result()
            assert sorted(one.result()) == sorted(other.result()) == expected
            assert "shuffle(amount)" in second.put_back()


@pytest.mark.few(1)
@pytest.mark.parametrize("action", ["count", "write", "INSERT"])
def test_what_ran_ahead_of_an_action_does_not_run_again(
    spark: SparkSession, orders: Path, attempts: Attempts, tmp_path: Path, action: str
) -> None:
    """Also where nothing could be put back, and where the action makes a plan of its own: its functions ran once."""
    spark.sql(f"CREATE TABLE ahead (customer BIGINT, n BIGINT) USING parquet LOCATION '{tmp_path / 'ahead'}'")

    def run() -> int:
        counter = spark.sparkContext.accumulator(0)

        def seen(customer: int) -> int:
            counter.add(1)
            return customer

        df = spark.read.parquet(str(orders)).repartition(3, "amount")
        df = (
            df.select(F.udf(seen, "long", useArrow=False)("customer").alias("customer"))
            .groupBy("customer")
            .agg(F.count("*").alias("n"))
        )
        if action == "count":
            df.count()
        elif action == "write":
            df.write.mode("overwrite").parquet(str(tmp_path / "out"))
        else:
            df.createOrReplaceTempView("counted")
            spark.sql("INSERT INTO ahead SELECT * FROM counted")
        return int(counter.value)

    try:
        with auto_attempt(attempts, spark) as first:
            assert run() == 2000
            by_amount = spark.read.parquet(str(orders)).repartition(3, "amount").groupBy("customer").count()
            rows = sorted(by_amount.collect())
            assert "shuffle(customer)" in first.keep(by_amount)
            first.lose("shuffle(amount)")
        with auto_attempt(attempts, spark):
            assert run() == 2000
            assert sorted(by_amount.collect()) == rows
    finally:
        spark.sql("DROP TABLE ahead")
