"""The shuffles of physical plans, looked at without a trace.

To ask a plan that is about to run for its ``shuffleDependency``, ``inputRDD`` or ``executedPlan`` may make these, in
our thread and with our session's settings: Spark's lazy values belong to whoever asks first. So only what exists is
read: fields, not methods.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from airflow_provider.spark.jvm.queries import held_weakly
from airflow_provider.spark.jvm.reflection import private_field
from airflow_provider.spark.jvm.scala import companion, items
from airflow_provider.spark.jvm.session_settings import pairs_of

SHUFFLE_EXCHANGE = "ShuffleExchangeExec"
ADAPTIVE = "AdaptiveSparkPlanExec"
SHUFFLE_STAGE = "ShuffleQueryStageExec"
BROADCAST_STAGE = "BroadcastQueryStageExec"
_STAGES = {SHUFFLE_STAGE, BROADCAST_STAGE, "TableCacheQueryStageExec", "ResultQueryStageExec"}
_WHOLE_PARTITIONS = {"MapInPandasExec", "MapInArrowExec", "PythonMapInArrowExec"}
_GROUPS = {
    "AggregateInPandasExec",
    "ArrowAggregatePythonExec",
    "ArrowWindowPythonExec",
    "FlatMapCoGroupsInArrowExec",
    "FlatMapCoGroupsInPandasExec",
    "FlatMapGroupsInArrowExec",
    "FlatMapGroupsInPandasExec",
    "WindowInPandasExec",
}
"""Nodes whose Python functions are given the rows of a group, or of a window."""
_EVALUATED = {"ArrowEvalPythonExec"}
_OF_ITERATORS = {204, 251}
"""Kinds of Python functions that are given an iterator of a whole partition: pandas, Arrow."""
_WRAPPED = {
    "AdaptiveSparkPlanExec": "initialPlan",
    "ReusedSubqueryExec": "child",
    **dict.fromkeys(_STAGES, "plan"),
}


@dataclass(frozen=True)
class RunningShuffle:
    """A shuffle that Spark has planned the tasks of.

    :ivar number: Spark's shuffle id
    :ivar exchange: its ``ShuffleExchangeExec``, over what its tasks run
    :ivar dependency: its ``ShuffleDependency``
    :ivar canonical: the canonical form under which adaptive execution knows it; of a plan without, that of the exchange
    :ivar cached: the number of the cached frame's plan that it stands in, see :func:`cached_plan`; ``None`` if in none
    """

    number: int
    exchange: Any
    dependency: Any
    canonical: Any
    cached: int | None = None


class WeakShuffle:
    """A running shuffle that Spark may still clean up: its plan and its dependency live as long as the script's frame.

    :param shuffle: whose number stays known
    """

    def __init__(self, spark: Any, shuffle: RunningShuffle) -> None:
        self.number = shuffle.number
        parts = (shuffle.exchange, shuffle.dependency, shuffle.canonical)
        self._parts = [held_weakly(spark, part) for part in parts]

    def get(self) -> RunningShuffle | None:
        """Return the shuffle, to be let go soon; ``None`` if the script has dropped it."""
        exchange, dependency, canonical = (part.get() for part in self._parts)
        if exchange is None or dependency is None or canonical is None:
            return None
        return RunningShuffle(self.number, exchange, dependency, canonical)


def kind(plan: Any) -> str:
    """Return the class of a plan's node, without the package."""
    return str(plan.getClass().getSimpleName())


def shuffles_of(plan: Any, spark: Any, known: set[int]) -> Iterator[RunningShuffle]:
    """Yield the shuffles of a plan that is running.

    What is below one in *known* is left out: it was yielded before, because Spark plans from the bottom up.

    :param plan: a physical plan; its adaptive parts are seen as they are now
    """
    pending: list[tuple[Any, Any, bool, int | None]] = [(plan, None, True, None)]
    seen = set(known)
    subqueries = spark._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PLAN_EXPRESSION()
    nothing_cached = bool(spark._jsparkSession.sharedState().cacheManager().isEmpty())
    while pending:
        node, canonical, may_hold_plans, cached = pending.pop()
        name = kind(node)
        if name == SHUFFLE_STAGE:
            pending.append((node.plan(), node._canonicalized(), True, cached))
        elif name in _STAGES:
            pending.append((node.plan(), None, True, cached))
        elif name == ADAPTIVE and nothing_cached and bool(node.conf().exchangeReuseEnabled()):
            for stage in _stages_made(node):
                exchange = stage.plan()
                if kind(exchange) == SHUFFLE_EXCHANGE:
                    running = _running(exchange, stage._canonicalized(), cached)
                    if running is not None and running.number not in seen:
                        seen.add(running.number)
                        yield running
        elif name == ADAPTIVE:
            pending.append((node.executedPlan(), None, True, cached))
        elif name == "ReusedExchangeExec":
            pending.append((node.child(), canonical, True, cached))
        elif name == "InMemoryTableScanExec":
            pending.append((node.relation().cachedPlan(), None, True, cached_plan(node.relation())))
        elif name == "CommandResultExec":
            pending.append((node.commandPhysicalPlan(), None, True, cached))
        else:
            if name == SHUFFLE_EXCHANGE:
                running = _running(node, canonical, cached)
                if running is not None:
                    if running.number in seen:
                        continue
                    seen.add(running.number)
                    yield running
            if may_hold_plans := may_hold_plans and bool(node.containsPattern(subqueries)):  # here or further down
                pending += [(subquery, None, True, cached) for subquery in items(node.subqueries())]
            pending += [(child, None, may_hold_plans, cached) for child in items(node.children())]


def cached_plan(relation: Any) -> int:
    """Return the number of a cached frame's plan, which no other one of the application has.

    :param relation: an ``InMemoryRelation``
    """
    return int(relation.cachedPlan().id())


def _running(exchange: Any, canonical: Any, cached: int | None) -> RunningShuffle | None:
    """Return the shuffle of an exchange; ``None`` if its tasks are not planned yet."""
    dependency = private_field(exchange, "shuffleDependency")
    if dependency is None:
        return None
    canonical = canonical or exchange.canonicalized()
    return RunningShuffle(int(dependency.shuffleId()), exchange, dependency, canonical, cached)


def _stages_made(adaptive: Any) -> Iterator[Any]:
    """Yield the shuffle stages that were made of an adaptive plan and of its subqueries so far.

    It takes a tenth of the requests that going through the plan takes. Cached frames in it have stages of their own.
    """
    stages = adaptive.context().stageCache().valuesIterator()
    while stages.hasNext():
        stage = stages.next()
        if kind(stage) == SHUFFLE_STAGE:
            yield stage


def functions_of_several_rows(canonical: Any) -> str:
    """Say why a Python function that is given several rows may be given others in a retry; empty text if none may.

    Below another exchange it may be given partitions that are cut anew. Above another one it is given rows in the order
    in which they were fetched: it may number them, say, or take the first one.

    :param canonical: the canonical form of an exchange
    """
    pending = [(child, False, False) for child in items(canonical.children())]
    while pending:
        node, deeper, given = pending.pop()
        name = kind(node)
        whole = name in _WHOLE_PARTITIONS or (name in _EVALUATED and int(node.evalType()) in _OF_ITERATORS)
        if deeper and whole:
            return "a function below another shuffle is given whole partitions, which a retry may cut anew"
        if given and name.endswith("ExchangeExec"):
            return "a function is given rows that were shuffled, and may depend on the order of rows"
        if name == "InMemoryTableScanExec":
            pending.append((node.relation().cachedPlan(), True, given))
        below = deeper or name.endswith("ExchangeExec")
        given = given or whole or name in _GROUPS
        pending += [(child, below, given) for child in items(node.children())]
        pending += [(subquery, True, False) for subquery in items(node.subqueries())]
        if name in _WRAPPED:
            pending.append((getattr(node, _WRAPPED[name])(), below, given))
    return ""


def is_of_a_stream(execution: Any) -> bool:
    """Whether a ``QueryExecution`` is a batch of a streaming query."""
    return kind(execution) == "IncrementalExecution"


@dataclass(frozen=True)
class RunningQuery:
    """A SQL execution that is under way, or was.

    :ivar execution: its ``QueryExecution``
    """

    execution: Any
    _record: Any

    @property
    def modified(self) -> dict[str, str] | None:
        """The settings that its session had when it began, where they are not its application's; ``None`` if Spark has
        not recorded them yet. Spark hides values that look like secrets.
        """
        settings = self._record.modifiedConfigs()
        return None if settings is None else pairs_of(settings)

    def ran(self, stage: int) -> bool:
        """Whether a stage was part of one of its jobs."""
        return bool(self._record.stages().contains(stage))


class RunningQueries:
    """The SQL executions of one application that are under way."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        executions = spark._jvm.org.apache.spark.sql.execution
        self._by_id = private_field(companion(executions, "SQLExecution"), "executionIdToQueryExecution")
        listener = spark._jsparkSession.sharedState().statusStore().listener().get()
        self._live = private_field(listener, "liveExecutions")
        self._stages = private_field(listener, "stageMetrics")

    def running(self) -> frozenset[int]:
        """Return the numbers of those that Spark has announced."""
        return _numbers(self._live.keySet())

    def numbers(self) -> frozenset[int]:
        """Return the numbers of those that Spark has begun and not ended."""
        return _numbers(self._by_id.keySet())

    def started(self) -> dict[int, RunningQuery]:
        """Return each by its number, the oldest first, once Spark has announced it: its plan exists then."""
        # A Long of Java's cannot be passed as a key.
        records = {int(entry.getKey()): entry for entry in self._live.entrySet().toArray()}
        found = {int(entry.getKey()): entry for entry in self._by_id.entrySet().toArray()}
        announced = sorted(found.keys() & records.keys())
        return {number: RunningQuery(found[number].getValue(), records[number].getValue()) for number in announced}


def _numbers(keys: Any) -> frozenset[int]:
    return frozenset(int(number) for number in str(keys.toString()).strip("[]").split(",") if number)
