"""Before a job writes anything outside of its event store, make sure that it still owns itself.

A driver that was suspended, or cut off, for longer than its lease may wake up when a successor has taken over. It asks
its lease before each write of the DataFrame API and of SQL, which keeps it from writing the same output a second time.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

from airflow_provider.recovery.sql_text import may_write
from airflow_provider.spark.wrapping import put_in_place
from airflow_provider.spark.writers import RDD_BY_CONFIGURATION, RDD_TO_PATHS, WRITERS

_OTHERS = (
    ("pyspark.sql.merge", "MergeIntoWriter", ("merge",)),  # since Spark 4.0
    ("pyspark", "RDD", (*RDD_TO_PATHS, *RDD_BY_CONFIGURATION)),
)
"""Module, class, methods."""


@contextmanager
def guarded_sinks(check: Callable[[], None]) -> Iterator[None]:
    """Call *check* before each write inside: ``df.write``, ``df.writeTo``, SQL, merges, and RDDs that are saved."""
    from pyspark.sql import SparkSession, readwriter

    with ExitStack() as stack:
        for class_name, (_, writes) in WRITERS.items():
            writer = getattr(readwriter, class_name)
            for method in writes:
                original = writer.__dict__.get(method)
                if original is not None:
                    stack.callback(put_in_place(writer, method, _checked(original, check)))
        for module, class_name, methods in _OTHERS:
            writer = getattr(importlib.import_module(module), class_name) if find_spec(module) else None
            for method in methods if writer is not None else ():
                stack.callback(put_in_place(writer, method, _checked(getattr(writer, method), check)))
        stack.callback(put_in_place(SparkSession, "sql", _checked_sql(SparkSession.sql, check)))
        yield


def _checked(original: Any, check: Callable[[], None]) -> Any:
    @functools.wraps(original)
    def write(*args: Any, **kwargs: Any) -> Any:
        check()
        return original(*args, **kwargs)

    return write


def _checked_sql(original: Any, check: Callable[[], None]) -> Any:
    @functools.wraps(original)
    def sql(spark: Any, sqlQuery: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N803 - PySpark's name
        if may_write(str(sqlQuery)):
            check()
        return original(spark, sqlQuery, *args, **kwargs)

    return sql
