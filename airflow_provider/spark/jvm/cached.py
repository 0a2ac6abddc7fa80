"""Look at what Spark's cache manager holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider.spark.auto.rules import CACHED
from airflow_provider.spark.jvm.relation import dataset, labelled, vertex_token
from airflow_provider.spark.jvm.scala import has_member, items, to_seq

if TYPE_CHECKING:
    from pyspark import StorageLevel
    from pyspark.sql import DataFrame


class CachedRelation:
    """One leaf of a plan that reads a cached DataFrame.

    :param relation: an ``InMemoryRelation``
    """

    def __init__(self, spark: Any, relation: Any) -> None:
        self._spark = spark
        self.relation = relation
        self._builder = relation.cacheBuilder()
        self.entry = _identity(spark, self._builder)

    @property
    def loaded(self) -> bool:
        """Whether it has been computed already, or nothing tells how it would be."""
        if not has_member(self._builder, "logicalPlan"):  # Spark 3.5
            return True
        return bool(self._builder.isCachedColumnBuffersLoaded())

    @property
    def storage_level(self) -> StorageLevel:
        """Where the script wants it kept."""
        from pyspark import StorageLevel

        level = self._builder.storageLevel()
        return StorageLevel(
            level.useDisk(), level.useMemory(), level.useOffHeap(), level.deserialized(), level.replication()
        )

    def optimized(self) -> Any:
        """Return the optimized plan that computes it, reading other cached DataFrames but not itself.

        :returns: ``None`` where a part of it is to Spark the same as the whole, which it would read from the cache
        """
        plan = self._builder.logicalPlan()
        while plan.getClass().getSimpleName() in ("SubqueryAlias", "View"):  # to Spark the same as what they name
            plan = plan.child()
        children = [
            dataset(self._spark, child)._jdf.queryExecution().withCachedData() for child in items(plan.children())
        ]
        if any(self._is_read_by(leaf) for child in children for leaf in items(child.collectLeaves())):
            return None
        if children:
            plan = plan.withNewChildren(to_seq(self._spark._jvm, children))
        return self._distinct(self._spark._jsparkSession.sessionState().optimizer().execute(plan))

    def _is_read_by(self, leaf: Any) -> bool:
        cached = leaf.getClass().getSimpleName() == CACHED
        return cached and _identity(self._spark, leaf.cacheBuilder()) == self.entry

    def _distinct(self, plan: Any) -> Any:
        """Return *plan* so that Spark does not take it for the one that is cached: with filters that let all pass."""
        children = [self._distinct(child) for child in items(plan.children())]
        if children:
            return plan.withNewChildren(to_seq(self._spark._jvm, children))
        catalyst = self._spark._jvm.org.apache.spark.sql.catalyst
        return catalyst.plans.logical.Filter(catalyst.expressions.Literal.TrueLiteral(), plan)

    def replaced_by(self, frame: DataFrame) -> Any:
        """Return a plan with the same columns and identities that reads *frame*, which is cached itself.

        The frame may stand in a plan several times, so its own columns must not show.
        """
        plan = frame._jdf.queryExecution()
        token = vertex_token(plan.analyzed())
        relation = plan.withCachedData().withOutput(self.relation.output())
        return relation if token is None else labelled(self._spark, relation, token)


def entry_of(df: Any) -> int | None:
    """Return the cache manager's entry for *df*, as :class:`CachedRelation` counts it; ``None`` if there is none."""
    spark = df.sparkSession
    found = _manager(spark).lookupCachedData(df._jdf)
    return _identity(spark, found.get().cachedRepresentation().cacheBuilder()) if found.isDefined() else None


def _manager(spark: Any) -> Any:
    return spark._jsparkSession.sharedState().cacheManager()


def _identity(spark: Any, builder: Any) -> int:
    return int(spark._jvm.java.lang.System.identityHashCode(builder))
