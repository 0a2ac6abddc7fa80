"""What ``df.writeTo`` and ``df.mergeInto`` run, so that its plan can be seen, or made, before it runs.

The JVM's writers make their commands themselves since Spark 4.1. Before that, a command that writes to an existing
table is made as they make it. Commands that create a table get the plan of their rows in advance.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from airflow_provider.core.sql_text import quoted_name
from airflow_provider.spark.jvm.commands import command_execution, run_command, unless_unable
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.planned_rows import NewTable, planned_rows
from airflow_provider.spark.jvm.reflection import private_field, with_field
from airflow_provider.spark.jvm.scala import companion, has_member, items
from airflow_provider.spark.jvm.sql_commands import insertion

_CREATES = frozenset({"create", "replace", "createOrReplace"})
_KINDS = {
    "append": "AppendData",
    "overwrite": "OverwriteByExpression",
    "overwritePartitions": "OverwritePartitionsDynamic",
}


@contextmanager
def writing_table(
    writer: Any, name: str, condition: Any, fill: Callable[[Any], bool]
) -> Iterator[Callable[[], None] | None]:
    """Yield what runs a writer's command by a plan that is filled; ``None`` if its own method is to run: inside, that
    creates the table from rows whose plan is filled, if anything could be.

    :param writer: PySpark's ``DataFrameWriterV2`` or ``MergeIntoWriter``
    :param name: the method that the script calls
    :param condition: its argument: of the rows to overwrite
    :param fill: given the ``QueryExecution`` of a command, or of the rows of a new table, fills its plan; returns
        whether it has filled anything
    """
    spark, jvm_writer = writer._spark, writer._jwriter
    if name not in _CREATES:
        execution = command_execution(spark, lambda: _command(spark, jvm_writer, name, condition))
        yield functools.partial(run_command, spark, execution) if execution is not None and fill(execution) else None
        return
    rows = unless_unable(lambda: _planned(spark, jvm_writer, name, fill))
    if rows is None:
        yield None
        return
    with with_field(jvm_writer, "logicalPlan", rows):
        yield None


def _command(spark: Any, writer: Any, name: str, condition: Any) -> Any:
    """Return the command that writes rows to an existing table; ``None`` if this version of Spark does not tell it.

    :param writer: the JVM's
    """
    conditions = [condition._jc] if name == "overwrite" else []
    if has_member(writer, f"{name}Command"):
        return getattr(writer, f"{name}Command")(*conditions)
    return _made(spark, writer, name, conditions) if name in _KINDS else None


def _made(spark: Any, writer: Any, name: str, conditions: list[Any]) -> Any:
    """Return the command as Spark 3.5 and 4.0 make it."""
    jvm = jvm_of(spark)
    table = quoted_name(items(private_field(writer, "tableName")))
    relation = insertion(spark, table, overwrite=name != "append").table()
    kinds = jvm.org.apache.spark.sql.catalyst.plans.logical
    options = companion(jvm.scala.collection.immutable, "Map").apply(private_field(writer, "options").toSeq())
    found = [spark._jsparkSession.expression(one) if spark.version >= "4" else one.expr() for one in conditions]
    return companion(kinds, _KINDS[name]).byName(relation, private_field(writer, "logicalPlan"), *found, options)


def _planned(spark: Any, writer: Any, name: str, fill: Callable[[Any], bool]) -> Any:
    provider = private_field(writer, "provider")
    divisions = ("partitioning", "clustering") if spark.version >= "4" else ("partitioning",)
    table = NewTable(
        quoted_name(items(private_field(writer, "tableName"))),
        str(provider.get()).lower() if provider.isDefined() else "",
        replaces=name != "create",
        divided=any(private_field(writer, each).isDefined() for each in divisions),
    )
    return planned_rows(spark, private_field(writer, "df").queryExecution().analyzed(), table, fill)
