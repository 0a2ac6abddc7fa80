"""The first half of an aggregate: what each task makes of its own rows, before the shuffle.

Spark aggregates in two steps. The first reads everything and returns a row or few for each group and task; its result
goes into shuffle files, which die with the application. Here the physical plan is taken apart between the two steps, so
that the first one's rows can be stored, task by task, and the second one runs over what is stored.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.jvm.relation import data_frame, renamed
from airflow_provider.spark.jvm.scala import companion, items, to_seq

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

_AGGREGATES = frozenset({"HashAggregateExec", "ObjectHashAggregateExec", "SortAggregateExec"})
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_BYTES_PER_PARTITION = 32 * 2**20


class PartialAggregate:
    """An aggregate that is computed in two steps with something in between.

    :ivar plan: the physical plan of the first step, which tells how it is cut into partitions
    :ivar parallelism: number of partitions of the first step
    """

    def __init__(self, spark: Any, whole: Any, first: Any, plan: Any) -> None:
        self._spark = spark
        self._whole = whole
        self._first = first
        self.plan = plan
        self.parallelism = _tasks(plan)

    @cached_property
    def frame(self) -> DataFrame:
        """The first step's rows: groups and buffers. Begins to compute what its joins broadcast."""
        return self._over(self.plan.execute(), self._first)

    @classmethod
    def of(cls, df: DataFrame) -> PartialAggregate | None:
        """Take *df*, an aggregate, apart; ``None`` if there is a shuffle below, or its plan has another shape."""
        spark: Any = df.sparkSession
        whole = df._jdf.queryExecution().sparkPlan()
        first = _first_step(whole)
        if first is None:
            return None
        plan = _prepared(spark, first)
        return None if _shuffles(plan) else cls(spark, whole, first, plan)

    def finish(self, stored: DataFrame, size: int) -> DataFrame:
        """Return the aggregate over the first step's rows.

        :param stored: has them, in the columns of :attr:`frame`
        :param size: their bytes
        """
        read = stored._jdf.queryExecution().sparkPlan()
        # In the physical plan, because the optimizer does not keep the identities of a plan's own columns.
        columns = renamed(self._spark, self._first.output(), read.output())
        read = self._spark._jvm.org.apache.spark.sql.execution.ProjectExec(columns, read)
        second = _exchanged(self._spark, self._whole, self._first, read)
        with self._shuffle_partitions(size):
            rdd = _prepared(self._spark, second).execute()
        return self._over(rdd, self._whole)

    def _over(self, rdd: Any, plan: Any) -> DataFrame:
        return data_frame(self._spark, self._spark._jsparkSession.internalCreateDataFrame(rdd, plan.schema(), False))

    @contextmanager
    def _shuffle_partitions(self, size: int) -> Iterator[None]:
        """As adaptive execution would do, take fewer reducers for little data."""
        conf = self._spark.conf
        before = int(conf.get(_SHUFFLE_PARTITIONS))
        conf.set(_SHUFFLE_PARTITIONS, str(max(1, min(before, -(-size // _BYTES_PER_PARTITION)))))
        try:
            yield
        finally:
            conf.set(_SHUFFLE_PARTITIONS, str(before))


def _prepared(spark: Any, plan: Any) -> Any:
    """Return *plan* with its exchanges and generated code; without adaptive execution, which would plan it anew."""
    execution = companion(spark._jvm.org.apache.spark.sql.execution, "QueryExecution")
    rules = execution.preparations(spark._jsparkSession, spark._jvm.scala.Option.empty(), False)
    return execution.prepareForExecution(rules, plan)


def _first_step(whole: Any) -> Any:
    """Return the step that takes rows as they lie; ``None`` if there is none. Distinct aggregates have four steps."""
    found, plan = None, whole
    while plan.getClass().getSimpleName() in (*_AGGREGATES, "ProjectExec"):
        link = plan.logicalLink()
        if not link.isDefined() or not link.get().fastEquals(whole.logicalLink().get()):
            break  # an aggregate of its own
        if plan.getClass().getSimpleName() in _AGGREGATES:
            found = plan
        plan = plan.child()
    return found if found is not None and found.requiredChildDistributionExpressions().isEmpty() else None


def _shuffles(plan: Any) -> bool:
    return plan.getClass().getSimpleName() == "ShuffleExchangeExec" or any(
        _shuffles(child) for child in items(plan.children())
    )


def _tasks(plan: Any) -> int:
    """Return the number of tasks of a plan without shuffles, from its file scans; 0 if that cannot be told yet."""
    name = plan.getClass().getSimpleName()
    if name == "FileSourceScanExec":
        if not plan.subqueriesAll().isEmpty():  # which files are read follows from their results
            return 0
        return sum(int(rdd.getNumPartitions()) for rdd in items(plan.inputRDDs()))
    if name == "BroadcastExchangeExec":
        return 0
    return sum(_tasks(child) for child in items(plan.children()))


def _exchanged(spark: Any, plan: Any, old: Any, new: Any) -> Any:
    """Return *plan* with *new* in the place of *old*."""
    if plan.fastEquals(old):
        return new
    children = [_exchanged(spark, child, old, new) for child in items(plan.children())]
    return plan.withNewChildren(to_seq(spark._jvm, children))
