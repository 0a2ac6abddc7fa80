"""Run a command of Spark SQL by a plan that was made, and seen, before."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from airflow_provider.core.causes import one_line
from airflow_provider.core.errors import RecoveryError
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.scala import companion

log = logging.getLogger(__name__)
_T = TypeVar("_T")


def unless_unable(prepare: Callable[[], _T]) -> _T | None:
    """Return what a preparation of a command returns; ``None`` if it fails: then Spark runs the command as ever.

    :raises RecoveryError: the preparation does
    """
    try:
        return prepare()
    except RecoveryError:
        raise
    except Exception as error:  # noqa: BLE001 - if the command is wrong, Spark says so
        log.debug("A command is left to Spark: %s", one_line(error))
        return None


def command_execution(spark: Any, make: Callable[[], Any]) -> Any:
    """Return the ``QueryExecution`` with which Spark runs a command, not run yet; ``None`` if Spark refuses it.

    :param make: returns the command, ``None`` if there is none
    """

    def planned() -> Any:
        command = make()
        if command is None:
            return None
        modes = companion(jvm_of(spark).org.apache.spark.sql.execution, "CommandExecutionMode")
        execution = spark._jsparkSession.sessionState().executePlan(command, modes.NON_ROOT())
        execution.executedPlan()
        return execution

    return unless_unable(planned)


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
