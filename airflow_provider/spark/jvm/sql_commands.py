"""SQL statements that write a query's rows, as Spark's parser reads them; ``writer_commands`` is for ``df.write``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider.core.sql_text import adds_rows, begins_with, quoted_name
from airflow_provider.spark.jvm.commands import command_execution, run_command
from airflow_provider.spark.jvm.exchanges import kind
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.planned_rows import NewTable, planned_rows
from airflow_provider.spark.jvm.relation import dataset
from airflow_provider.spark.jvm.scala import items, to_seq

if TYPE_CHECKING:
    from collections.abc import Callable

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
        self._kind = kind(command)
        self._at = _POSITION_OF_QUERY[self._kind]

    @classmethod
    def parse(cls, spark: Any, text: str) -> WritingCommand | None:
        """Return the command of a statement with exactly one; ``None`` for any other."""
        commands = cls.parse_all(spark, text)
        return commands[0] if len(commands) == 1 else None

    @classmethod
    def parse_all(cls, spark: Any, text: str) -> list[WritingCommand]:
        """Return the commands of a statement: several for ``FROM … INSERT … INSERT …``, none for another kind of
        statement, or one that Spark cannot read.
        """
        if not begins_with(text, "INSERT", "CREATE", "REPLACE", "WITH", "FROM"):
            return []
        plan, common = parsed(spark, text)
        if plan is None:
            return []
        plans = list(items(plan.children())) if kind(plan) == "Union" else [plan]
        known = all(kind(one) in _POSITION_OF_QUERY for one in plans)
        return [cls(spark, one, common) for one in plans] if known else []

    @property
    def table(self) -> str:
        """The table that it writes, quoted; empty if it is a folder."""
        if self._kind == "InsertIntoDir":
            return ""
        named = self._command.table() if self._kind == "InsertIntoStatement" else self._command.name()
        if kind(named) not in ("UnresolvedRelation", "UnresolvedIdentifier"):
            return ""  # IDENTIFIER(…)
        parts = named.multipartIdentifier() if self._kind == "InsertIntoStatement" else named.nameParts()
        return quoted_name(items(parts))

    def statement(self, arguments: Any = None) -> Any:
        """Return the plan of a statement with only this command.

        :param arguments: see :meth:`query`
        """
        if arguments is None:
            return self._with(self._command)
        return self.statement_of(self.query(arguments)._jdf.queryExecution().analyzed())

    @property
    def overwrites(self) -> bool:
        """Whether it replaces existing rows."""
        if self._kind == "InsertIntoStatement":
            return bool(self._command.overwrite())
        return self._kind == "ReplaceTableAsSelect"

    @property
    def adds(self) -> bool:
        """Whether it adds rows to an existing table."""
        return self._kind == "InsertIntoStatement" and not self.overwrites

    @property
    def creates(self) -> bool:
        """Whether it creates its table."""
        return self._kind in ("CreateTableAsSelect", "ReplaceTableAsSelect")

    @property
    def if_absent(self) -> bool:
        """Whether it does nothing if its table exists."""
        return self._kind == "CreateTableAsSelect" and bool(self._command.ignoreIfExists())

    @property
    def location(self) -> str:
        """Where it creates its table, if the statement says so."""
        return self._specified("location")

    @property
    def provider(self) -> str:
        """The format of the table that it creates, in lower case, if the statement says so."""
        return self._specified("provider").lower()

    def _specified(self, name: str) -> str:
        value = getattr(self._command.tableSpec(), name)() if self.creates else None
        return str(value.get()) if value is not None and value.isDefined() else ""

    def statement_of(self, rows: Any) -> Any:
        """Return the plan of a statement with only this command, for other rows: a logical plan."""
        children = list(items(self._command.children()))
        children[self._at] = rows
        return self._command.withNewChildren(to_seq(jvm_of(self._spark), children))

    @property
    def new_table(self) -> NewTable | None:
        """The table that it creates; ``None`` if it writes to an existing one, or if the table's name is computed."""
        if not (self.creates and self.table):
            return None
        divided = not self._command.partitioning().isEmpty()
        return NewTable(self.table, self.provider, self.overwrites, divided)

    def run(self) -> None:
        """Run it, as ``spark.sql`` runs a statement of its own."""
        dataset(self._spark, self.statement())  # Spark runs a command when a Dataset is made of it

    def query(self, arguments: Any = None) -> DataFrame:
        """Return its query as a DataFrame.

        :param arguments: values for the markers in the statement's text, as ``spark.sql`` takes them
        :raises ValueError: it has markers and common tables, or starts with ``FROM``
        """
        query = list(items(self._command.children()))[self._at]
        if arguments is None:
            return dataset(self._spark, self._with(query))
        origin = query.origin()
        text = str(origin.sqlText().get())
        if self._common is not None or not begins_with(text, "INSERT", "CREATE", "REPLACE"):
            raise ValueError("the statement does not show its query")
        begin, end = int(origin.startIndex().get()), int(origin.stopIndex().get()) + 1  # of code points
        if parsed(self._spark, text[begin:end])[0] is None:  # else PySpark logs an error
            raise ValueError("its query is no statement without the rest")
        frame: DataFrame = self._spark.sql(text[begin:end], arguments)
        return frame

    def _with(self, plan: Any) -> Any:
        """Return a plan with the common tables of the statement."""
        if self._common is None:
            return plan
        return self._common.withNewChildren(to_seq(jvm_of(self._spark), [plan]))


def filled(spark: Any, text: str, arguments: Any, fill: Callable[[Any], bool]) -> Callable[[], object] | None:
    """Return what runs a statement whose plan is filled; ``None`` if nothing is, or it writes no rows of a query.

    :param arguments: values for the markers in the text
    :param fill: given the ``QueryExecution`` of the statement or of its query, fills its plan; returns whether it has
        filled anything
    """
    command = WritingCommand.parse(spark, text)
    if command is None:
        statement = _merge(spark, text) if arguments is None else None
    elif command.new_table is None:
        statement = command.statement(arguments)
    else:
        query = command.query(arguments)._jdf.queryExecution().analyzed()
        rows = planned_rows(spark, query, command.new_table, fill)
        return None if rows is None else lambda: dataset(spark, command.statement_of(rows))
    execution = command_execution(spark, lambda: statement)
    return None if execution is None or not fill(execution) else lambda: run_command(spark, execution)


def _merge(spark: Any, text: str) -> Any:
    """Return the plan of a ``MERGE``; ``None`` for any other statement."""
    plan, common = parsed(spark, text) if begins_with(text, "MERGE", "WITH") else (None, None)
    return None if plan is None or kind(plan) != "MergeIntoTable" else common or plan


def insertion(spark: Any, table: str, *, overwrite: bool) -> Any:
    """Return the plan of an ``INSERT`` by position, whose only child stands for the rows.

    :param table: as the script writes it
    """
    text = f"INSERT {'OVERWRITE' if overwrite else 'INTO'} {table} VALUES (1)"  # noqa: S608 - is only parsed
    return spark._jsparkSession.sessionState().sqlParser().parsePlan(text)


def parsed(spark: Any, text: str) -> tuple[Any, Any]:
    """Return the plan of a statement without its common tables, and the one with them (``None`` if it has none); twice
    ``None`` if Spark cannot read it, which Spark reports itself.
    """
    try:
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    except Exception:  # noqa: BLE001 - Spark itself says what is wrong with it
        return None, None
    return (plan.child(), plan) if kind(plan) == "UnresolvedWith" else (plan, None)


def changed_in_place(spark: Any, text: str) -> str:
    """Return what a statement that is no :class:`WritingCommand` may change again if it is repeated: the table of a
    ``MERGE``, ``UPDATE`` or ``LOAD DATA``, a script, a statement made from a text; empty for any other statement.
    """
    if begins_with(text, "BEGIN", "EXECUTE", r"\w+\s*:\s*BEGIN"):
        return "of a SQL script" if adds_rows(text) else ""
    if not begins_with(text, "MERGE", "UPDATE", "LOAD", "WITH", "INSERT", "FROM"):
        return ""
    plan, _ = parsed(spark, text)
    if plan is None:
        return "of a statement with parameters" if adds_rows(text) else ""
    named = kind(plan)
    adding_load = named == "LoadData" and not plan.isOverwrite()
    if named not in ("MergeIntoTable", "UpdateTable") and not adding_load:
        return ""
    table = plan.child() if adding_load else plan.targetTable() if named == "MergeIntoTable" else plan.table()
    while kind(table) == "SubqueryAlias":
        table = table.child()
    return f"table {quoted_name(items(table.multipartIdentifier()))}"
