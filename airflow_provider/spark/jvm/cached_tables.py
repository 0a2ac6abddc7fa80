"""Tables and views that are cached by their names: SQL's ``CACHE TABLE``, as Spark's parser reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider.core.sql_text import begins_with, quoted_name
from airflow_provider.spark.jvm.exchanges import kind
from airflow_provider.spark.jvm.relation import data_frame, dataset
from airflow_provider.spark.jvm.scala import items
from airflow_provider.spark.jvm.sql_commands import parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LAZY = {"CacheTable": 2, "CacheTableAsSelect": 3}
"""The place, among the members of the parsed command, of what says that it only marks the table."""


def table_named(spark: Any, name: str) -> DataFrame:
    """Return a table or view, as the script would read it."""
    return data_frame(spark, spark._jsparkSession.table(name))


class CachingStatement:
    """A parsed ``CACHE TABLE``."""

    def __init__(self, spark: Any, plan: Any, view: str) -> None:
        self._spark = spark
        self._plan = plan
        self._view = view
        """The name of the view that it creates; empty if it creates none."""

    @classmethod
    def parse(cls, spark: Any, text: str) -> CachingStatement | None:
        """Return the statement; ``None`` for any other one, or if the table's name is computed."""
        plan = parsed(spark, text)[0] if begins_with(text, "CACHE") else None
        if plan is None or kind(plan) not in _LAZY:
            return None
        view = plan.tempViewName() if kind(plan) == "CacheTableAsSelect" else ""
        if not isinstance(view, str):  # since Spark 4.2 it may be computed
            view = str(view.value()) if kind(view) == "Literal" else None
        return None if view is None else cls(spark, plan, view)

    @property
    def lazy(self) -> bool:
        """Whether whoever reads the table first fills it."""
        return bool(self._plan.isLazy())

    @property
    def table(self) -> DataFrame:
        """What it caches; there once it has run."""
        name = [self._view] if self._view else items(self._plan.multipartIdentifier())
        return table_named(self._spark, quoted_name(name))

    def mark(self) -> DataFrame:
        """Run it as ``CACHE LAZY TABLE``; return what ``spark.sql`` returns for it."""
        members = [self._plan.productElement(place) for place in range(int(self._plan.productArity()))]
        members[_LAZY[kind(self._plan)]] = True
        return dataset(self._spark, self._plan.copy(*members))

    def fill(self) -> None:
        """Count the rows of what is marked. If that fails, it is not cached any more, and its view is gone, by Spark's
        rule (``BaseCacheTableExec``, ``CacheTableAsSelectExec``).
        """
        try:
            self.table.count()
        except Exception:
            session = self._spark._jsparkSession
            session.sharedState().cacheManager().uncacheQuery(self.table._jdf, False)
            if self._view:
                session.catalog().dropTempView(self._view)
            raise
