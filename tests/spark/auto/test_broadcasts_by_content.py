"""Small tables that tell no version, of a database or an RDD, are often broadcast and joined with large files. What
reads such a broadcast is kept for exactly its rows: a retry that finds the same ones there goes on from it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from tests.spark.attempts import Attempts
from tests.spark.auto.lines import written
from tests.spark.auto.watched import auto_attempt, configured
from tests.spark.database import Database
from tests.support.parameters import each_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 1200
LATE = {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.adaptive.autoBroadcastJoinThreshold": "4k"}
"""No table is known to be small before it is there: joins become broadcasts at run time."""


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Lines of the same length in two files: a number, and its key."""
    halves = {"a": range(ROWS // 2), "b": range(ROWS // 2, ROWS)}
    return written(tmp_path / "lines", {name: (f"{row:04},{row % 7}" for row in rows) for name, rows in halves.items()})


def read(spark: SparkSession, lines: Path) -> DataFrame:
    return spark.read.schema("number long, id long").csv(str(lines))


def rates(spark: SparkSession, database: Database) -> DataFrame:
    return database.read().select(F.col("id").cast("long").alias("id"), F.col("rate"))


def as_rdd(spark: SparkSession, database: Database) -> DataFrame:
    """The rows of the database as they are now, in an RDD that the driver makes."""
    rows = [tuple(row) for row in rates(spark, database).collect()]
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, 1), "id long, rate int")


def drawn(spark: SparkSession, database: Database) -> DataFrame:
    """Of chance, and yet the same in each attempt."""
    return rates(spark, database).where("rand() >= 0")


def sums(joined: DataFrame) -> DataFrame:
    return joined.groupBy("rate").agg(F.sum("number").alias("sum"), F.count("*").alias("rows"))


Source = Callable[["SparkSession", Database], "DataFrame"]
SOURCES: dict[str, Source] = {"a database": rates, "an RDD": as_rdd, "drawn": drawn}
Change = Callable[[], object]
CHANGES: dict[str, Callable[[Database], Change | None]] = {
    "nothing": lambda database: None,
    "a row more": lambda database: lambda: database.add(3),
}
"""What happens to the table before the retry."""


def by_rate(spark: SparkSession, lines: Path, table: DataFrame, *, hint: bool = True) -> DataFrame:
    return sums(read(spark, lines).join(F.broadcast(table) if hint else table, "id"))


def retried(
    spark: SparkSession, attempts: Attempts, query: Callable[[], DataFrame], change: Change | None
) -> tuple[list[str], list[str]]:
    """Run a query in an attempt and, after a change, in a retry, which has the rows of plain Spark; return what was
    kept, and what was put back.
    """
    with auto_attempt(attempts, spark) as first:
        df = query()
        df.collect()
        kept = first.keep(df)
    if change is not None:
        change()
    expected = sorted(query().collect())
    with auto_attempt(attempts, spark) as second:
        assert sorted(query().collect()) == expected
        return kept, sorted(second.put_back())


@pytest.mark.few(4)
@each_value(source=SOURCES, changes=[*CHANGES], adaptive=["true", "false"])
def test_what_reads_it_is_put_back_if_its_rows_are_the_same(
    spark: SparkSession, lines: Path, attempts: Attempts, source: Source, changes: str, adaptive: str
) -> None:
    """Else it is computed again: the retry has the rows of plain Spark."""
    database = Database(spark)

    def query() -> DataFrame:
        return by_rate(spark, lines, source(spark, database))

    with configured(spark, {"spark.sql.adaptive.enabled": adaptive}):
        kept, back = retried(spark, attempts, query, CHANGES[changes](database))
        assert kept == ["shuffle(rate)"]
        assert ("shuffle(rate)" in back) is (changes == "nothing")


@each_value(changes=[*CHANGES])
def test_so_is_what_reads_one_that_was_not_planned(
    spark: SparkSession, lines: Path, attempts: Attempts, changes: str
) -> None:
    """The shuffle of the table itself is not kept, so a retry runs it before the action to learn what it holds."""
    database = Database(spark)

    def query() -> DataFrame:
        return by_rate(spark, lines, rates(spark, database), hint=False)

    with configured(spark, LATE):
        kept, back = retried(spark, attempts, query, CHANGES[changes](database))
        assert kept == ["shuffle(id)", "shuffle(rate)"]
        assert ("shuffle(rate)" in back) is (changes == "nothing")


@pytest.mark.few(2)
@each_value(changes=[*CHANGES], adaptive=["true", "false"])
def test_so_is_what_is_made_of_it(
    spark: SparkSession, lines: Path, attempts: Attempts, changes: str, adaptive: str
) -> None:
    """For exactly the map outputs of which it was made."""
    database = Database(spark)

    def query() -> DataFrame:
        return by_rate(spark, lines, rates(spark, database)).groupBy("rows").agg(F.max("sum").alias("most"))

    with configured(spark, {"spark.sql.adaptive.enabled": adaptive}):
        kept, back = retried(spark, attempts, query, CHANGES[changes](database))
        assert kept == ["shuffle(rate)", "shuffle(rows)"]
        assert back == (kept if changes == "nothing" else [])


@each_value(changes=[*CHANGES])
def test_so_is_what_reads_a_cached_frame_that_is_joined_with_it(
    spark: SparkSession, lines: Path, attempts: Attempts, changes: str
) -> None:
    """A frame that a retry fills is made of what its broadcast holds then."""
    database = Database(spark)

    def query() -> DataFrame:
        spark.catalog.clearCache()
        return sums(read(spark, lines).join(F.broadcast(rates(spark, database)), "id").cache())

    try:
        kept, back = retried(spark, attempts, query, CHANGES[changes](database))
    finally:
        spark.catalog.clearCache()
    assert kept == ["cached(id, number, rate)", "shuffle(rate)"]
    assert ("shuffle(rate)" in back) is (changes == "nothing")


@pytest.mark.few(2)
@each_value(tables=["swapped", "as before"], adaptive=["true", "false"])
def test_two_results_are_told_apart(
    spark: SparkSession, lines: Path, attempts: Attempts, tables: str, adaptive: str
) -> None:
    """Of the same columns and keys, each made of a table of its own: a - b is not b - a."""
    databases = [Database(spark), Database(spark)]
    databases[1].add(3)

    def query() -> DataFrame:
        one, other = (by_rate(spark, lines, rates(spark, database)) for database in databases)
        left = one.join(other, ["rate", "sum", "rows"], "left_anti")
        return left.groupBy("rows").agg(F.sum("sum").alias("sum"))

    with configured(spark, {"spark.sql.adaptive.enabled": adaptive, "spark.sql.autoBroadcastJoinThreshold": "-1"}):
        databases.reverse()
        with auto_attempt(attempts, spark) as first:
            df = query()
            assert df.collect() != []
            assert "shuffle(rows)" in first.keep(df)
        if tables == "swapped":
            databases.reverse()
        expected = query().collect()
        assert (expected == []) is (tables == "swapped")
        with auto_attempt(attempts, spark) as second:
            assert query().collect() == expected
            assert {"shuffle(rate)", "shuffle(rate)#2"} <= second.put_back().keys()
            assert ("shuffle(rows)" in second.put_back()) is (tables == "as before")


@pytest.mark.parametrize("tables", ["swapped", "as before"])
def test_two_broadcasts_are_told_apart(spark: SparkSession, lines: Path, attempts: Attempts, tables: str) -> None:
    """Of two tables with the same columns, each belongs to its join."""
    databases = [Database(spark), Database(spark)]
    databases[1].add(3)

    def query() -> DataFrame:
        one, other = (rates(spark, database) for database in databases)
        joined = read(spark, lines).join(F.broadcast(one), "id")
        other = other.select(F.col("id").alias("same"), F.col("rate").alias("others"))
        return sums(joined.join(F.broadcast(other), joined.id == other.same, "left").where("others > 10"))

    kept, back = retried(spark, attempts, query, databases.reverse if tables == "swapped" else None)
    assert kept == ["shuffle(rate)"]
    assert ("shuffle(rate)" in back) is (tables == "as before")


OTHERWISE: dict[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    "by the tasks": lambda df, table: table.groupBy("rate").count(),
    "in a subquery": lambda df, table: df.where(f"id <= (SELECT max(id) FROM {_view(table)})").groupBy("id").count(),
}


def _view(table: DataFrame) -> str:
    table.createOrReplaceTempView("rates_of_now")
    return "rates_of_now"


@pytest.mark.parametrize("how", OTHERWISE)
def test_what_reads_such_a_table_otherwise_is_not_kept(
    spark: SparkSession, lines: Path, attempts: Attempts, how: str
) -> None:
    """Nothing tells whether a retry would read the same there."""
    database = Database(spark)
    with auto_attempt(attempts, spark) as first:
        df = OTHERWISE[how](read(spark, lines), rates(spark, database))
        df.collect()
        kept = first.keep(df)
        assert [name for name in kept if name != "shuffle"] == []
        assert "has no version to compare" in first.skipped()
