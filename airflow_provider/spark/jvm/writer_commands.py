"""Make the command that a JVM writer runs, as the writer makes it, so that its plan can be seen before it runs.

``DataFrameWriter`` has methods for this since Spark 4.1 (``saveCommand``, ``insertIntoCommand``). Before that, the
command of a write to files is made as its ``saveToV1Source`` makes it; other writes run as they are. ``saveAsTable``
plans its rows only while it runs. There, the rows get their physical plan in advance, and Spark finds it behind a
``LogicalQueryStage``, as adaptive execution finds its own stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from airflow_provider.spark.jvm.exchanges import ADAPTIVE, kind
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.reflection import field_of, private_field, private_method
from airflow_provider.spark.jvm.relation import dataset
from airflow_provider.spark.jvm.scala import companion, has_member, items, to_seq

_FORMATS = {"parquet", "json", "csv", "orc", "text", "xml"}
_TO_TABLE, _AS_TABLE = "insertInto", "saveAsTable"
_SESSION_CATALOG = "spark.sql.catalog.spark_catalog"


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
            if name == _AS_TABLE:
                return self._as_table(args)
            if name in ("save", _TO_TABLE) or name in _FORMATS:
                return self._write(name, args)
            result = getattr(self._writer, name)(*args)
            return Writing(result, self._spark, self._fill) if _is_writer(result) else result

        return call

    def _write(self, name: str, args: tuple[Any, ...]) -> None:
        execution = self._execution(name, args)
        if execution is not None and self._fill(execution):
            run_command(self._spark, execution)
        else:
            getattr(self._writer, name)(*args)

    def _as_table(self, args: tuple[Any, ...]) -> None:
        rows = self._planned_rows(str(args[0]))
        if rows is None:
            self._writer.saveAsTable(*args)
            return
        field = field_of(self._writer, "df")
        own = field.get(self._writer)
        field.set(self._writer, rows)
        try:
            self._writer.saveAsTable(*args)
        finally:
            field.set(self._writer, own)

    def _planned_rows(self, table: str) -> Any:
        """Return the writer's rows as a JVM DataFrame whose plan is filled; ``None`` if nothing was, or if Spark must
        see where they come from: it refuses to overwrite a table that they are read from.
        """
        plan = private_field(self._writer, "df").queryExecution().analyzed()
        own_catalog = self._spark.conf.get(_SESSION_CATALOG, "builtin") == "builtin" and table.count(".") < 2
        of_files = str(private_field(self._writer, "source")).lower() in _FORMATS
        if not own_catalog or not of_files or table.rsplit(".", 1)[-1].strip("`").lower() in _tables_read(plan):
            return None
        mode = str(private_field(self._writer, "mode" if self._spark.version < "4" else "curmode"))
        if mode in ("Ignore", "ErrorIfExists") and self._spark._jsparkSession.catalog().tableExists(table):
            return None
        execution = dataset(self._spark, plan)._jdf.queryExecution()
        if kind(execution.executedPlan()) != ADAPTIVE or not self._fits(execution) or not self._fill(execution):
            return None
        stage = jvm_of(self._spark).org.apache.spark.sql.execution.adaptive.LogicalQueryStage
        return dataset(self._spark, stage(execution.analyzed(), execution.executedPlan()))._jdf

    def _fits(self, execution: Any) -> bool:
        """Whether a command finds its columns in the plan of its rows, and leaves these in their order.

        Where such a plan tells no order, Spark sorts rows by folders and buckets, which may change that within files.
        """
        outputs = (execution.analyzed().output(), execution.executedPlan().output())
        named, planned = ([int(column.exprId().id()) for column in items(output)] for output in outputs)
        told = ("partitioningColumns", "numBuckets")
        sorts = any(private_field(self._writer, name).isDefined() for name in told)
        return named == planned and not (sorts and not execution.optimizedPlan().outputOrdering().isEmpty())

    def _execution(self, name: str, args: tuple[Any, ...]) -> Any:
        """Return the ``QueryExecution`` of the command; ``None`` if there is none, or Spark refuses it."""
        jvm = jvm_of(self._spark)
        writer = self._writer.format(name) if name in _FORMATS else self._writer
        try:
            if not has_member(self._writer, "saveCommand"):
                command = None if name == _TO_TABLE else self._to_files(writer, *args)
            elif name == _TO_TABLE:
                command = writer.insertIntoCommand(*args)
            else:
                command = writer.saveCommand(jvm.scala.Some(args[0]) if args else jvm.scala.Option.empty())
        except Exception:  # noqa: BLE001 - Spark says what is wrong when the writer runs
            return None
        return command_execution(self._spark, command) if command is not None else None

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
            private_field(writer, "mode" if self._spark.version < "4" else "curmode"),
            private_field(writer, "df").logicalPlan(),
        )


def _tables_read(plan: Any) -> set[str]:
    """Return the names of all tables of a catalog that a plan reads, without their databases, in lower case."""
    names = set()
    for leaf in (leaf for each in (plan, *items(plan.subqueriesAll())) for leaf in items(each.collectLeaves())):
        if kind(leaf) == "LogicalRelation" and leaf.catalogTable().isDefined():
            names.add(str(leaf.catalogTable().get().identifier().table()))
        elif kind(leaf) == "HiveTableRelation":
            names.add(str(leaf.tableMeta().identifier().table()))
        elif kind(leaf) == "DataSourceV2Relation":
            names.add(str(leaf.name()).rsplit(".", 1)[-1])
    return {name.lower() for name in names}


def _is_writer(result: Any) -> bool:
    return hasattr(result, "getClass") and str(result.getClass().getSimpleName()) == "DataFrameWriter"


def command_execution(spark: Any, command: Any) -> Any:
    """Return the ``QueryExecution`` with which Spark runs a command, not run yet; ``None`` if Spark refuses it."""
    modes = companion(jvm_of(spark).org.apache.spark.sql.execution, "CommandExecutionMode")
    try:
        execution = spark._jsparkSession.sessionState().executePlan(command, modes.NON_ROOT())
        execution.executedPlan()
    except Exception:  # noqa: BLE001 - Spark says what is wrong when the command runs
        return None
    return execution


def run_command(spark: Any, execution: Any) -> None:
    """Run a command inside an execution of its own, as Spark's writers do."""
    jvm = jvm_of(spark)
    sql = jvm.org.apache.spark.sql
    schema = execution.analyzed().schema()
    if spark.version < "4":
        encoder = companion(sql.catalyst.encoders, "ExpressionEncoder").apply(schema)
        frame = sql.Dataset(execution, encoder)
    else:
        frame = sql.classic.Dataset(execution, sql.catalyst.encoders.RowEncoder.encoderFor(schema))
    frame.collectAsList()


def no_rows(spark: Any) -> Any:
    """Return what ``spark.sql`` returns for a command that writes: a DataFrame without columns and rows."""
    from pyspark.sql.types import StructType

    return spark.createDataFrame([], StructType())
