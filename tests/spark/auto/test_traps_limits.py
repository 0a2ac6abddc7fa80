"""What Spark decides by the counts of a shuffle it decides as plain Spark does: limits and broadcasts (trap 4)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from tests.spark.attempts import Attempts
from tests.spark.auto.plans import joins
from tests.spark.auto.watched import auto_attempt, configured
from tests.support.parameters import each_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.few(2)
@each_value(wanted=[1, 299, 1000, 1999, 2500], adaptive=["true", "false"])
def test_a_limit_above_a_restored_shuffle_is_exact(
    spark: SparkSession, orders: Path, attempts: Attempts, wanted: int, adaptive: str
) -> None:
    """``limit(n)`` above a restored shuffle returns n rows, or all where there are fewer."""

    def query() -> DataFrame:
        return spark.read.parquet(str(orders)).repartition(4, "customer").limit(wanted)

    with configured(spark, {"spark.sql.adaptive.enabled": adaptive}):
        with auto_attempt(attempts, spark) as first:
            df = query()
            assert len(df.collect()) == min(wanted, 2000)
            first.keep(df)
        with auto_attempt(attempts, spark) as second:
            again = query()
            assert len(again.collect()) == min(wanted, 2000)
            assert second.put_back() == {"shuffle(customer)": 2}


@pytest.mark.few(1)
@pytest.mark.parametrize("threshold", ["2000", "9000", "10000000"])
def test_joins_above_restored_shuffles_are_those_of_plain_spark(
    spark: SparkSession, orders: Path, attempts: Attempts, threshold: str
) -> None:
    """The size of a restored shuffle is what Spark has counted, so the same side is broadcast, or none."""

    def query() -> DataFrame:
        df = spark.read.parquet(str(orders))
        return df.repartition(4, "customer").join(df.groupBy("customer").sum("amount"), "customer")

    settings = {
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.adaptive.autoBroadcastJoinThreshold": threshold,
    }
    with configured(spark, settings):
        with auto_attempt(attempts, spark) as first:
            df = query()
            rows = sorted(df.collect())
            plain = joins(df)
            assert len(first.keep(df)) == 2
        with auto_attempt(attempts, spark) as second:
            again = query()
            assert sorted(again.collect()) == rows
            assert len(second.put_back()) == 2
            assert joins(again) == plain


def test_what_is_empty_stays_empty(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """A restored shuffle without rows is still one without rows."""

    def query() -> DataFrame:
        df = spark.read.parquet(str(orders))
        return df.where("amount < -1").groupBy("customer").count().join(df.groupBy("customer").sum(), "customer")

    # An adaptive plan lets go of shuffles without rows, and of what they are joined to.
    settings = {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.adaptive.enabled": "false"}
    with configured(spark, settings):
        with auto_attempt(attempts, spark) as first:
            df = query()
            assert df.collect() == []
            first.keep(df)
        with auto_attempt(attempts, spark) as second:
            assert query().collect() == []
            assert second.put_back()


@pytest.mark.few(1)
@each_value(generated=["true", "false"], source=["local", "files"], write={"collect": False, "write": True})
def test_an_action_that_resets_its_metrics_knows_the_rows_put_back(
    spark: SparkSession,
    orders: Path,
    attempts: Attempts,
    tmp_path: Path,
    source: str,
    generated: str,
    write: bool,
) -> None:
    """Spark sets the metrics of a plan to 0 before it runs. Where a stage's shuffle is the plan's own object, as it is
    over rows of the driver and without generated code, what was put back would have no rows, and its join none.
    """

    def query() -> DataFrame:
        if source == "files":
            df = spark.read.parquet(str(orders))
        else:
            df = spark.createDataFrame(pd.DataFrame({"id": range(30), "customer": [n % 4 for n in range(30)]}))
        return df.join(df.select("customer"), "customer").groupBy("customer").count()

    def rows(target: Path) -> list[Row]:
        df = query()
        if not write:
            return sorted(df.collect())
        df.write.parquet(str(target))
        return sorted(spark.read.parquet(str(target)).collect())

    settings = {
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.codegen.wholeStage": generated,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    with configured(spark, settings):
        with auto_attempt(attempts, spark) as first:
            kept = query()
            plain = sorted(kept.collect())
            assert first.keep(kept) == ["shuffle(customer)"]
        with auto_attempt(attempts, spark) as second:
            assert rows(tmp_path / "out") == plain
            assert len(second.put_back()) == 1
