"""See the actions of a script: what returns rows to the driver, and what writes them.

The functions of PySpark that start a job are wrapped while the script runs. Each is handed a DataFrame with recovery
points in its plan, and does what it does. ``take``, ``show``, ``first`` and their like read a few rows and are left
alone.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.auto.placing import kept, with_recovery_points
from airflow_provider.spark.auto.warm_up import warmed_up
from airflow_provider.spark.jvm.commands import WritingCommand, reads_table
from airflow_provider.spark.wrapping import classic_frame, put_in_place
from airflow_provider.spark.writers import WRITERS

if TYPE_CHECKING:
    from airflow_provider.spark.context import RecoveryContext

_RETURNING = ("collect", "toPandas", "toArrow", "toLocalIterator")
_KEEPING = ("checkpoint", "localCheckpoint")
_CONSUMING = ("foreach", "foreachPartition")
_CALLS = "_spark_recovery_calls"


class Actions:
    """Wraps the actions of PySpark.

    :param place: given a DataFrame and whether its action returns rows, returns the DataFrame to act on
    :param keep: given a DataFrame that the script keeps, returns one that reads it from the store, or ``None``
    """

    def __init__(self, place: Callable[..., Any], keep: Callable[[Any], Any]) -> None:
        self._place = place
        self._keep = keep
        self._inside = threading.local()

    def wrap(self, stack: ExitStack) -> None:
        """Put the wrappers in place until *stack* is closed."""
        from pyspark.sql import readwriter

        frame = classic_frame()
        for name in _RETURNING:
            self._action(stack, frame, name, returns_rows=True)
        for name in _CONSUMING:
            self._action(stack, frame, name, returns_rows=False)
        self._count(stack, frame)
        for name in _KEEPING:
            self._keeping(stack, frame, name)
        self._sql(stack)
        for class_name, (settings, writes) in WRITERS.items():
            writer = getattr(readwriter, class_name)
            self._creation(stack, writer)
            for name in settings:
                self._setting(stack, writer, name)
            for name in writes:
                self._write(stack, writer, name)

    def on(self, df: Any, *, returns_rows: bool) -> Any:
        """Return the DataFrame to act on in the place of *df*; the same one inside of another action."""
        if self._left_alone(df):
            return df
        with self.inside():
            return self._place(df, returns_rows=returns_rows)

    def _left_alone(self, df: Any) -> bool:
        """Whether an action on *df* belongs to another action, or to Spark Connect."""
        return getattr(self._inside, "action", False) or not hasattr(df, "_jdf")

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Leave alone the actions that this thread starts inside."""
        before = getattr(self._inside, "action", False)
        self._inside.action = True
        try:
            yield
        finally:
            self._inside.action = before

    def _replace(self, stack: ExitStack, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(owner, name, None)
        if original is not None:
            stack.callback(put_in_place(owner, name, functools.wraps(original)(make(original))))

    def _action(self, stack: ExitStack, frame: Any, name: str, *, returns_rows: bool) -> None:
        def make(original: Any) -> Any:
            def action(df: Any, *args: Any, **kwargs: Any) -> Any:
                df = self.on(df, returns_rows=returns_rows)
                with self.inside():
                    return original(df, *args, **kwargs)

            return action

        self._replace(stack, frame, name, make)

    def _count(self, stack: ExitStack, frame: Any) -> None:
        """``count()`` is an aggregate of its own, whose one row can be kept."""

        def make(original: Any) -> Any:
            def count(df: Any) -> Any:
                if self._left_alone(df):
                    return original(df)
                counted = df.groupBy().count()
                placed = self.on(counted, returns_rows=True)
                if placed is counted:
                    return original(df)
                with self.inside():
                    return int(placed.collect()[0][0])

            return count

        self._replace(stack, frame, "count", make)

    def _keeping(self, stack: ExitStack, frame: Any, name: str) -> None:
        """Spark's own checkpoints: what is stored stands in for them."""

        def make(original: Any) -> Any:
            def checkpoint(df: Any, *args: Any, **kwargs: Any) -> Any:
                if self._left_alone(df):
                    return original(df, *args, **kwargs)
                with self.inside():
                    stored = self._keep(df)
                    return original(df, *args, **kwargs) if stored is None else stored

            return checkpoint

        self._replace(stack, frame, name, make)

    def _sql(self, stack: ExitStack) -> None:
        """SQL commands that write the rows of a query run as soon as ``sql()`` is called."""
        from pyspark.sql import SparkSession

        def make(original: Any) -> Any:
            def sql(spark: Any, sqlQuery: str, *args: Any, **kwargs: Any) -> Any:  # noqa: N803 - PySpark's name
                plain = isinstance(sqlQuery, str) and not args and not kwargs and hasattr(spark, "_jsparkSession")
                command = WritingCommand.parse(spark, sqlQuery) if plain else None
                if command is not None:
                    query = _attempted(command.query)
                    if query is None or reads_table(query, command.table):
                        return original(spark, sqlQuery)
                    placed = self.on(query, returns_rows=False)
                    if placed is not query:
                        with self.inside():
                            return command.run(placed)
                return original(spark, sqlQuery, *args, **kwargs)

            return sql

        self._replace(stack, SparkSession, "sql", make)

    def _creation(self, stack: ExitStack, writer: Any) -> None:
        """Remember how a writer was made and set up, because it cannot be led to another DataFrame afterwards."""

        def make(original: Any) -> Any:
            def create(self: Any, df: Any, *args: Any) -> None:
                original(self, df, *args)
                setattr(self, _CALLS, (df, args, []))

            return create

        self._replace(stack, writer, "__init__", make)

    def _setting(self, stack: ExitStack, writer: Any, name: str) -> None:
        def make(original: Any) -> Any:
            def setting(self: Any, *args: Any, **kwargs: Any) -> Any:
                calls = getattr(self, _CALLS, None)
                if calls is not None:
                    calls[2].append((original, args, kwargs))
                return original(self, *args, **kwargs)

            return setting

        self._replace(stack, writer, name, make)

    def _write(self, stack: ExitStack, writer: Any, name: str) -> None:
        actions = self

        def make(original: Any) -> Any:
            def write(self: Any, *args: Any, **kwargs: Any) -> Any:
                calls = getattr(self, _CALLS, None)
                if calls is not None:
                    df, created, made = calls
                    table = str(args[0] if args else kwargs.get("name", kwargs.get("tableName", "")))
                    own = name in ("insertInto", "saveAsTable") and reads_table(df, table)
                    placed = df if own else actions.on(df, returns_rows=False)
                    if placed is not df:
                        self = type(self)(placed, *created)
                        for setting, given, named in made:
                            setting(self, *given, **named)
                with actions.inside():
                    return original(self, *args, **kwargs)

            return write

        self._replace(stack, writer, name, make)


def _attempted(do: Callable[[], Any]) -> Any:
    """Return what *do* returns; ``None`` if Spark refuses it, as it will refuse the whole command."""
    try:
        return do()
    except Exception:  # noqa: BLE001 - whatever is wrong with the query, Spark says it when the command runs
        return None


@contextmanager
def recovering_actions(context: RecoveryContext) -> Iterator[None]:
    """Place recovery points in the actions of the script that runs inside, if the job's options say so."""
    options = context.master.request.options
    if not options.enabled or options.recovery_points != "auto":
        yield
        return
    with ExitStack() as stack:
        warmed_up(stack)
        Actions(functools.partial(with_recovery_points, context), functools.partial(kept, context)).wrap(stack)
        context.persisted.wrap(stack, classic_frame())
        yield
