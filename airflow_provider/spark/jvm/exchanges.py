"""Find the shuffles of physical plans without changing anything.

Asking a plan that is about to run for its ``shuffleDependency``, ``inputRDD`` or ``executedPlan`` may create these in
our thread, with our session's settings: Spark's lazy values are computed by whoever asks first. So only existing state
is read: fields, not methods.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_provider.spark.jvm.compiled import compiled
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.reflection import private_field
from airflow_provider.spark.jvm.scala import companion, items
from airflow_provider.spark.jvm.session_settings import pairs_of

SHUFFLE_EXCHANGE = "ShuffleExchangeExec"
ADAPTIVE = "AdaptiveSparkPlanExec"
SHUFFLE_STAGE = "ShuffleQueryStageExec"
BROADCAST_STAGE = "BroadcastQueryStageExec"
CACHED_STAGE = "TableCacheQueryStageExec"
CACHED_SCAN = "InMemoryTableScanExec"
_BROADCAST = "BroadcastExchangeExec"
REUSED_EXCHANGE = "ReusedExchangeExec"
_STAGES = {SHUFFLE_STAGE, BROADCAST_STAGE, CACHED_STAGE, "ResultQueryStageExec"}
_OWN_TASKS = {CACHED_STAGE, "ResultQueryStageExec"}
"""Stages of what the tasks that read them run themselves."""
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
"""Nodes whose Python functions get the rows of a group, or of a window."""
_EVALUATED = {"ArrowEvalPythonExec"}
_CHOOSING = {"HashAggregateExec", "ObjectHashAggregateExec", "SortAggregateExec", "WindowGroupLimitExec"}
_OF_ITERATORS = {204, 251}
"""Kinds of Python functions that get an iterator over a whole partition: pandas, Arrow."""
_WRAPPED = {
    "AdaptiveSparkPlanExec": "initialPlan",
    "ReusedSubqueryExec": "child",
    REUSED_EXCHANGE: "child",
    **dict.fromkeys(_STAGES, "plan"),
}

_EXCHANGE, _DEPENDENCY, _CANONICAL = range(3)


class RunningShuffle:
    """A shuffle whose tasks Spark has planned.

    :ivar number: Spark's shuffle id
    :ivar cached: the number of the cached frame's plan that contains it, see :func:`cached_plan`; ``None`` if none does
    """

    def __init__(self, found: Any, place: int, number: int, cached: int | None) -> None:
        self._found = found
        self._place = place
        self.number = number
        self.cached = cached

    @cached_property
    def exchange(self) -> Any:
        """Its ``ShuffleExchangeExec``, over the plan that its tasks run."""
        return self._found.part(self._place, _EXCHANGE)

    @cached_property
    def dependency(self) -> Any:
        """Its ``ShuffleDependency``."""
        return self._found.part(self._place, _DEPENDENCY)

    @cached_property
    def canonical(self) -> Any:
        """The form by which adaptive execution knows it; without adaptive execution, the exchange's canonical form."""
        return self._found.part(self._place, _CANONICAL)

    def held(self) -> Any:
        """Return ``Held`` of ``ShuffleSearch.java``: its plan and dependency, as long as the script has its frame.

        Spark may clean it up all the same.
        """
        return self._found.held(self._place)


def kind(plan: Any) -> str:
    """Return the class of a plan's node, without the package."""
    return str(plan.getClass().getSimpleName())


def shuffles_of(plan: Any, spark: Any, known: set[int]) -> list[RunningShuffle]:
    """Return the shuffles of a running plan.

    Those below one in *known* are left out: they were returned before, because Spark plans from the bottom up.

    :param plan: a physical plan; its adaptive parts are seen as they are now
    """
    found = search_of(spark).search(plan, spark._jsparkSession, " ".join(map(str, known)))
    pairs = [line.split() for line in str(found.lines()).splitlines()]
    return [
        RunningShuffle(found, place, int(number), None if cached == "-" else int(cached))
        for place, (number, cached) in enumerate(pairs)
    ]


def calls_functions(exchange: Any, spark: Any) -> bool:
    """Whether an exchange, canonical or not, involves Python functions."""
    return bool(search_of(spark).callsFunctions(exchange))


def names_seen(exchange: Any, spark: Any) -> str:
    """Return the names by which Python functions see columns, of all below an exchange that is not canonical."""
    return str(search_of(spark).namesSeen(exchange))


def search_of(spark: Any) -> Any:
    """Return the ``ShuffleSearch`` of a JVM."""
    return compiled(spark, "ShuffleSearch", lambda: " ".join(_STAGES))


def cached_plan(relation: Any) -> int:
    """Return the number of a cached frame's plan, unique within the application.

    :param relation: an ``InMemoryRelation``
    """
    return int(relation.cachedPlan().id())


def is_filled(relation: Any) -> bool:
    """Whether all partitions of a cached frame are there.

    :param relation: an ``InMemoryRelation``
    """
    return bool(relation.cacheBuilder().isCachedColumnBuffersLoaded())


def functions_of_several_rows(plans: Iterable[Any], *, deeper: bool = False) -> str:
    """Return why a Python function that gets several rows may get others in a retry; empty if none may.

    Below another exchange, partitions may be cut differently. Above another one, the function gets rows in the order in
    which they were fetched: it may number them, say, or take the first one.

    :param plans: those of an exchange's tasks
    :param deeper: whether other tasks run them
    """
    pending = [(plan, deeper, False) for plan in plans]
    while pending:
        node, deeper, given = pending.pop()
        name = kind(node)
        whole = name in _WHOLE_PARTITIONS or (name in _EVALUATED and int(node.evalType()) in _OF_ITERATORS)
        if deeper and whole:
            return "a function below another shuffle is given whole partitions, which a retry may cut anew"
        if given and name.endswith("ExchangeExec"):
            return "a function is given rows that were shuffled, and may depend on the order of rows"
        if name == CACHED_SCAN:
            pending.append((node.relation().cachedPlan(), True, given))
        below = deeper or name.endswith("ExchangeExec")
        given = given or whole or name in _GROUPS
        pending += [(child, below, given) for child in items(node.children())]
        pending += [(subquery, True, False) for subquery in items(node.subqueries())]
        if name in _WRAPPED:
            pending.append((getattr(node, _WRAPPED[name])(), below, given))
    return ""


def rows_to_choose_from(canonical: Any) -> Any:
    """Return the plan of the rows among which each of an exchange's tasks chooses by itself; ``None`` if they do not.

    A task chooses for an aggregate, or the first rows of each window, where later ones are filtered out.

    :param canonical: the canonical form of an exchange
    """
    (child,) = items(canonical.children())
    return child.child() if kind(child) in _CHOOSING else None


@dataclass(frozen=True)
class TaskInputs:
    """What the map tasks of a shuffle read, besides files; a cached frame is filled by the tasks that read it.

    :ivar shuffles: Spark's shuffle ids, in the order of the plan; of one that is read twice, twice
    :ivar broadcasts: their exchanges, in the order of the plan
    :ivar cached: the numbers of cached frames' plans, see :func:`cached_plan`
    :ivar others: the plans of subqueries
    """

    shuffles: tuple[int, ...]
    broadcasts: tuple[Any, ...]
    cached: tuple[int, ...]
    others: tuple[Any, ...]


def inputs_of(exchange: Any) -> TaskInputs | None:
    """Return what the map tasks of an exchange read; ``None`` if tasks below are not planned.

    :param exchange: over the plan that its tasks run
    """
    pending, shuffles = list(items(exchange.children())), list[int]()
    broadcasts, cached, others = list[Any](), list[int](), list[Any]()
    while pending:
        node = pending.pop()
        others += items(node.subqueries())
        name = kind(node)
        if name == CACHED_SCAN:
            cached.append(cached_plan(node.relation()))
            pending.append(node.relation().cachedPlan())
        elif name == ADAPTIVE:
            if not node.isFinalPlan():
                return None
            pending.append(node.executedPlan())
        elif name in _OWN_TASKS:
            pending.append(node.plan())
        elif name not in _STAGES and not name.endswith("ExchangeExec"):
            pending += items(node.children())
        else:
            node = _unwrapped(node)
            if kind(node) == _BROADCAST:
                broadcasts.append(node)
            elif kind(node) != SHUFFLE_EXCHANGE:
                others.append(node)
            elif (dependency := private_field(node, "shuffleDependency")) is not None:
                shuffles.append(int(dependency.shuffleId()))
            else:
                return None
    return TaskInputs(tuple(shuffles), tuple(broadcasts), tuple(cached), tuple(others))


def send_broadcasts(exchange: Any) -> None:
    """Send the broadcasts that the map tasks of an exchange read."""
    inputs = inputs_of(exchange)
    for broadcast in inputs.broadcasts if inputs is not None else ():
        broadcast.executeBroadcast()


def content_of(spark: Any, broadcast: Any) -> str:
    """Return a digest over the rows that a broadcast holds, in their order; empty if it was not sent.

    Takes as long as sending it: it reads all of it.
    """
    content = compiled(spark, "BroadcastContent", str).digest(broadcast)
    return "" if content is None else bytes(content).hex()


def may_be_spread_otherwise(plan: Any, spark: Any) -> bool:
    """Whether the tasks of a plan may get other rows in a retry though all rows together are the same."""
    return bool(search_of(spark).mayBeSpreadOtherwise(plan))


def _unwrapped(node: Any) -> Any:
    while kind(node) in _WRAPPED:
        node = getattr(node, _WRAPPED[kind(node)])()
    return node


def is_of_a_stream(execution: Any) -> bool:
    """Whether a ``QueryExecution`` is a batch of a streaming query."""
    return kind(execution) == "IncrementalExecution"


@dataclass(frozen=True)
class QueryRecord:
    """Spark's record of a SQL execution. Holds nothing of the plan, so that Spark may clean up after it."""

    _record: Any

    @property
    def outermost(self) -> int:
        """The number of the query inside which it runs; its own if in none."""
        return int(self._record.rootExecutionId())

    @property
    def modified(self) -> dict[str, str] | None:
        """The settings that its session had when it started, where they differ from its application's; ``None`` if
        Spark has not recorded them yet. Spark hides values that look like secrets.
        """
        settings = self._record.modifiedConfigs()
        return None if settings is None else pairs_of(settings)

    def ran(self, stage: int) -> bool:
        """Whether a stage was part of one of its jobs."""
        return bool(self._record.stages().contains(stage))


@dataclass(frozen=True)
class RunningQuery:
    """A running SQL execution. Holding it keeps everything that it has broadcast and shuffled.

    :ivar execution: its ``QueryExecution``
    """

    execution: Any
    record: QueryRecord


class RunningQueries:
    """The running SQL executions of one application."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        executions = jvm_of(spark).org.apache.spark.sql.execution
        self._store = spark._jsparkSession.sharedState().statusStore()
        self._executions = companion(executions, "SQLExecution")
        self._by_id = private_field(self._executions, "executionIdToQueryExecution")
        listener = self._store.listener().get()
        self._live = private_field(listener, "liveExecutions")
        self._stages = private_field(listener, "stageMetrics")

    def running(self) -> frozenset[int]:
        """Return the numbers of those that Spark has announced."""
        return _numbers(self._live.keySet())

    def numbers(self) -> frozenset[int]:
        """Return the numbers of those that Spark has started and not ended."""
        return _numbers(self._by_id.keySet())

    def is_in_a_stream(self, number: int, query: RunningQuery) -> bool:
        """Whether a query runs inside a batch of a stream, or may do so."""
        if query.record.outermost == number:
            return False
        outermost = self._executions.getQueryExecution(query.record.outermost)
        return outermost is None or is_of_a_stream(outermost)

    def record(self, position: float) -> QueryRecord | None:
        """Return Spark's record of a query that has ended; ``None`` if there is none."""
        found = self._store.execution(int(position)) if position == int(position) else None
        return QueryRecord(found.get()) if found is not None and found.isDefined() else None

    def started(self) -> dict[int, RunningQuery]:
        """Return the executions that Spark has announced by number, the oldest first: their plans exist."""
        # A Java Long cannot be passed as a key.
        records = {int(entry.getKey()): entry for entry in self._live.entrySet().toArray()}
        found = {int(entry.getKey()): entry for entry in self._by_id.entrySet().toArray()}
        announced = sorted(found.keys() & records.keys())
        return {n: RunningQuery(found[n].getValue(), QueryRecord(records[n].getValue())) for n in announced}


def _numbers(keys: Any) -> frozenset[int]:
    return frozenset(int(number) for number in str(keys.toString()).strip("[]").split(",") if number)
