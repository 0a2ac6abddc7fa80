"""The queries that ``show``, ``isEmpty`` and ``pivot`` make inside the JVM, made here to start from what survived."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.queries import analyzed
from airflow_provider.spark.jvm.relation import alias, dataset
from airflow_provider.spark.jvm.scala import items, to_seq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST = 2**31 - 16
"""Rows that Spark shows at the most (``ByteArrayMethods.MAX_ROUNDED_ARRAY_LENGTH`` - 1)."""


def rows_to_show(df: DataFrame, count: int) -> DataFrame:
    """Return the first rows as texts, one more than are shown, as ``Dataset.getRows`` makes them.

    :param count: how many ``show`` is asked for
    """
    spark: Any = df.sparkSession
    jvm, plan = jvm_of(spark), analyzed(df)
    catalyst, none = jvm.org.apache.spark.sql.catalyst, jvm.scala.Option.empty()
    texts = [
        alias(jvm, catalyst.expressions.ToPrettyString(column, none), column.name()) for column in items(plan.output())
    ]
    shown = dataset(spark, catalyst.plans.logical.Project(to_seq(jvm, texts), plan))
    return shown.limit(min(max(count, 0), _MOST) + 1)


def as_table(rows: DataFrame, count: int, width: int, vertical: bool) -> str:
    """Run the query of rows to show, and let Spark lay them out.

    :param rows: see :func:`rows_to_show`
    :param width: characters after which a cell is cut off; 0 for never
    """
    spark: Any = rows.sparkSession
    local = spark._jsparkSession.createDataFrame(rows._jdf.collectAsList(), rows._jdf.schema())
    return str(local.showString(count, width, vertical))


def any_row(df: DataFrame) -> DataFrame:
    """Return one row without columns, if there is any, as ``Dataset.isEmpty`` asks for it."""
    return df.select().limit(1)


def values_to_pivot(df: DataFrame, column: str) -> DataFrame | None:
    """Return the values of a column as ``GroupedData.pivot`` asks for them, one more than it allows; ``None`` if they
    would not come back to the JVM as they are.
    """
    types = {field.name: field.dataType.typeName() for field in df.schema}
    if types.get(column) not in _AS_THEY_ARE:
        return None
    return df.select(column).distinct().limit(most_to_pivot(df) + 1).sort(column)


def most_to_pivot(df: DataFrame) -> int:
    """Return how many values ``pivot`` allows."""
    return int(str(df.sparkSession.conf.get("spark.sql.pivotMaxValues")))


_AS_THEY_ARE = frozenset({"string", "boolean", "byte", "short", "integer", "long"})
