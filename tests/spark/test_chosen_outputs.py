"""Outputs whose rows depend only on the order in which their query reads are written once, as the next query of plain
Spark over the same frame chooses anew. What outputs of one attempt may have in common is written by each attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

from airflow_provider.spark.interception import intercepted
from airflow_provider.spark.sinks.once import SinksOnce
from airflow_provider.spark.sinks.take_back import OutputAttempt
from tests.spark.attempts import Attempts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.window import WindowSpec

pytestmark = pytest.mark.spark


def latest() -> WindowSpec:
    return Window.partitionBy("key").orderBy(F.desc("at"))


def placed(value: Callable[[], Column]) -> Callable[[DataFrame], DataFrame]:
    return lambda df: df.withColumn("place", value())


def newest(df: DataFrame) -> DataFrame:
    """The usual way to keep one row of each key."""
    return df.withColumn("place", F.row_number().over(latest())).where("place = 1")


ONCE: dict[str, Callable[[DataFrame], DataFrame]] = {
    "row_number": newest,
    "lag": placed(lambda: F.lag("id").over(latest())),
    "lead": placed(lambda: F.lead("id").over(latest())),
    "ntile": placed(lambda: F.ntile(3).over(latest())),
    "nth_value": placed(lambda: F.nth_value("id", 2).over(latest())),
    "rows before": placed(lambda: F.sum("id").over(latest().rowsBetween(-3, 0))),
    "max_by": lambda df: df.groupBy("key").agg(F.max_by("id", "at").alias("id")),
    "any row": lambda df: df.dropDuplicates(["key"]),
    "the first row": lambda df: df.groupBy("key").agg(F.first("id").alias("id")),
    "a list": lambda df: df.groupBy("key").agg(F.collect_list("id").alias("ids")),
    "a set": lambda df: df.groupBy("key").agg(F.collect_set("at").alias("ats")),
    "a limit": lambda df: newest(df).limit(5),
    "the first rows of an order": lambda df: df.orderBy("at").limit(5),
    "dealt out": lambda df: df.repartition(3).groupBy("key").count(),
    "dealt out, and numbered": lambda df: newest(df.repartition(3)),
    "dealt out, in a cached frame": lambda df: newest(df.repartition(3).cache()),
    "over a cached frame": lambda df: newest(df.where("id >= 0").cache()),
}
EACH_TIME: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "in a cached frame": (lambda df: newest(df).cache(), "RowNumber"),
    "below a cached frame": (lambda df: newest(df).groupBy("key").count().cache(), "RowNumber"),
    "no order": (
        placed(lambda: F.row_number().over(Window.partitionBy("key").orderBy(F.lit(1)))),
        "no column orders its rows",
    ),
    "rows of no order": (placed(lambda: F.sum("id").over(Window.rowsBetween(-1, 0))), "no column orders its rows"),
    "drawn beside it": (lambda df: newest(df.where(F.rand() >= 0)), "Rand"),
    "any row, in a cached frame": (lambda df: df.dropDuplicates(["key"]).cache(), "Deduplicate"),
    "a limit below a cached frame": (lambda df: df.limit(5).groupBy("key").count().cache(), "GlobalLimit"),
    "any row, and its place": (
        lambda df: df.dropDuplicates(["key"]).withColumn("place", F.monotonically_increasing_id()),
        "MonotonicallyIncreasingID",
    ),
}


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    return Attempts(tmp_path / "store")


def written(
    spark: SparkSession, attempts: Attempts, target: Path, change: Callable[[DataFrame], DataFrame], mode: str
) -> list[str]:
    """What two attempts write, each by itself; the names of the files that are there then."""
    for _ in range(2):
        with attempts.attempt() as context:
            output = OutputAttempt(context.master)
            with intercepted(SinksOnce(context, output).stages()):
                output.prepare(spark)
                rows = spark.range(0, 300, 1, 4).select("id", (F.col("id") % 50).alias("key"), F.lit(7).alias("at"))
                change(rows.withColumn("at", F.col("id") * 0)).write.mode(mode).parquet(str(target))
        spark.catalog.clearCache()
    return sorted({path.name[11:47] for path in target.glob("part-*")})


@pytest.mark.few(4)
@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("name", ONCE)
def test_what_each_query_chooses_is_written_once(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, mode: str
) -> None:
    """The retry leaves the output out, and all of its files are those of the first attempt's write."""
    with caplog.at_level(logging.INFO, "airflow_provider"):
        writes = written(spark, attempts, tmp_path / "out", ONCE[name], mode)
    assert len(writes) == 1
    assert caplog.text.count("already written by attempt 1, not written again") == 1


@pytest.mark.few(2)
@pytest.mark.parametrize("name", EACH_TIME)
def test_what_other_outputs_may_share_is_written_each_time(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """The rows of the first attempt go, and those of the second one are there; the log says why."""
    change, reason = EACH_TIME[name]
    with caplog.at_level(logging.INFO, "airflow_provider"):
        writes = written(spark, attempts, tmp_path / "out", change, "append")
    assert len(writes) == 1
    assert "is written again by each attempt" in caplog.text
    assert reason in caplog.text
    assert "not written again" not in caplog.text
