"""Task functions as a DAG's file has them: each stands by itself, though the file imports for others."""

# mypy: ignore-errors
from __future__ import annotations

import json
from typing import Any


def totals(spark: Any, source: str, *, buckets: int = 6, ds: str | None = None) -> dict[str, Any]:
    """Two vertices with a function of Python between them; returns plain values."""
    from pyspark.sql import functions as F

    from airflow_provider.spark import checkpoint

    @F.udf("long")
    def doubled(value):
        return value * 2

    orders = spark.read.parquet(source).repartition(buckets, "customer")
    summed = orders.groupBy("customer").agg(F.sum(doubled("amount")).alias("amount"))
    kept = checkpoint(summed.repartition(buckets, "customer"), "totals")
    row = kept.agg(F.count("*"), F.sum("amount")).head()
    return {"customers": row[0], "amount": row[1], "day": ds, "text": 'it\'s "quoted"\n'}


def unplain(spark: Any) -> object:
    """Returns what no XCom takes."""
    return spark


def nothing_new(spark: Any) -> None:
    """Finds that there is nothing to do."""
    from airflow.sdk.exceptions import AirflowSkipException

    if spark.range(0).isEmpty():
        raise AirflowSkipException("nothing new: today")


def dumped(value: Any) -> str:
    """Uses a module that its file imports."""
    return json.dumps(value)
