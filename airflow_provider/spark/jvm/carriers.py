"""Convert a frame's columns to their carrier types before they are stored, and back after they are read.

``PreciseTimestampConversion`` is Spark's expression that gives its input's bits another type and does nothing else;
Spark uses it for time windows, hence its narrow name. Only a calendar interval and its text have different bits: for
them a ``Cast`` is used. Both work at any depth.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.queries import schema_of
from airflow_provider.spark.jvm.relation import alias, dataset
from airflow_provider.spark.jvm.scala import items, to_seq
from airflow_provider.spark.types import TypeJson, bare, carrier, with_nulls

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def to_carriers(df: DataFrame) -> DataFrame:
    """Return *df* with columns c0, c1, … of carrier types; one column of NULLs if it has none.

    :raises UnstorableType: a column has no carrier
    """
    types = [field["type"] for field in schema_of(df)["fields"]]
    if not types:
        return df.selectExpr("CAST(NULL AS BOOLEAN) AS c0")
    renamed = df.toDF(*(f"c{i}" for i in range(len(types))))
    build = _Builder(df)
    given = list(items(renamed._jdf.queryExecution().analyzed().output()))
    columns = [build.stored(column, data_type) for column, data_type in zip(given, types, strict=True)]
    return build.project(renamed, given, columns)


def from_carriers(source: DataFrame, df: DataFrame) -> DataFrame:
    """Return *source*, which has the columns of :func:`to_carriers`, with the types of *df* again."""
    types = [field["type"] for field in schema_of(df)["fields"]]
    if not types:
        return source.select()
    build = _Builder(df)
    given = list(items(source._jdf.queryExecution().analyzed().output()))
    wanted = items(df._jdf.queryExecution().analyzed().output())
    columns = [
        build.restored(column, data_type, original)
        for column, data_type, original in zip(given, types, wanted, strict=True)
    ]
    return build.project(source, given, columns)


class _Builder:
    """Builds expressions in the session of a frame."""

    def __init__(self, df: DataFrame) -> None:
        spark: Any = df.sparkSession
        self._spark = spark
        self._jvm = jvm_of(spark)
        self._expressions: Any = self._jvm.org.apache.spark.sql.catalyst.expressions
        self._types: dict[str, Any] = {}

    def stored(self, column: Any, data_type: TypeJson) -> Any:
        plain, stored_as = bare(data_type), carrier(data_type)
        expression = self._retyped(column, column.dataType(), self._type(plain))
        if stored_as != plain:
            expression = self._cast(expression, self._type(stored_as))
        return expression

    def restored(self, column: Any, data_type: TypeJson, original: Any) -> Any:
        plain, stored_as = bare(data_type), carrier(data_type)
        if stored_as == plain:
            return self._retyped(column, column.dataType(), original.dataType())
        loose = self._type(with_nulls(plain))
        expression = self._retyped(self._cast(column, loose), loose, original.dataType())
        if original.nullable():
            return expression
        path = to_seq(self._jvm, [f"column {original.name()}"])
        return self._expressions.objects.AssertNotNull(expression, path)

    def project(self, df: DataFrame, given: list[Any], columns: list[Any]) -> DataFrame:
        """Return *df* with *columns* under the names of those *given*; *df* itself if they are the same."""
        if all(column is before for column, before in zip(columns, given, strict=True)):
            return df
        named = [
            column if column is before else alias(self._jvm, column, before.name())
            for column, before in zip(columns, given, strict=True)
        ]
        plan = df._jdf.queryExecution().analyzed()
        logical = self._jvm.org.apache.spark.sql.catalyst.plans.logical
        return dataset(self._spark, logical.Project(to_seq(self._jvm, named), plan))

    def _type(self, data_type: TypeJson) -> Any:
        text = json.dumps(data_type)
        if text not in self._types:
            self._types[text] = self._jvm.org.apache.spark.sql.types.DataType.fromJson(text)
        return self._types[text]

    def _retyped(self, expression: Any, before: Any, after: Any) -> Any:
        if before.equals(after):
            return expression
        return self._expressions.PreciseTimestampConversion(expression, before, after)

    def _cast(self, expression: Any, data_type: Any) -> Any:
        legacy = self._expressions.EvalMode.LEGACY()  # whatever the session's ANSI mode: no cast here can fail
        return self._expressions.Cast(expression, data_type, self._jvm.scala.Option.empty(), legacy)
