"""Every way of writing asks first whether this attempt owns the job; reading asks nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider.core.errors import OwnershipUnconfirmed
from airflow_provider.spark.interception import intercepted
from airflow_provider.spark.sinks.fence import confirmed
from airflow_provider.spark.sinks.once import SinksOnce
from airflow_provider.spark.sinks.take_back import OutputAttempt
from tests.spark.attempts import Attempts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def refuse() -> None:
    raise OwnershipUnconfirmed("not ours")


@contextmanager
def table(spark: SparkSession, folder: Path) -> Iterator[None]:
    spark.sql(f"CREATE TABLE guarded (id BIGINT) USING parquet LOCATION 'file:{folder}/guarded'")
    try:
        yield
    finally:
        spark.sql("DROP TABLE guarded")


WRITES: list[Callable[[SparkSession, str], object]] = [
    lambda spark, path: spark.range(3).write.parquet(path),
    lambda spark, path: spark.range(3).write.insertInto("guarded"),
    lambda spark, path: spark.range(3).writeTo("guarded").append(),
    lambda spark, path: spark.sparkContext.parallelize(["a"], 1).saveAsTextFile(path),
    lambda spark, path: spark.sql("INSERT INTO guarded VALUES (1)"),
    lambda spark, path: spark.sql("INSERT INTO guarded VALUES (:n)", args={"n": 1}),
    lambda spark, path: spark.sql("INSERT INTO guarded SELECT * FROM {rows}", rows=spark.range(3)),
    lambda spark, path: spark.sql("WITH a AS (SELECT 1L AS id) INSERT INTO guarded SELECT * FROM a"),
    lambda spark, path: spark.sql(f"CREATE TABLE made USING parquet LOCATION 'file:{path}' AS SELECT 1 AS id"),
    lambda spark, path: spark.sql(f"INSERT OVERWRITE DIRECTORY '{path}' USING parquet SELECT 1"),
]


@pytest.mark.parametrize("write", WRITES)
def test_a_write_that_is_not_confirmed_does_not_happen(
    spark: SparkSession, tmp_path: Path, write: Callable[[SparkSession, str], object]
) -> None:
    """Of the DataFrame API and of SQL, with parameters and without."""
    with table(spark, tmp_path):
        with intercepted(confirmed(refuse)), pytest.raises(OwnershipUnconfirmed):
            write(spark, str(tmp_path / "out"))
        assert spark.table("guarded").count() == 0
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("allowed", [0, 1])
def test_what_is_left_of_a_statement_is_confirmed(
    spark: SparkSession, attempts: Attempts, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    """Of a statement of three inserts one is written already: each of the others asks right before it runs."""
    names = ("one_of_three", "two_of_three", "three_of_three")
    text = f"FROM range(7) {' '.join(f'INSERT INTO {name} SELECT id' for name in names)}"
    asked = 0

    def check_now() -> None:
        nonlocal asked
        asked += 1
        if asked > allowed:
            refuse()

    for name in names:
        spark.sql(f"CREATE TABLE {name} (id BIGINT) USING parquet")
    try:
        with attempts.attempt() as context, intercepted(SinksOnce(context, OutputAttempt(context.master)).stages()):
            spark.sql(text)
        for name in names[1:]:
            spark.sql(f"TRUNCATE TABLE {name}")
        with attempts.attempt() as context:
            monkeypatch.setattr(context.master, "check_now", check_now)
            sinks = SinksOnce(context, OutputAttempt(context.master))
            with intercepted(sinks.stages(), confirmed(check_now)), pytest.raises(OwnershipUnconfirmed):
                spark.sql(text)
        assert [spark.table(name).count() for name in names] == [7, 7 * allowed, 0]
    finally:
        for name in names:
            spark.sql(f"DROP TABLE {name}")


def test_reading_asks_nobody(spark: SparkSession, tmp_path: Path) -> None:
    """Queries, views and settings."""
    with table(spark, tmp_path), intercepted(confirmed(refuse)):
        assert spark.sql("SELECT count(*) FROM guarded").collect()[0][0] == 0
        spark.sql("CREATE OR REPLACE TEMPORARY VIEW seen AS SELECT * FROM guarded")
        spark.sql("SET spark.sql.shuffle.partitions")
        assert spark.sql("SELECT {n} AS n", n=5).first() == (5,)
