"""Unmodified code inside one Spark session: what auto mode stores and reuses, and what stays as it is."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider.spark.auto.actions import recovering_actions
from airflow_provider.spark.auto.cost import Price
from airflow_provider.spark.context import RecoveryContext
from tests.spark.attempts import Attempts, vertices

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@contextmanager
def automatic(attempts: Attempts, **options: str) -> Iterator[RecoveryContext]:
    """An attempt in auto mode that places whatever the rules find."""
    attempts.options = {"overhead_budget": "1e6", **options}
    with attempts.attempt() as context, recovering_actions(context):
        yield context


def by_customer(spark: SparkSession, orders: Path) -> DataFrame:
    from pyspark.sql import functions as F

    frame = spark.read.parquet(str(orders))
    return frame.groupBy("customer").agg(F.sum("amount").alias("total"), F.countDistinct("amount").alias("n"))


@pytest.fixture
def many_tasks(spark: SparkSession) -> Iterator[None]:
    """Small files are read by many tasks."""
    settings = {"spark.sql.files.maxPartitionBytes": "400", "spark.sql.files.openCostInBytes": "0"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)


def rules_of(context: RecoveryContext) -> set[str]:
    return {vertex.initialized.rule for vertex in context.master.graph.vertices.values()}


@pytest.mark.parametrize(
    "act",
    [
        lambda df: sorted(df.collect()),
        lambda df: df.count(),
        lambda df: sorted(df.toPandas().itertuples(index=False, name=None)),
        lambda df: sorted(df.toArrow().to_pylist(), key=str),
        lambda df: sorted(df.toLocalIterator()),
        lambda df: [tuple(row) for row in df.orderBy("total", "customer").limit(5).collect()],
    ],
    ids=["collect", "count", "toPandas", "toArrow", "toLocalIterator", "sorted"],
)
def test_actions_return_the_same_and_a_second_attempt_reuses(
    spark: SparkSession, orders: Path, attempts: Attempts, act: Callable[[DataFrame], Any]
) -> None:
    """With points, with stored points, and without: the same rows."""
    expected = act(by_customer(spark, orders))
    for attempt in (1, 2):
        with automatic(attempts) as context:
            assert act(by_customer(spark, orders)) == expected
            reports = vertices(context).values()
            assert reports
            assert all(report.reused == report.partitions for report in reports) == (attempt == 2)


def test_writers_keep_their_settings(spark: SparkSession, orders: Path, attempts: Attempts, tmp_path: Path) -> None:
    """Format, mode, options and partitioning hold for the DataFrame that is written in the place of the script's."""
    target = tmp_path / "out"
    with automatic(attempts) as context:
        for _ in range(2):
            writer = by_customer(spark, orders).selectExpr("*", "customer % 2 AS odd").write
            writer.mode("overwrite").option("header", True).partitionBy("odd").csv(str(target))
        assert vertices(context)
    assert sorted(path.name for path in target.glob("odd=*")) == ["odd=0", "odd=1"]
    assert spark.read.option("header", True).csv(str(target)).count() == 300


def test_the_same_part_of_two_plans_is_computed_once(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """Whichever action needs it, and where one plan holds it twice."""
    with automatic(attempts) as context:
        left, right = by_customer(spark, orders), by_customer(spark, orders).hint("merge")
        assert len(left.join(right, "customer").collect()) == 300
        assert len(left.filter("customer IS NOT NULL").collect()) == 300
        assert [name for name in vertices(context) if name.startswith("aggregate(customer)")] == ["aggregate(customer)"]


def test_like_named_points_are_found_whichever_comes_first(
    spark: SparkSession, orders: Path, attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    """What is complete hides the point below it, and the next one of that name is neither renamed nor computed again.

    A new point of that name is not taken for the hidden one either.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    read = spark.read.parquet(str(orders))
    ranked = by_customer(spark, orders).withColumn("place", F.row_number().over(Window.orderBy("total", "customer")))
    least = read.groupBy("customer").agg(F.min("amount").alias("least"))
    most = read.groupBy("customer").agg(F.max("amount").alias("most"))
    below = "aggregate(customer)"
    with automatic(attempts) as context:
        assert len(ranked.collect()) == len(least.collect()) == 300
        assert {below, f"{below}#2"} <= set(vertices(context))
    caplog.clear()
    with automatic(attempts) as context:
        assert len(ranked.collect()) == len(least.collect()) == len(most.collect()) == 300
        found = vertices(context)
        assert below not in found
        assert found[f"{below}#2"].reused == found[f"{below}#2"].partitions > 0
        assert found[f"{below}#3"].computed > 0
        assert "computed again" not in caplog.text
    with automatic(attempts) as context:
        assert len(by_customer(spark, orders).filter("n > 0").collect()) == 300
        assert vertices(context)[below].reused == vertices(context)[below].partitions > 0


def test_a_cached_frame_is_stored_and_stays_cached(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """Two actions and a self join read it; ``is_cached``, ``storageLevel`` and ``unpersist`` are the script's."""
    from pyspark import StorageLevel

    for attempt in (1, 2):
        with automatic(attempts) as context:
            cached = by_customer(spark, orders).repartition(3).persist(StorageLevel.DISK_ONLY)
            assert cached.count() == 300
            assert cached.alias("a").join(cached.alias("b"), "customer").count() == 300
            assert (cached.is_cached, cached.storageLevel) == (True, StorageLevel.DISK_ONLY)
            assert vertices(context)["persisted"].reused == (3 if attempt == 2 else 0)
            cached.unpersist()
            assert not cached.is_cached
            assert spark._jsparkSession.sharedState().cacheManager().isEmpty()


def test_sparks_checkpoints_become_recovery_points(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """Rows, their order and their number of partitions are kept; no checkpoint directory is needed."""
    for attempt in (1, 2):
        with automatic(attempts) as context:
            kept = by_customer(spark, orders).orderBy("customer").localCheckpoint()
            assert [row.customer for row in kept.collect()] == list(range(300))
            report = vertices(context)["persisted"]
            assert (report.reused == report.partitions) == (attempt == 2)
            assert by_customer(spark, orders).checkpoint().count() == 300


def test_rows_without_a_shuffle_keep_their_order(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """A Python function over files: the rows come as the files have them, in as many partitions."""
    from pyspark.sql import functions as F

    twice = F.udf(lambda amount: 2 * amount, "long")
    plain = spark.read.parquet(str(orders)).select("customer", twice("amount").alias("a"))
    expected = plain.collect()
    for _ in range(2):
        with automatic(attempts) as context:
            assert plain.select("*").collect() == expected
            assert rules_of(context) == {"function before the sink"}


def test_a_pilot_in_vain_is_not_computed_twice(
    spark: SparkSession,
    orders: Path,
    many_tasks: None,
    attempts: Attempts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where its first wave shows that storing is too dear, that wave is read and the others are computed, in order."""
    from pyspark.sql import functions as F

    log = tmp_path / "log"
    log.mkdir()

    def noted(amount: int) -> int:
        with (log / str(os.getpid())).open("a") as file:
            file.write("x")
        return 2 * amount

    monkeypatch.setattr(Price, "pilot_too_dear", lambda *_: "the test says so")
    plain = spark.read.parquet(str(orders)).select("customer", F.udf(noted, "long")("amount").alias("a"))
    expected = plain.collect()
    for file in log.iterdir():
        file.unlink()
    with automatic(attempts) as context:
        assert plain.select("*").collect() == expected
        assert sum(file.stat().st_size for file in log.iterdir()) == len(expected)
        vertex = next(iter(vertices(context).values()))
        assert 0 < vertex.computed < vertex.partitions
        assert context.master.graph.newest is not None
        assert [skip.reason for skip in context.master.graph.newest.skipped] == ["the test says so"]
    with automatic(attempts) as context:
        assert plain.select("*").collect() == expected
        assert next(iter(vertices(context).values())).reused == vertex.computed


def test_a_scan_that_waits_for_a_subquery(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """How it is cut into tasks is not known beforehand; the aggregate above it is stored as a whole."""
    spark.read.parquet(str(orders)).createOrReplaceTempView("orders")
    query = (
        "SELECT customer, sum(amount) FROM orders WHERE amount > (SELECT avg(amount) FROM orders) GROUP BY customer "
        "HAVING sum(amount) > (SELECT max(amount) FROM orders)"
    )
    expected = sorted(spark.sql(query).collect())
    for _ in range(2):
        with automatic(attempts) as context:
            assert sorted(spark.sql(query).collect()) == expected
            assert context.master.graph.newest is not None
            assert context.master.graph.newest.skipped == []
            assert rules_of(context) == {"aggregate"}


def test_sql_commands_that_write(spark: SparkSession, orders: Path, attempts: Attempts, tmp_path: Path) -> None:
    """``CREATE TABLE … AS``, ``INSERT`` with common table expressions on either side, ``INSERT … DIRECTORY``."""
    spark.read.parquet(str(orders)).createOrReplaceTempView("orders")
    query = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
    table = f"parquet_table_{tmp_path.name.replace('-', '_')}"
    with automatic(attempts) as context:
        spark.sql(f"CREATE TABLE {table} USING parquet LOCATION '{tmp_path}/t' AS {query}")
        spark.sql(f"INSERT INTO {table} WITH x AS ({query}) SELECT * FROM x WHERE total > 100")
        spark.sql(f"-- a comment\nWITH x AS ({query}) INSERT INTO {table} SELECT * FROM x WHERE total > 200")
        spark.sql(f"INSERT OVERWRITE DIRECTORY '{tmp_path}/d' USING json {query}")
        assert "aggregate" in rules_of(context)
    expected = sum(spark.sql(f"SELECT * FROM ({query}) WHERE total > {least}").count() for least in (-1, 100, 200))
    assert spark.table(table).count() == expected
    assert spark.read.json(f"{tmp_path}/d").count() == 300
    spark.sql(f"DROP TABLE {table}")


def test_short_queries_run_as_they_are(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """With the default budget nothing is placed where there is next to nothing to compute."""
    with automatic(attempts, overhead_budget="0.1") as context:
        assert by_customer(spark, orders).count() == 300
        assert vertices(context) == {}


def test_explicit_mode_places_nothing(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """``recovery_points=explicit`` keeps to ``checkpoint``."""
    with automatic(attempts, recovery_points="explicit") as context:
        assert by_customer(spark, orders).count() == 300
        assert vertices(context) == {}


def test_what_goes_wrong_in_placing_does_not_touch_the_action(
    spark: SparkSession,
    orders: Path,
    attempts: Attempts,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A node that cannot be rebuilt: the action runs as it was written, and the report says why."""

    def refuse(*_: object) -> None:
        raise RuntimeError("no such method in this Spark")

    monkeypatch.setattr("airflow_provider.spark.jvm.optimized.OptimizedPlan.frame", refuse)
    with automatic(attempts) as context, caplog.at_level(logging.WARNING):
        assert by_customer(spark, orders).count() == 300
        (skipped,) = context.master.graph.attempts[1].skipped
    assert "no such method in this Spark" in skipped.reason
    assert "which runs as it is written" in caplog.text


def test_an_error_of_the_job_is_the_actions(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """A function that fails fails the action, and it is not run again by way of the plain plan."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    fails = F.udf(lambda amount: 1 // 0, "long")
    with automatic(attempts, restart_strategy="none") as context:
        with pytest.raises(PySparkException, match="ZeroDivisionError"):
            spark.read.parquet(str(orders)).groupBy(fails("amount")).count().collect()
        assert context.master.graph.attempts[1].skipped == []


def test_spark_still_refuses_to_overwrite_what_a_query_reads(
    spark: SparkSession, orders: Path, attempts: Attempts, tmp_path: Path
) -> None:
    """A stored point in between must not hide that the table is being read."""
    from pyspark.errors import AnalysisException

    table = f"own_{tmp_path.name.replace('-', '_')}"
    by_customer(spark, orders).write.option("path", str(tmp_path / "t")).saveAsTable(table)
    with automatic(attempts):
        again = spark.table(table).groupBy("customer", "n").sum("total").selectExpr("customer", "`sum(total)`", "n")
        with pytest.raises(AnalysisException, match="UNSUPPORTED_OVERWRITE"):
            again.write.insertInto(table, overwrite=True)
        with pytest.raises(AnalysisException, match="UNSUPPORTED_OVERWRITE"):
            spark.sql(f"INSERT OVERWRITE {table} SELECT customer, sum(total), n FROM {table} GROUP BY customer, n")
    spark.sql(f"DROP TABLE {table}")


def test_an_observation_gets_its_metrics(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """No point stands above it, in the first attempt and the next."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    for _ in range(2):
        with automatic(attempts):
            seen = Observation("seen")
            observed = by_customer(spark, orders).observe(seen, F.count(F.lit(1)).alias("rows"))
            assert observed.groupBy("n").count().count() > 0
            assert seen.get == {"rows": 300}
