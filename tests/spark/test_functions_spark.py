"""Functions as they lie in real plans: whichever way PySpark ships them, each is what its code and values are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest

from airflow_provider.spark.calls import Kind
from airflow_provider.spark.identity.functions import FunctionIdentity, FunctionReader
from airflow_provider.spark.identity.notes import broadcasts
from airflow_provider.spark.interception import intercepted
from airflow_provider.spark.jvm.scala import items

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Identify = Callable[["DataFrame"], FunctionIdentity]


@pytest.fixture
def identify(spark: SparkSession) -> Iterator[Identify]:
    """Returns the identity of the one Python function in a DataFrame's plan."""
    known: dict[int, Any] = {}
    reader = FunctionReader(known)

    def one(df: DataFrame) -> FunctionIdentity:
        found = {str(function): function for function in _functions(df._jdf.queryExecution().analyzed())}
        (function,) = found.values()
        tag = spark._jvm.scala.reflect.ClassTag.Byte()  # type: ignore[union-attr]
        return reader.read(bytes(function.command().toArray(tag)))

    with intercepted({Kind.BROADCAST: broadcasts(lambda: known)}):
        yield one


def _functions(plan: Any) -> Iterator[Any]:
    pending = [*items(plan.expressions())]
    while pending:
        expression = pending.pop()
        if expression.getClass().getSimpleName() in ("PythonUDF", "PythonUDTF"):
            yield expression.func()
        pending += items(expression.children())
    for child in items(plan.children()):
        yield from _functions(child)


def udf(df: DataFrame, k: int) -> DataFrame:
    from pyspark.sql import functions as F

    return df.select(F.udf(lambda x: x + k, "long")("id"))


def arrow_udf(df: DataFrame, k: int) -> DataFrame:
    from pyspark.sql import functions as F

    return df.select(F.udf(lambda x: x + k, "long", useArrow=True)("id"))


def pandas_udf(df: DataFrame, k: int) -> DataFrame:
    from pyspark.sql import functions as F

    def f(x: pd.Series) -> pd.Series:
        return x + k

    return df.select(F.pandas_udf(f, "long")("id"))  # type: ignore[attr-defined]


def native_arrow_udf(df: DataFrame, k: int) -> DataFrame:
    from pyspark.sql import functions as F

    def f(x: pa.Array) -> pa.Array:
        return pa.compute.add(x, k)

    return df.select(F.arrow_udf(f, "long")("id"))  # type: ignore[attr-defined]


def map_in_pandas(df: DataFrame, k: int) -> DataFrame:
    return df.mapInPandas(lambda parts: (part + k for part in parts), "id long")


def map_in_arrow(df: DataFrame, k: int) -> DataFrame:
    return df.mapInArrow(lambda parts: (part for part in parts if part.num_rows > k), "id long")


def apply_in_pandas(df: DataFrame, k: int) -> DataFrame:
    return df.groupBy("id").applyInPandas(lambda part: part + k, "id long")


def cogrouped(df: DataFrame, k: int) -> DataFrame:
    other = df.selectExpr("id", "id AS v")
    return df.groupBy("id").cogroup(other.groupBy("id")).applyInPandas(lambda a, b: a + k + len(b), "id long")


def udtf(df: DataFrame, k: int) -> DataFrame:
    from pyspark.sql import functions as F

    class Repeated:
        times = k

        def eval(self, x: int) -> Iterator[tuple[int]]:
            for _ in range(self.times):
                yield (x,)

    return F.udtf(Repeated, returnType="y long")(F.lit(1))  # type: ignore[arg-type, return-value]


def large(df: DataFrame, k: int) -> DataFrame:
    from pyspark.sql import functions as F

    table = "x" * 2_000_000 + str(k)
    return df.select(F.udf(lambda _: len(table), "long")("id"))


def with_broadcast(df: DataFrame, k: int) -> DataFrame:
    from pyspark.sql import functions as F

    variable = df.sparkSession.sparkContext.broadcast({"a": k})
    return df.select(F.udf(lambda x: x + variable.value["a"], "long")("id"))


@pytest.mark.parametrize(
    "build",
    [
        udf,
        arrow_udf,
        pandas_udf,
        native_arrow_udf,
        map_in_pandas,
        map_in_arrow,
        apply_in_pandas,
        cogrouped,
        udtf,
        large,
        with_broadcast,
    ],
)
def test_functions_in_plans_are_told_apart(
    spark: SparkSession, identify: Identify, build: Callable[[DataFrame, int], DataFrame]
) -> None:
    """However a function came into a plan, it has an identity, always the same; another value makes another one."""
    df = spark.range(4)
    one, again, other = identify(build(df, 1)), identify(build(df, 1)), identify(build(df, 2))
    assert one.opaque == other.opaque == ()
    assert one == again
    assert one.digest != other.digest


def test_a_destroyed_broadcast_variable_leaves_no_identity(spark: SparkSession, identify: Identify) -> None:
    """A function whose broadcast variable is gone is opaque; nothing fails."""
    from pyspark.sql import functions as F

    variable = spark.sparkContext.broadcast([1])
    df = spark.range(1).select(F.udf(lambda x: variable.value[x], "long")("id"))
    assert identify(df).opaque == ()
    other = spark.sparkContext.broadcast([2])
    gone = spark.range(1).select(F.udf(lambda x: other.value[x], "long")("id"))
    gone._jdf.queryExecution().analyzed()
    other.destroy()
    assert "broadcast variable" in identify(gone).opaque[0]


def test_functions_run_as_before_after_they_were_read(spark: SparkSession, identify: Identify) -> None:
    """Reading a command changes nothing of what Spark computes with it."""
    df = spark.range(4)
    for build, expected in ((udf, [1, 2, 3, 4]), (with_broadcast, [1, 2, 3, 4]), (large, [2_000_001] * 4)):
        built = build(df, 1)
        identify(built)
        assert sorted(row[0] for row in built.collect()) == expected
