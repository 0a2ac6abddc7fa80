"""``show()`` and ``isEmpty()`` of a retry start from what survived, and say what plain Spark says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.attempts import Attempts
from tests.spark.auto.watched import auto_attempt

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
