"""Columns of any type through a recovery point and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider.spark import checkpoint
from tests.spark.attempts import vertices

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rows_of(df: DataFrame) -> list[str]:
    """Every row as Spark holds it in memory, in hexadecimal words: no conversion that could hide a difference."""
    names = [f"n{i}" for i in range(len(df.columns))]
    plain = df.toDF(*names).selectExpr(*names, "1 AS one")  # so that Spark builds the rows anew in either case
    return sorted(row.toString() for row in plain._jdf.queryExecution().executedPlan().executeCollect())


def assert_kept(context: Any, df: DataFrame, name: str = "types") -> DataFrame:
    """Store *df*, read it back, and compare schemas in Python and in the JVM, and rows."""
    kept = checkpoint(df, name)
    assert [skip.reason for skip in context.master.graph.newest.skipped] == []
    assert vertices(context)[name].rows == df.count()
    assert kept.schema == df.schema
    assert kept._jdf.schema().equals(df._jdf.schema())
    assert rows_of(kept) == rows_of(df)
    return kept


@contextmanager
def conf(spark: SparkSession, **values: str) -> Iterator[None]:
    names = {name: f"spark.sql.{name.replace('__', '.')}" for name in values}
    before = {name: spark.conf.get(name, None) for name in names.values()}
    for name, value in values.items():
        spark.conf.set(names[name], value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
