"""SQL commands that write the rows of a query, as Spark's parser reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider.core.sql_text import begins_with, quoted_name
from airflow_provider.spark.jvm.relation import dataset
from airflow_provider.spark.jvm.scala import items, to_seq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_POSITION_OF_QUERY = {
    "InsertIntoStatement": 0,
    "InsertIntoDir": 0,
    "CreateTableAsSelect": 1,
    "ReplaceTableAsSelect": 1,
}
"""Among the children of the parsed command."""


class WritingCommand:
    """A parsed command that writes the rows of a query."""

    def __init__(self, spark: Any, command: Any, common: Any) -> None:
        self._spark = spark
        self._command = command
        self._common = common
        self._at = _POSITION_OF_QUERY[command.getClass().getSimpleName()]

    @classmethod
    def parse(cls, spark: Any, text: str) -> WritingCommand | None:
        """Return the command; ``None`` if it is another statement, or one that Spark cannot read."""
        if not begins_with(text, "INSERT", "CREATE", "REPLACE", "WITH", "FROM"):
            return None
        try:
            plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
        except Exception:  # noqa: BLE001 - Spark itself says what is wrong with it
            return None
        common = None
        if plan.getClass().getSimpleName() == "UnresolvedWith":
            common, plan = plan, plan.child()
        return cls(spark, plan, common) if plan.getClass().getSimpleName() in _POSITION_OF_QUERY else None

    @property
    def table(self) -> str:
        """The table that it writes, quoted; empty text if it is a folder."""
        kind = self._command.getClass().getSimpleName()
        if kind == "InsertIntoDir":
            return ""
        named = self._command.table() if kind == "InsertIntoStatement" else self._command.name()
        if named.getClass().getSimpleName() not in ("UnresolvedRelation", "UnresolvedIdentifier"):
            return ""  # IDENTIFIER(…)
        parts = named.multipartIdentifier() if kind == "InsertIntoStatement" else named.nameParts()
        return quoted_name(items(parts))

    @property
    def statement(self) -> Any:
        """The plan of the whole statement, as the parser made it."""
        return self._command if self._common is None else self._common

    @property
    def overwrites(self) -> bool:
        """Whether it replaces rows that are there."""
        kind = self._command.getClass().getSimpleName()
        return kind == "ReplaceTableAsSelect" or (kind == "InsertIntoStatement" and bool(self._command.overwrite()))

    @property
    def creates(self) -> bool:
        """Whether it makes its table."""
        return self._command.getClass().getSimpleName() in ("CreateTableAsSelect", "ReplaceTableAsSelect")

    @property
    def location(self) -> str:
        """Where it makes its table, if the statement says so."""
        return self._specified("location")

    @property
    def provider(self) -> str:
        """The format of the table that it makes, in small letters, if the statement says so."""
        return self._specified("provider").lower()

    def _specified(self, name: str) -> str:
        value = getattr(self._command.tableSpec(), name)() if self.creates else None
        return str(value.get()) if value is not None and value.isDefined() else ""

    def query(self) -> DataFrame:
        """Return its query as a DataFrame."""
        query = list(items(self._command.children()))[self._at]
        return dataset(self._spark, query if self._common is None else self._with(query))

    def _with(self, query: Any) -> Any:
        return self._common.withNewChildren(to_seq(self._spark._jvm, [query]))


def merged_table(spark: Any, text: str) -> str:
    """Return the table that a ``MERGE`` statement changes, quoted; empty text for any other statement."""
    if not begins_with(text, "MERGE", "WITH"):
        return ""
    try:
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
        if plan.getClass().getSimpleName() == "UnresolvedWith":
            plan = plan.child()
        if plan.getClass().getSimpleName() != "MergeIntoTable":
            return ""
        table = plan.targetTable()
        while table.getClass().getSimpleName() == "SubqueryAlias":
            table = table.child()
        return quoted_name(items(table.multipartIdentifier()))
    except Exception:  # noqa: BLE001 - Spark itself says what is wrong with it
        return ""
