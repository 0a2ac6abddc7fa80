"""Plan the rows of a command before it runs, where Spark itself plans them only in the middle of that: when it creates
a table, or writes to a database.

Spark finds their physical plan behind a ``LogicalQueryStage``, as adaptive execution finds its own stages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.jvm.exchanges import ADAPTIVE, kind
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.output import FILE_FORMATS, catalog_of
from airflow_provider.spark.jvm.relation import dataset
from airflow_provider.spark.jvm.scala import items

if TYPE_CHECKING:
    from collections.abc import Callable

_TAKES_ROWS = frozenset({"iceberg", "org.apache.iceberg.spark.source.icebergsource", "jdbc"})
"""Formats that leave the rows' plan to Spark wherever they write them, in lower case."""
_OWN_CATALOG = "org.apache.spark.sql.execution.datasources.v2.V2SessionCatalog"
_CATALOGS_OF_ICEBERG = frozenset(
    {"org.apache.iceberg.spark.SparkCatalog", "org.apache.iceberg.spark.SparkSessionCatalog"}
)


@dataclass(frozen=True)
class NewTable:
    """A table that a command creates.

    :ivar name: as the script writes it; empty if it writes no name
    :ivar provider: its format, in lower case; empty for Spark's default
    :ivar replaces: whether the command runs although there is such a table
    :ivar divided: whether it has partitions or buckets
    """

    name: str
    provider: str
    replaces: bool
    divided: bool


def planned_rows(spark: Any, rows: Any, table: NewTable, fill: Callable[[Any], bool]) -> Any:
    """Return rows as a logical plan whose physical plan is filled; ``None`` if nothing was, or if Spark, or the table's
    format, must see where they come from.

    :param rows: their logical plan, analyzed
    :param fill: given the ``QueryExecution`` of the rows, fills its plan; returns whether it has filled anything
    """
    if not _may_be_hidden(spark, rows, table):
        return None
    execution = dataset(spark, rows)._jdf.queryExecution()
    if kind(execution.executedPlan()) != ADAPTIVE or not _fits(execution, table) or not fill(execution):
        return None
    stage = jvm_of(spark).org.apache.spark.sql.execution.adaptive.LogicalQueryStage
    return stage(execution.analyzed(), execution.executedPlan())


def _may_be_hidden(spark: Any, rows: Any, table: NewTable) -> bool:
    """Whether nothing looks at the plan of the rows: a table that is read from itself is refused; one that exists stays
    as it is, or is refused.
    """
    if not _is_known(spark, table):
        return False
    if not table.name:
        return True
    if table.name.rsplit(".", 1)[-1].strip("`").lower() in _tables_read(rows):
        return False
    return table.replaces or not spark._jsparkSession.catalog().tableExists(table.name)


def _is_known(spark: Any, table: NewTable) -> bool:
    """Whether it is a table of a catalog, and of a format, that leave the rows' plan to Spark."""
    if table.provider in _TAKES_ROWS:
        return True
    if not table.name:
        return False
    catalog = str(catalog_of(spark, table.name)[0].getClass().getName())
    provider = table.provider or str(spark.conf.get("spark.sql.sources.default")).lower()
    return catalog in _CATALOGS_OF_ICEBERG or (catalog == _OWN_CATALOG and provider in FILE_FORMATS)


def _fits(execution: Any, table: NewTable) -> bool:
    """Whether a command finds its columns in the plan of its rows, and leaves these in their order.

    Where such a plan tells no order, Spark sorts rows by folders and buckets, which may change that within files.
    """
    outputs = (execution.analyzed().output(), execution.executedPlan().output())
    named, planned = ([int(column.exprId().id()) for column in items(output)] for output in outputs)
    return named == planned and not (table.divided and not execution.optimizedPlan().outputOrdering().isEmpty())


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
