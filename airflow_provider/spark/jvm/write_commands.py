"""The command that a writer of the JVM runs, made as the writer makes it, so that its plan can be seen before it runs.

``DataFrameWriter`` of Spark 4 tells its command (``saveCommand``, ``insertIntoCommand``, ``saveAsTableCommand``);
that of 3.5 does not, and writes there run as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_provider.spark.jvm.scala import companion, has_member

_FORMATS = {"parquet", "json", "csv", "orc", "text", "xml"}
_COMMANDS = {"insertInto": "insertIntoCommand", "saveAsTable": "saveAsTableCommand"}


class Writing:
    """Stands for a writer of the JVM while PySpark hands it what to write.

    :param writer: a ``DataFrameWriter`` of the JVM
    :param spark: the session
    :param fill: given the ``QueryExecution`` of a command, fills its plan; whether it has filled anything
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
            if name == "save" or name in _FORMATS or name in _COMMANDS:
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

    def _execution(self, name: str, args: tuple[Any, ...]) -> Any:
        """Return the ``QueryExecution`` of the command; ``None`` if there is none, or Spark refuses it."""
        if not has_member(self._writer, "saveCommand"):
            return None
        jvm = self._spark._jvm
        writer = self._writer.format(name) if name in _FORMATS else self._writer
        try:
            if name in _COMMANDS:
                command = getattr(writer, _COMMANDS[name])(*args)
            else:
                command = writer.saveCommand(jvm.scala.Some(args[0]) if args else jvm.scala.Option.empty())
        except Exception:  # noqa: BLE001 - Spark says what is wrong when the writer runs
            return None
        return command_execution(self._spark, command)


def _is_writer(result: Any) -> bool:
    return hasattr(result, "getClass") and str(result.getClass().getSimpleName()) == "DataFrameWriter"


def command_execution(spark: Any, command: Any) -> Any:
    """Return the ``QueryExecution`` with which Spark runs a command, not run yet; ``None`` if Spark refuses it."""
    modes = companion(spark._jvm.org.apache.spark.sql.execution, "CommandExecutionMode")
    try:
        execution = spark._jsparkSession.sessionState().executePlan(command, modes.NON_ROOT())
        execution.executedPlan()
    except Exception:  # noqa: BLE001 - Spark says what is wrong when the command runs
        return None
    return execution


def run_command(spark: Any, execution: Any) -> None:
    """Run a command inside an execution of its own, as Spark's writers do."""
    jvm = spark._jvm
    sql = jvm.org.apache.spark.sql
    schema = execution.analyzed().schema()
    if spark.version < "4":
        encoder = companion(sql.catalyst.encoders, "ExpressionEncoder").apply(schema)
        frame = sql.Dataset(execution, encoder)
    else:
        frame = sql.classic.Dataset(execution, sql.catalyst.encoders.RowEncoder.encoderFor(schema))
    frame.collectAsList()
