"""The actions of a script into whose plans a retry puts what survived.

Actions that run a DataFrame's own query (``collect`` and its like, ``rdd``) only get their plan filled first. ``count``
and the writes of ``df.write`` make a query of their own inside the JVM; it is made here as Spark makes it, filled, and
run. What makes its query where nobody can see it (``show``, ``isEmpty``, MLlib) runs as it is.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.jvm.commands import WritingCommand
from airflow_provider.spark.jvm.write_commands import Writing, command_execution, run_command
from airflow_provider.spark.wrapping import classic_frame, put_in_place
from airflow_provider.spark.writers import WRITERS

if TYPE_CHECKING:
    from airflow_provider.spark.auto.restoring import Restorer
    from airflow_provider.spark.auto.watching import Watcher

_OWN_QUERY = ("collect", "_collect_as_arrow", "toLocalIterator", "tail")
"""Methods of a DataFrame that run its own ``QueryExecution``; all that return rows come to one of them."""


@contextmanager
def restoring_actions(restorer: Restorer) -> Iterator[None]:
    """Let the actions inside begin with what survived."""
    from pyspark.sql import SparkSession

    frame = classic_frame()
    with ExitStack() as stack:
        for name in _OWN_QUERY:
            stack.callback(put_in_place(frame, name, _own_query(getattr(frame, name), restorer)))
        stack.callback(
            put_in_place(
                frame,
                "rdd",
                _rdd(frame.__dict__["rdd"], lambda df: restorer.before(df.sparkSession, df._jdf.queryExecution())),
            )
        )
        stack.callback(put_in_place(frame, "count", _count(frame.count, restorer)))
        stack.callback(put_in_place(SparkSession, "sql", _sql(SparkSession.sql, restorer)))
        _writers(stack, restorer)
        yield


@contextmanager
def noting_rdds(watcher: Watcher) -> Iterator[None]:
    """Let *watcher* see the queries of frames that become RDDs inside."""
    frame = classic_frame()

    def note(df: Any) -> None:
        application = watcher.application()
        if application is not None:
            with suppress(Exception):  # the frame itself says what is wrong with it
                execution = df._jdf.queryExecution()
                execution.executedPlan()  # what follows asks for it first thing, in this thread
                application.note(execution)

    restore = put_in_place(frame, "rdd", _rdd(frame.__dict__["rdd"], note))
    try:
        yield
    finally:
        restore()


def _own_query(original: Any, restorer: Restorer) -> Any:
    @functools.wraps(original)
    def action(df: Any, *args: Any, **kwargs: Any) -> Any:
        restorer.before(df.sparkSession, df._jdf.queryExecution())
        return original(df, *args, **kwargs)

    return action


def _rdd(original: Any, first: Callable[[Any], Any]) -> property:
    """Do something *first* when a frame becomes an RDD."""

    def rdd(df: Any) -> Any:
        first(df)
        return original.__get__(df, type(df))

    return property(rdd)


def _count(original: Any, restorer: Restorer) -> Any:
    """``count()`` runs an aggregate of its own; it is the one that ``groupBy().count()`` makes."""

    @functools.wraps(original)
    def count(df: Any) -> int:
        counted = df.groupBy().count()
        if not restorer.before(df.sparkSession, counted._jdf.queryExecution()):
            return int(original(df))
        return int(counted.collect()[0][0])

    return count


def _sql(original: Any, restorer: Restorer) -> Any:
    """SQL that writes the rows of a query runs as soon as ``sql()`` is called."""

    @functools.wraps(original)
    def sql(spark: Any, sqlQuery: str, *args: Any, **kwargs: Any) -> Any:  # noqa: N803 - PySpark's name
        plain = isinstance(sqlQuery, str) and not args and not kwargs and hasattr(spark, "_jsparkSession")
        command = WritingCommand.parse(spark, sqlQuery) if plain else None
        execution = command_execution(spark, command.statement) if command is not None else None
        if execution is None or not restorer.before(spark, execution):
            return original(spark, sqlQuery, *args, **kwargs)
        from pyspark.sql.types import StructType

        restorer.confirm_ownership()
        run_command(spark, execution)
        return spark.createDataFrame([], StructType())

    return sql


def _writers(stack: ExitStack, restorer: Restorer) -> None:
    from pyspark.sql.readwriter import DataFrameWriter

    for name in WRITERS[DataFrameWriter.__name__].writes:
        original = DataFrameWriter.__dict__.get(name)
        if original is not None:
            stack.callback(put_in_place(DataFrameWriter, name, _write(original, restorer)))


_writing = threading.local()


def _before_write(restorer: Restorer, spark: Any, execution: Any) -> bool:
    """Put back what survived; that may take long, so that ownership is asked for once more."""
    restored = restorer.before(spark, execution)
    if restored:
        restorer.confirm_ownership()
    return restored


def _write(original: Any, restorer: Restorer) -> Callable[..., None]:
    """Let the JVM's writer make its command, and run it with a plan that begins with what survived."""

    @functools.wraps(original)
    def write(writer: Any, *args: Any, **kwargs: Any) -> None:
        if getattr(_writing, "inside", False):
            original(writer, *args, **kwargs)
            return
        spark = writer._df.sparkSession
        _writing.inside = True
        writer._jwrite = Writing(writer._jwrite, spark, functools.partial(_before_write, restorer, spark))
        try:
            original(writer, *args, **kwargs)
        finally:
            _writing.inside = False
            writer._jwrite = writer._jwrite.unwrapped()

    return write
