"""Map tasks that do not read whole reducers: adaptive execution divides a shuffle among them by the map outputs, where
a join has become a broadcast, or where its keys are skewed. What they write is kept as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from tests.spark.attempts import Attempts
from tests.spark.auto.lines import task_for, written
from tests.spark.auto.watched import auto_attempt, configured
from tests.support.parameters import each_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FILES = 3
ROWS = 1000
BYTES = 11 * ROWS
TASK_EACH = task_for(BYTES) | {"spark.sql.autoBroadcastJoinThreshold": "-1"}
HOW: dict[str, tuple[str, dict[str, str]]] = {
    "a late broadcast": (
        "AQEShuffleRead local",
        {
            "spark.sql.adaptive.autoBroadcastJoinThreshold": "5k",
            "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
            "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1",
            "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1k",
        },
    ),
    "skewed keys": (
        "AQEShuffleRead coalesced and skewed",
        {
            "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "1.1",
            "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "1k",
            "spark.sql.adaptive.advisoryPartitionSizeInBytes": "2k",
        },
    ),
}
"""What the plan then says, and the settings for it."""


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Lines of the same length: a number, a key that most of them share, and another one."""
    files = {str(file): range(file * ROWS, (file + 1) * ROWS) for file in range(FILES)}
    return written(
        tmp_path / "lines",
        {
            name: (f"{row:05},{row % 20 if row % 4 == 0 else 0:02},{row % 7}" for row in rows)
            for name, rows in files.items()
        },
    )


def query(spark: SparkSession, lines: Path) -> DataFrame:
    """Two shuffles by the key, joined, and one above."""
    df = spark.read.schema("id long, key long, other long").csv(str(lines))
    few = df.where("id < 12").select(F.col("id").alias("key"), (F.col("id") * 7).alias("most"))
    joined = df.join(few, "key")
    return joined.groupBy("other").agg(F.count("*").alias("rows"), F.sum("id").alias("ids"), F.max("most"))


@pytest.mark.few(2)
@each_value(how=[*HOW], lost=["nothing below", "all below", "a part below"])
def test_what_they_write_is_put_back_task_by_task(
    spark: SparkSession, lines: Path, attempts: Attempts, how: str, lost: str
) -> None:
    """Whether the map outputs that they read are still there or not: Spark divides these as before."""
    said, settings = HOW[how]
    with configured(spark, TASK_EACH | settings):
        with auto_attempt(attempts, spark) as first:
            df = query(spark, lines)
            expected = sorted(df.collect())
            assert said in df._jdf.queryExecution().executedPlan().toString()
            assert first.keep(df) == ["shuffle(key)", "shuffle(key)#2", "shuffle(other)"]
            (above,) = (each for each in first.application.registry.vertices.values() if each.name == "shuffle(other)")
            assert above.maps > 1
            first.lose("shuffle(other)", 1)
            for name in ["shuffle(key)", "shuffle(key)#2"] if lost != "nothing below" else []:
                first.lose(name, *([0] if lost == "a part below" else []))
        with auto_attempt(attempts, spark) as second:
            assert sorted(query(spark, lines).collect()) == expected
            assert second.put_back()["shuffle(other)"] == above.maps - 1


@pytest.mark.few(1)
@each_value(how=[*HOW])
def test_if_files_are_cut_otherwise_it_is_written_anew(
    spark: SparkSession, lines: Path, attempts: Attempts, how: str
) -> None:
    """Other tasks have the rows of a map output then."""
    settings = TASK_EACH | HOW[how][1]
    with configured(spark, settings), auto_attempt(attempts, spark) as first:
        df = query(spark, lines)
        expected = sorted(df.collect())
        assert "shuffle(other)" in first.keep(df)
        first.lose("shuffle(other)", 1)
        first.lose("shuffle(key)")
    settings["spark.sql.files.maxPartitionBytes"] = str(BYTES * 2 // 3)
    with configured(spark, settings), auto_attempt(attempts, spark) as second:
        assert sorted(query(spark, lines).collect()) == expected
        assert "shuffle(other)" not in second.put_back()
