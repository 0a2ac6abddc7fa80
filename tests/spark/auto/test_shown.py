"""``show()``, ``isEmpty()``, ``pivot()`` and ``checkpoint()`` of a retry start from what survived, and give what plain
Spark gives.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.attempts import Attempts
from tests.spark.auto.watched import auto_attempt, configured

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def of_all_kinds(spark: SparkSession, orders: Path) -> DataFrame:
    """Cells of many types, long ones, nulls, two columns of a name and one with a line break."""
    from pyspark.sql import functions as F

    totals = spark.read.parquet(str(orders)).groupBy("customer").agg(F.sum("amount").alias("total"))
    some = totals.where("customer % 50 = 7")
    return some.sort("customer").select(
        "customer",
        F.expr("CASE WHEN customer > 100 THEN total END").alias("total"),
        (F.col("total") / 7).alias("total"),
        F.expr("timestamp '2020-02-03 04:05:06' + make_interval(0, 0, 0, customer)").alias("line\nbreak"),
        F.expr("encode(repeat('x', customer % 9), 'UTF-8')").alias("bytes"),
        F.expr("array(customer, NULL)").alias("list"),
        F.expr("map('key', named_struct('a', customer, 'b', 'two\tthree'))").alias("nested"),
        F.expr("concat('ß漢字', repeat('long ', customer % 30))").alias("text"),
        F.expr("cast(total AS decimal(12, 3))").alias("price"),
    )


SHOWN: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((3,), {}),
    ((6, False), {}),
    ((2, 9, True), {}),
    ((0,), {}),
    ((-1,), {}),
    ((), {"truncate": 3}),
    ((), {"n": 4, "vertical": True, "truncate": False}),
    ((2**31 - 1,), {"truncate": 0}),
]


@pytest.mark.few(3)
@pytest.mark.parametrize(("given", "named"), SHOWN)
def test_show_starts_from_what_survived(
    spark: SparkSession,
    orders: Path,
    attempts: Attempts,
    capsys: pytest.CaptureFixture[str],
    given: tuple[Any, ...],
    named: dict[str, Any],
) -> None:
    """However it is asked to lay out rows, the retry prints the same, and runs no map task again."""
    with auto_attempt(attempts, spark) as first:
        df = of_all_kinds(spark, orders)
        df.collect()
        assert "shuffle(customer)" in first.keep(df), first.skipped()
        capsys.readouterr()
        df.show(*given, **named)
        plain = capsys.readouterr().out
    with auto_attempt(attempts, spark) as second:
        again = of_all_kinds(spark, orders)
        again.show(*given, **named)
        assert capsys.readouterr().out == plain
        assert second.put_back()["shuffle(customer)"] == 2


@pytest.mark.parametrize("least", [0, 10**6])
def test_whether_it_is_empty_is_found_from_what_survived(
    spark: SparkSession, orders: Path, attempts: Attempts, least: int
) -> None:
    """The same answer."""

    def query() -> DataFrame:
        return spark.read.parquet(str(orders)).groupBy("customer").count().where(f"count > {least}")

    with auto_attempt(attempts, spark, restores=False) as first:
        empty = query().isEmpty()
        asked = query().select().limit(1)
        asked.collect()
        assert first.keep(asked) == ["shuffle(customer)"]
    with auto_attempt(attempts, spark) as second:
        assert query().isEmpty() is empty is (least > 0)
        assert second.put_back() == {"shuffle(customer)": 2}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "wrong", [{"n": "3"}, {"n": None}, {"n": True}, {"vertical": 1}, {"truncate": "many"}, {"rows": 3}]
)
def test_wrong_arguments_are_refused_as_ever(
    spark: SparkSession, orders: Path, attempts: Attempts, wrong: dict[str, Any]
) -> None:
    """By PySpark, in its own words."""
    with auto_attempt(attempts, spark) as first:
        df = of_all_kinds(spark, orders)
        df.collect()
        first.keep(df)
        with pytest.raises(Exception, match=r"NOT_EXPECTED_TYPE|should be|unexpected keyword") as plain:
            df.show(**wrong)
    with auto_attempt(attempts, spark), pytest.raises(type(plain.value)) as refused:
        of_all_kinds(spark, orders).show(**wrong)
    assert str(refused.value) == str(plain.value)


def made(spark: SparkSession, orders: Path) -> DataFrame:
    """Rows with a text, a number and a truth value, each of them null in some."""
    from pyspark.sql import functions as F

    totals = spark.read.parquet(str(orders)).groupBy("customer").agg(F.sum("amount").alias("total"))
    return totals.selectExpr(
        "customer % 5 AS group",
        "total",
        "nullif(concat('t', customer % 3), 't1') AS text",
        "nullif(customer % 4, 2) AS number",
        "CASE WHEN customer % 3 > 0 THEN customer % 2 = 0 END AS truth",
        "cast(customer % 2 AS decimal(5, 2)) AS price",
    )


@pytest.mark.few(2)
@pytest.mark.parametrize("column", ["text", "number", "truth", "price"])
def test_the_values_to_pivot_by_are_found_in_what_survived(
    spark: SparkSession, orders: Path, attempts: Attempts, column: str
) -> None:
    """The same columns in the same order, and the same rows; values that Python would change are left to Spark."""
    from airflow_provider.spark.jvm.shown_rows import values_to_pivot

    def pivoted() -> DataFrame:
        return made(spark, orders).groupBy("group").pivot(column).sum("total")

    with auto_attempt(attempts, spark, restores=False) as first:
        plain = pivoted()
        values = values_to_pivot(made(spark, orders), column)
        assert (values is None) is (column == "price")
        df = values if values is not None else made(spark, orders)
        df.collect()
        assert first.keep(df) != []
    with auto_attempt(attempts, spark) as second:
        again = pivoted()
        assert (second.put_back() != {}) is (column != "price")
    assert again.schema == plain.schema
    assert sorted(again.collect(), key=repr) == sorted(plain.collect(), key=repr)


def test_too_many_values_to_pivot_by_are_refused(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """By Spark, in its own words."""
    from airflow_provider.spark.jvm.shown_rows import values_to_pivot

    with configured(spark, {"spark.sql.pivotMaxValues": "2"}):
        with auto_attempt(attempts, spark) as first:
            df = values_to_pivot(made(spark, orders), "number")
            assert df is not None
            df.collect()
            assert first.keep(df) != []
        with auto_attempt(attempts, spark), pytest.raises(Exception, match="more than 2 distinct values"):
            made(spark, orders).groupBy("group").pivot("number")


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("name", ["checkpoint", "localCheckpoint"])
def test_a_checkpoint_is_made_from_what_survived(
    spark: SparkSession, orders: Path, attempts: Attempts, tmp_path: Path, name: str, eager: bool
) -> None:
    """No map task runs again; the rows are plain Spark's."""
    spark.sparkContext.setCheckpointDir(str(tmp_path / "checkpoints"))
    with auto_attempt(attempts, spark) as first:
        df = made(spark, orders)
        rows = df.collect()
        assert first.keep(df) == ["shuffle(customer)"]
    with auto_attempt(attempts, spark) as second:
        kept = getattr(made(spark, orders), name)(eager)
        assert second.put_back() == {"shuffle(customer)": 2}
        assert sorted(kept.collect(), key=repr) == sorted(rows, key=repr)


@pytest.mark.parametrize("eager", [True, False])
def test_without_adaptive_execution_only_a_checkpoint_of_now_starts_from_it(
    spark: SparkSession, orders: Path, attempts: Attempts, eager: bool
) -> None:
    """The shuffles of a later one run in a later job, with the settings of that time."""
    with configured(spark, {"spark.sql.adaptive.enabled": "false"}):
        with auto_attempt(attempts, spark) as first:
            df = made(spark, orders)
            rows = df.collect()
            assert first.keep(df) == ["shuffle(customer)"]
        with auto_attempt(attempts, spark) as second:
            kept = made(spark, orders).localCheckpoint(eager)
            assert second.put_back() == ({"shuffle(customer)": 2} if eager else {})
            assert sorted(kept.collect(), key=repr) == sorted(rows, key=repr)
