"""Make the query stages of an adaptive plan before its action does.

``AdaptiveSparkPlanExec`` turns a plan into query stages from the bottom up, and looks into its stage cache first. The
stages made here stay in that cache, so the action that follows uses them. The steps are Spark's own
(``createQueryStages``, ``replaceWithQueryStagesInLogicalPlan``, ``reOptimize``), in the order of
``getFinalPhysicalPlan``. No step runs a task, except for stages that the caller chooses to run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from airflow_provider.spark.jvm.exchanges import (
    ADAPTIVE,
    CACHED_SCAN,
    CACHED_STAGE,
    SHUFFLE_EXCHANGE,
    cached_plan,
    is_filled,
    kind,
)
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.reflection import private_method
from airflow_provider.spark.jvm.scala import items, to_seq

_ROUNDS = 1000
"""More levels than any plan has."""


class AdaptivePlan:
    """The adaptive plan of a query that has not started.

    :param spark: the session
    :param plan: an ``AdaptiveSparkPlanExec``
    :ivar last: its last stage, if all before it are there or pass for it after it went ahead; else ``None``
    :ivar complete: whether nothing is left to run but its last stage, after it went ahead
    """

    def __init__(self, spark: Any, plan: Any) -> None:
        self._spark = spark
        self._plan = plan
        self.complete = False
        self.last: Any = None
        self._create = "createNonResultQueryStages" if spark.version >= "4" else "createQueryStages"

    @property
    def initial(self) -> Any:
        """The plan before anything of it has run."""
        return self._plan.initialPlan()

    @property
    def holds_shuffle(self) -> bool:
        """Whether the initial plan contains a shuffle."""
        return any(True for _ in self.shuffles())

    def shuffles(self) -> Iterator[Any]:
        """Yield the shuffles of the initial plan."""
        return (node for node in _nodes(self._plan.initialPlan()) if kind(node) == SHUFFLE_EXCHANGE)

    @property
    def barred(self) -> str:
        """Why nothing can be put back into it; empty if something can.

        Spark looks for metrics of observed rows in the plan after it has run, but not below a stage from its cache.
        """
        if not self._plan.conf().exchangeReuseEnabled():
            return "spark.sql.exchange.reuse is off"
        observed = any(kind(node) == "CollectMetricsExec" for node in _nodes(self._plan.initialPlan()))
        return "its rows are observed" if observed else ""

    @property
    def stages(self) -> Any:
        """Its cache of stages, by what they run: a Scala map."""
        return self._plan.context().stageCache()

    @property
    def has_begun(self) -> bool:
        """Whether stages were made of the plan, in this thread or another."""
        return bool(self._plan.isFinalPlan()) or not self.stages.isEmpty()

    def go_ahead(self, ready: Callable[[Any], Any], run: Callable[[Sequence[Any]], Mapping[int, Any]]) -> list[Any]:
        """Make stages from the bottom up, as far as their inputs are available.

        :param ready: given a new stage, returns its result, or ``None`` if it must run
        :param run: given the stages that must run before others can be made, runs some of them and returns the results
            of those that have ended, by position; empty to stop
        :returns: the stages that were made and have no result yet
        """
        # Use a copy: the action resets the metrics of the plan itself to 0 before it runs, but not those of its
        # stages.
        current, made = self._plan.initialPlan().clone(), list[Any]()
        logical = self._plan.inputPlan().logicalLink().get()
        # It has a state of its own, but the same stage cache.
        plan = self._plan.copy(*(self._plan.productElement(place) for place in range(self._plan.productArity())))
        results: list[tuple[Any, Any]] = []
        waiting: list[Any] = []
        try:
            for _ in range(_ROUNDS):
                result = private_method(jvm_of(self._spark), plan, self._create, current)
                current = result.newPlan()
                private_method(jvm_of(self._spark), plan, "currentPhysicalPlan_$eq", current)
                if result.allChildStagesMaterialized():
                    self.last = current
                    self.complete = all(map(_is_there, _nodes(current)))
                    break
                new = list(items(result.newStages()))
                made = new + made
                outcomes = [(stage, ready(stage)) for stage in new]
                there = [(stage, outcome) for stage, outcome in outcomes if outcome is not None]
                waiting += [stage for stage, outcome in outcomes if outcome is None]
                if not there:
                    left = {int(node.id()) for node in _nodes(current) if kind(node).endswith("QueryStageExec")}
                    waiting = [stage for stage in waiting if int(stage.id()) in left]
                    ended = run(waiting)
                    there = [(waiting[place], outcome) for place, outcome in ended.items()]
                    waiting = [stage for place, stage in enumerate(waiting) if place not in ended]
                if not there:
                    break
                for stage, outcome in there:
                    stage.resultOption().set(jvm_of(self._spark).scala.Some(outcome))
                results += there
                current, logical, made = self._optimized(plan, current, logical, made)
        finally:
            # Adaptive execution goes on only from stages that it sees complete.
            for stage, _ in results:
                stage.resultOption().set(jvm_of(self._spark).scala.Option.empty())

        return waiting

    def forget(self, stage: Any) -> None:
        """Let adaptive execution make a stage itself."""
        self.stages.remove(stage.plan().canonicalized())

    def _optimized(self, plan: Any, current: Any, logical: Any, made: list[Any]) -> tuple[Any, Any, list[Any]]:
        """Plan again with what is known of the available stages, if the new plan costs no more."""
        jvm = jvm_of(self._spark)
        stages = to_seq(jvm, made)
        replaced = private_method(jvm, plan, "replaceWithQueryStagesInLogicalPlan", logical, stages)
        found = private_method(jvm, plan, "reOptimize", replaced)
        if hasattr(found, "isDefined"):
            if not found.isDefined():
                return current, logical, made
            found = found.get()
        physical, optimized = found._1(), found._2()
        evaluator = private_method(jvm, plan, "costEvaluator")
        before, after = evaluator.evaluateCost(current), evaluator.evaluateCost(physical)
        order = int(after.compare(before))
        if order < 0 or (order == 0 and not current.equals(physical)):
            private_method(jvm, plan, "cleanUpTempTags", physical)
            return physical, optimized, []
        return current, logical, made


def adaptive_plans(plan: Any, spark: Any, cached: int | None = None) -> Iterator[tuple[Any, int | None]]:
    """Yield the adaptive plans in a physical plan that has not started, subqueries and cached frames first; each with
    the number of the cached frame's plan that contains it.
    """
    subqueries = jvm_of(spark).org.apache.spark.sql.catalyst.trees.TreePattern.PLAN_EXPRESSION()
    for node in _nodes(plan):
        name = kind(node)
        if name == ADAPTIVE:
            yield from adaptive_plans(node.initialPlan(), spark, cached)
            yield node, cached
        elif name == CACHED_SCAN:
            relation = node.relation()
            if not is_filled(relation):
                yield from adaptive_plans(relation.cachedPlan(), spark, cached_plan(relation))
        elif node.containsPattern(subqueries):
            for subquery in items(node.subqueries()):
                yield from adaptive_plans(subquery, spark, cached)


def runs_later(plan: Any) -> bool:
    """Whether a plan's shuffles run in the job that asks for its rows, not as soon as the plan becomes an RDD."""
    return kind(plan) != ADAPTIVE and any(True for _ in static_shuffles(plan))


def has_begun(spark: Any, plan: Any) -> bool:
    """Whether stages were made of the adaptive plans in a physical plan."""
    return any(AdaptivePlan(spark, each).has_begun for each, _ in adaptive_plans(plan, spark))


def _is_there(node: Any) -> bool:
    """Whether a node of a plan whose stages are there is not a cached frame that only passed for filled."""
    return kind(node) != CACHED_STAGE or is_filled(node.plan().relation())


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in items(plan.children()):
        yield from _nodes(child)


def static_shuffles(plan: Any) -> Iterator[Any]:
    """Yield the shuffles of a plan without adaptive execution, lower ones first; none of a cached frame's."""
    for child in items(plan.children()):
        yield from static_shuffles(child)
    if kind(plan) == SHUFFLE_EXCHANGE:
        yield plan
