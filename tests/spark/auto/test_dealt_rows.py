"""Rows that are dealt out, round robin: ``repartition(n)``. What is made of them is kept like anything else where each
row comes to the same task in a retry; else for exactly the rows that each task had.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
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

FILES = {"a": range(600), "b": range(600, 1000), "c": range(1000, 1200)}
ROWS = 1200
KEYS = 7
TASK_EACH = task_for(6000) | {"spark.sql.adaptive.coalescePartitions.enabled": "false"}
"""Two map tasks: one reads the first file, the other one the rest."""


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Lines of the same length: a number, its key, an amount."""
    return written(
        tmp_path / "lines",
        {name: (f"{row:04},{row % KEYS},.{row % 9}" for row in rows) for name, rows in FILES.items()},
    )


def read(spark: SparkSession, lines: Path) -> DataFrame:
    return spark.read.schema("id long, key long, amount double").csv(str(lines))


def by_key(df: DataFrame) -> DataFrame:
    return df.groupBy("key").agg(F.sum("id").alias("ids"), F.count("*").alias("rows"))


def sums(df: DataFrame) -> DataFrame:
    """Sums whose last digits follow the order in which rows come."""
    return df.groupBy("id").agg(F.sum("amount").alias("amount")).withColumn("key", F.col("id") % KEYS)


def called(df: DataFrame) -> DataFrame:
    """The same, by a Python function."""
    return df.withColumn("id", F.udf(lambda number: number, "long")("id"))


CERTAIN: dict[str, tuple[Callable[[DataFrame], DataFrame], Collection[str]]] = {
    "files": (lambda df: by_key(df.repartition(3)), {"shuffle", "shuffle(key)"}),
    "filtered": (lambda df: by_key(df.where("id % 2 = 0").repartition(5)), {"shuffle", "shuffle(key)"}),
    "a function above": (
        lambda df: by_key(called(df.repartition(3))),
        {"shuffle", "shuffle(key)"},
    ),
    "both sides of a union": (
        lambda df: by_key(df.repartition(3).union(df.where("id < 50").repartition(2))),
        {"shuffle", "shuffle#2", "shuffle(key)"},
    ),
}
"""What is made of rows that are dealt out by tasks that read files, and its shuffles."""


@pytest.mark.few(4)
@each_value(case=[*CERTAIN], adaptive=["true", "false"])
def test_single_tasks_of_what_is_made_of_dealt_files_are_put_back(
    spark: SparkSession, lines: Path, attempts: Attempts, case: str, adaptive: str
) -> None:
    """The rows are dealt out again, and each comes to the task to which it came before: none is lost, none doubled."""
    change, shuffles = CERTAIN[case]
    with configured(spark, {**TASK_EACH, "spark.sql.adaptive.enabled": adaptive}):
        expected = sorted(change(read(spark, lines)).collect())
        with auto_attempt(attempts, spark) as first:
            df = change(read(spark, lines))
            assert sorted(df.collect()) == expected
            assert set(first.keep(df)) == set(shuffles)
            for name in shuffles:
                if name != "shuffle(key)":
                    first.lose(name)
            first.lose("shuffle(key)", 1)
        with auto_attempt(attempts, spark) as second:
            assert sorted(change(read(spark, lines)).collect()) == expected
            assert second.put_back().keys() == {"shuffle(key)"}


BOUND: dict[str, Callable[[DataFrame], DataFrame]] = {
    "sums": lambda df: by_key(sums(df).repartition(3)),
    "a function below": lambda df: by_key(called(df).repartition(3)),
    "a broadcast below": lambda df: by_key(df.join(F.broadcast(df.select("id")), "id").repartition(3)),
}
"""What is made of rows that another task may get if they are dealt out again."""


@pytest.mark.few(4)
@each_value(case=[*BOUND], lost=["nothing", "a dealt task"], adaptive=["true", "false"])
def test_what_is_made_of_dealt_rows_belongs_to_these(
    spark: SparkSession, lines: Path, attempts: Attempts, case: str, lost: str, adaptive: str
) -> None:
    """Single tasks of it are put back with all that was dealt; not if a part of this is dealt out again."""
    with configured(spark, {**TASK_EACH, "spark.sql.adaptive.enabled": adaptive}):
        with auto_attempt(attempts, spark) as first:
            df = BOUND[case](read(spark, lines))
            expected = sorted(df.collect())
            assert {"shuffle", "shuffle(key)"} <= set(first.keep(df))
            first.lose("shuffle(key)", 1)
            if lost != "nothing":
                first.lose("shuffle", 0)
        with auto_attempt(attempts, spark) as second:
            assert sorted(BOUND[case](read(spark, lines)).collect()) == expected
            assert "shuffle" in second.put_back()
            assert ("shuffle(key)" in second.put_back()) is (lost == "nothing")


@each_value(cut=["the same", "another"], adaptive=["true", "false"])
def test_files_that_are_cut_otherwise_are_dealt_otherwise(
    spark: SparkSession, lines: Path, attempts: Attempts, cut: str, adaptive: str
) -> None:
    """What is made of them is then computed as a whole."""
    settings = {**TASK_EACH, "spark.sql.adaptive.enabled": adaptive}
    with configured(spark, settings), auto_attempt(attempts, spark) as first:
        df = by_key(read(spark, lines).repartition(3))
        expected = sorted(df.collect())
        assert first.keep(df) == ["shuffle", "shuffle(key)"]
        first.lose("shuffle")
        first.lose("shuffle(key)", 1)
    bytes_of_a_task = {"spark.sql.files.maxPartitionBytes": "5000"} if cut == "another" else {}
    with configured(spark, settings | bytes_of_a_task), auto_attempt(attempts, spark) as second:
        assert sorted(by_key(read(spark, lines).repartition(3)).collect()) == expected
        assert second.put_back() == ({} if cut == "another" else {"shuffle(key)": 2})


@pytest.mark.few(1)
@each_value(adaptive=["true", "false"])
def test_rows_that_spark_does_not_sort_first_are_bound(
    spark: SparkSession, lines: Path, attempts: Attempts, adaptive: str
) -> None:
    """They are dealt out as they come."""
    unsorted = {"spark.sql.execution.sortBeforeRepartition": "false", "spark.sql.adaptive.enabled": adaptive}
    with configured(spark, {**TASK_EACH, **unsorted}):
        with auto_attempt(attempts, spark) as first:
            df = by_key(read(spark, lines).repartition(3))
            expected = sorted(df.collect())
            assert first.keep(df) == ["shuffle", "shuffle(key)"]
            first.lose("shuffle", 0)
        with auto_attempt(attempts, spark) as second:
            assert sorted(by_key(read(spark, lines).repartition(3)).collect()) == expected
            assert second.put_back() == {"shuffle": 1}


@each_value(spread=["repartition", "coalesce"], adaptive=["true", "false"])
def test_a_shuffle_by_keys_in_between_is_enough(
    spark: SparkSession, lines: Path, attempts: Attempts, spread: str, adaptive: str
) -> None:
    """Each of its reducers gets the rows of its keys, however these were spread before."""

    def query() -> DataFrame:
        df = sums(read(spark, lines))
        return by_key(df.repartition(3) if spread == "repartition" else df.coalesce(2)).groupBy("rows").count()

    with configured(spark, {**TASK_EACH, "spark.sql.adaptive.enabled": adaptive}):
        with auto_attempt(attempts, spark) as first:
            df = query()
            expected = sorted(df.collect())
            kept = first.keep(df)
            assert ("shuffle(key)" in kept) is (spread == "repartition")
            first.lose("shuffle(rows)", 1)
            if spread == "repartition":
                first.lose("shuffle")
                first.lose("shuffle(key)")
        with auto_attempt(attempts, spark) as second:
            assert sorted(query().collect()) == expected
            assert second.put_back().keys() == {"shuffle(id)", "shuffle(rows)"}
