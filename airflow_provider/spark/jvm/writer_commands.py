"""Make the command that a JVM writer runs, as the writer makes it, so that its plan can be seen before it runs.

``DataFrameWriter`` has methods for this since Spark 4.1 (``saveCommand``, ``insertIntoCommand``). Before that, the
command of a write to files is made as its ``saveToV1Source`` makes it, and that of ``insertInto`` from an ``INSERT`` of
SQL. What creates a table, or writes to a database, plans its rows only while it runs. There, these get their plan in
advance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from airflow_provider.spark.jvm.commands import command_execution, run_command, unless_unable
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.output import FILE_FORMATS
from airflow_provider.spark.jvm.planned_rows import NewTable, planned_rows
from airflow_provider.spark.jvm.reflection import private_field, private_method, with_field
from airflow_provider.spark.jvm.relation import dataset
from airflow_provider.spark.jvm.scala import has_member, to_seq
from airflow_provider.spark.jvm.sql_commands import insertion

_TO_TABLE, _AS_TABLE, _JDBC = "insertInto", "saveAsTable", "jdbc"
_ENDS = FILE_FORMATS | {"save", _TO_TABLE, _AS_TABLE, _JDBC}
_DIVISIONS = ("partitioningColumns", "numBuckets")


@contextmanager
def written_through(writer: Any, fill: Callable[[Any], bool]) -> Iterator[None]:
    """Let *fill* see the command of a PySpark writer, or its rows, before it runs, see :class:`Writing`."""
    writer._jwrite = Writing(writer._jwrite, writer._df.sparkSession, fill)
    try:
        yield
    finally:
        writer._jwrite = writer._jwrite.unwrapped()


def write_other_rows(writer: Any, frame: Any, made: Iterable[tuple[str, Sequence[Any], Mapping[str, Any]]]) -> None:
    """Make a PySpark writer write the rows of another frame.

    :param made: how it was set up: names of methods, arguments, named arguments
    """
    fresh = type(writer)(frame)
    for setting, given, named in made:
        getattr(fresh, setting)(*given, **named)
    writer._df, writer._jwrite = frame, fresh._jwrite


class Writing:
    """Replaces a JVM writer while PySpark tells it what to write.

    :param writer: a ``DataFrameWriter`` of the JVM
    :param spark: the session
    :param fill: given the ``QueryExecution`` of a command, or of the rows of ``saveAsTable``, fills its plan; returns
        whether it has filled anything
    """

    def __init__(self, writer: Any, spark: Any, fill: Callable[[Any], bool]) -> None:
        self._writer = writer
        self._spark = spark
        self._fill = fill

    def unwrapped(self) -> Any:
        """Return the writer."""
        return self._writer

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return getattr(self._writer, name)

        def call(*args: Any) -> Any:
            if name in _ENDS:
                return self._write(name, args)
            result = getattr(self._writer, name)(*args)
            return Writing(result, self._spark, self._fill) if _is_writer(result) else result

        return call

    def _write(self, name: str, args: tuple[Any, ...]) -> None:
        execution = None if name in (_AS_TABLE, _JDBC) else self._execution(name, args)
        if execution is not None and self._fill(execution):
            run_command(self._spark, execution)
            return
        rows = unless_unable(lambda: self._planned_rows(name, args)) if name in ("save", _AS_TABLE, _JDBC) else None
        if rows is None:
            getattr(self._writer, name)(*args)
            return
        with with_field(self._writer, "df", dataset(self._spark, rows)._jdf):
            getattr(self._writer, name)(*args)

    def _planned_rows(self, name: str, args: tuple[Any, ...]) -> Any:
        table = NewTable(
            str(args[0]) if name == _AS_TABLE else "",
            _JDBC if name == _JDBC else str(private_field(self._writer, "source")).lower(),
            replaces=str(self._mode) not in ("Ignore", "ErrorIfExists"),
            divided=any(private_field(self._writer, each).isDefined() for each in _DIVISIONS),
        )
        rows = private_field(self._writer, "df").queryExecution().analyzed()
        return planned_rows(self._spark, rows, table, self._fill)

    @property
    def _mode(self) -> Any:
        return private_field(self._writer, "mode" if self._spark.version < "4" else "curmode")

    def _execution(self, name: str, args: tuple[Any, ...]) -> Any:
        """Return the ``QueryExecution`` of the command; ``None`` if there is none, or Spark refuses it."""
        jvm = jvm_of(self._spark)
        writer = self._writer.format(name) if name in FILE_FORMATS else self._writer

        def made() -> Any:
            if not has_member(self._writer, "saveCommand"):
                return self._insertion(*args) if name == _TO_TABLE else self._to_files(writer, *args)
            if name == _TO_TABLE:
                return writer.insertIntoCommand(*args)
            return writer.saveCommand(jvm.scala.Some(args[0]) if args else jvm.scala.Option.empty())

        return command_execution(self._spark, made)

    def _insertion(self, table: str) -> Any:
        """Return the command of Spark 3.5 and 4.0 that inserts into a table; ``None`` if the writer has another one."""
        if any(private_field(self._writer, each).isDefined() for each in _DIVISIONS):
            return None  # Spark refuses it
        if private_field(self._writer, "extraOptions").nonEmpty():
            return None
        command = insertion(self._spark, table, overwrite=str(self._mode) == "Overwrite")
        return command.withNewChildren(to_seq(jvm_of(self._spark), [private_field(self._writer, "df").logicalPlan()]))

    def _to_files(self, writer: Any, path: str | None = None) -> Any:
        """Return the command of Spark 3.5 and 4.0 that writes files; ``None`` if the writer has another one."""
        jvm = jvm_of(self._spark)
        options = private_field(writer, "extraOptions")
        bucketed = (
            private_field(writer, "numBuckets").isDefined() or private_field(writer, "sortColumnNames").isDefined()
        )
        if bucketed or private_method(jvm, writer, "lookupV2Provider").isDefined():
            return None
        if path is not None and options.contains("path"):
            return None
        target = jvm.scala.Some(path) if path is not None else jvm.scala.Option.empty()
        columns, nothing = private_field(writer, "partitioningColumns"), jvm.scala.Option.empty()
        none = to_seq(jvm, [])
        source = jvm.org.apache.spark.sql.execution.datasources.DataSource(
            self._spark._jsparkSession,
            private_field(writer, "source"),
            none,
            nothing,
            columns.get() if columns.isDefined() else none,
            nothing,
            private_method(jvm, writer, "getOptionsWithPath", target).originalMap(),
            nothing,
        )
        return source.planForWriting(
            self._mode,
            private_field(writer, "df").logicalPlan(),
        )


def _is_writer(result: Any) -> bool:
    return hasattr(result, "getClass") and str(result.getClass().getSimpleName()) == "DataFrameWriter"
