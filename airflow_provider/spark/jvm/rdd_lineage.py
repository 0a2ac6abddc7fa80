"""What an RDD is made of, as far as that can be described: rows that the script has spread, and Python functions."""

from __future__ import annotations

from typing import Any

from airflow_provider.spark.jvm.reflection import private_field
from airflow_provider.spark.jvm.scala import companion, items

_OF_SPARK = ("MapPartitionsRDD", "UnionRDD")
"""What PySpark puts around the others: the schema, which the plan tells, and conversions."""


def lineage(spark: Any, rdd: Any) -> list[tuple[str, bytes]] | None:
    """Return the kind of each RDD from the top down, with its command or its rows; ``None`` if there is any other.

    :raises Exception: this Spark holds them elsewhere
    """
    jvm = spark._jvm
    pending, found = [rdd], list[tuple[str, bytes]]()
    while pending:
        each = pending.pop()
        kind = each.getClass().getSimpleName()
        if kind == "ParallelCollectionRDD":
            rows = jvm.org.apache.spark.util.Utils.serialize(private_field(each, "data"))
            found.append((kind, bytes(rows)))
        elif kind == "PythonRDD":
            command = private_field(each, "func").command()
            found.append((kind, bytes(command.toArray(companion(jvm.scala.reflect, "ClassTag").Byte()))))
        elif kind in _OF_SPARK:
            found.append((kind, b""))
        else:
            return None
        pending += [dependency.rdd() for dependency in items(each.dependencies())]
    return found
