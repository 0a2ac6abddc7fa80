"""Attempts in auto mode inside this process: one keeps the shuffles of a query that has run, the next puts them back.

The watching thread is left out: a test looks itself, as often as it takes, so that nothing depends on time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.auto.actions import restoring_actions
from airflow_provider.spark.auto.restoring import Restorer, restorable
from airflow_provider.spark.auto.watching import Application, Watcher
from airflow_provider.spark.jvm.exchanges import shuffles_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider.spark.context import RecoveryContext
    from tests.spark.attempts import Attempts

EVERYTHING = {"recovery_points": "auto", "overhead_budget": "1e9"}
"""Options with which every shuffle is worth its cost."""


@dataclass
class AutoAttempt:
    """One attempt.

    :ivar wanted: vertices that have survived from earlier attempts
    """

    context: RecoveryContext
    application: Application
    wanted: set[str]

    def keep(self, df: DataFrame) -> list[str]:
        """Store the shuffles of a query that has run in this process; return what is kept, by name."""
        execution = df._jdf.queryExecution()
        self.application.note(execution)
        for _ in range(30):
            self.application.look()
        return self.kept()

    def kept(self) -> list[str]:
        """The shuffles that are in the store, whole."""
        vertices = self.application.registry.vertices.values()
        return sorted(vertex.name for vertex in vertices if vertex.sealed)

    def put_back(self) -> dict[str, int]:
        """By name, how many map outputs were put back into plans of this attempt."""
        registry = self.application.registry
        return {registry.vertices[number].name: len(files) for number, files in registry.put_back.items()}

    def skipped(self) -> str:
        """Why shuffles of this attempt are not kept."""
        newest = self.context.master.graph.newest
        assert newest is not None
        return "; ".join(event.reason for event in newest.skipped)


@contextmanager
def auto_attempt(attempts: Attempts, spark: SparkSession) -> Iterator[AutoAttempt]:
    """An attempt in auto mode, whose actions begin with what survived."""
    attempts.options = {**EVERYTHING, **attempts.options}
    with attempts.attempt() as context:
        watcher = Watcher(context)
        application = watcher.application()
        assert application is not None
        wanted = restorable(context)
        with restoring_actions(Restorer(context, watcher, wanted)):
            yield AutoAttempt(context, application, wanted)


def tasks_run(spark: SparkSession, run: Any) -> int:
    """Run something; return how many tasks Spark ran for it."""
    group = f"tasks-of-{id(run)}"
    spark.sparkContext.setJobGroup(group, "counted")
    try:
        run()
    finally:
        spark.sparkContext._jsc.clearJobGroup()  # type: ignore[union-attr]
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # type: ignore[union-attr]
    tracker = spark.sparkContext.statusTracker()
    stages = {
        stage
        for job in tracker.getJobIdsForGroup(group)
        if (info := tracker.getJobInfo(job)) is not None
        for stage in info.stageIds
    }
    infos = (tracker.getStageInfo(stage) for stage in stages)
    return sum(info.numCompletedTasks for info in infos if info is not None)


def shuffle_numbers(spark: SparkSession, df: DataFrame) -> list[int]:
    """Spark's numbers of the shuffles of a query that has run."""
    plan = df._jdf.queryExecution().executedPlan()
    return sorted(shuffle.number for shuffle in shuffles_of(plan, spark, set()))
