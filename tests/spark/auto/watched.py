"""Attempts in auto mode inside this process: one keeps the shuffles of a query that has run, the next puts them back.

The watching thread is left out: a test looks itself, as often as it takes, so that nothing depends on time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.auto.actions import noted_caches, restored_actions
from airflow_provider.spark.auto.restoring import Restorer, restorable
from airflow_provider.spark.auto.seen_shuffles import SeenShuffles
from airflow_provider.spark.auto.watching import Watcher
from airflow_provider.spark.interception import intercepted
from airflow_provider.spark.jvm.exchanges import is_filled as relation_is_filled
from airflow_provider.spark.jvm.exchanges import shuffles_of
from airflow_provider.spark.jvm.reflection import of_environment
from airflow_provider.spark.jvm.relation import cached_below
from airflow_provider.spark.jvm.session_settings import QuerySettings, all_settings
from airflow_provider.spark.local_dirs import LocalDirs
from airflow_provider.spark.points.spark_checkpoints import SparkCheckpoints
from airflow_provider.spark.sinks.once import SinksOnce
from airflow_provider.spark.sinks.take_back import OutputAttempt
from airflow_provider.storage.partition_store import PartitionStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider.spark.context import RecoveryContext
    from tests.spark.attempts import Attempts

EVERYTHING = {"recovery_points": "auto", "overhead_budget": "1e9"}
"""Options with which every shuffle is worth its cost."""

_numbers = itertools.count()


@dataclass
class AutoAttempt:
    """One attempt.

    :ivar wanted: vertices that have survived from earlier attempts
    :ivar restorer: puts them back into the plans of this attempt's actions
    """

    context: RecoveryContext
    application: SeenShuffles
    wanted: set[str]
    restorer: Restorer

    @property
    def _spark(self) -> Any:
        from pyspark.sql import SparkSession

        return SparkSession.getActiveSession()

    def keep(self, df: DataFrame) -> list[str]:
        """Store the shuffles of a query that has run in this process; return what is kept, by name."""
        self.see(df)
        return self.look()

    def look(self) -> list[str]:
        """Look until there is nothing new; return what is kept, by name."""
        for _ in range(30):
            self.application.look()
        return self.kept()

    def see(self, df: DataFrame) -> None:
        """Let the looks see a query that an action of now has run."""
        spark = df.sparkSession
        self.application.note(df._jdf.queryExecution(), QuerySettings(all_settings(spark)))

    def kept(self) -> list[str]:
        """The shuffles that are in the store, whole."""
        vertices = self.application.registry.vertices.values()
        return sorted(vertex.name for vertex in vertices if vertex.sealed)

    def put_back(self) -> dict[str, int]:
        """By name, how many map outputs were put back into plans of this attempt."""
        registry = self.application.registry
        return {registry.vertices[number].name: len(files) for number, files in registry.put_back.items()}

    def restore(self, df: DataFrame) -> bool:
        """Put back what survived into the plan of a query, as its action does first."""
        return self.restorer.before(df.sparkSession, df._jdf.queryExecution())

    def restored_files(self) -> list[tuple[Path, Path]]:
        """The files of all map outputs that were put back: index and data."""
        manager = of_environment(self._spark, "blockManager", "org.apache.spark.storage.BlockManager")
        dirs = LocalDirs(tuple(str(path) for path in manager.diskBlockManager().localDirsString()))
        files = self.application.registry.put_back.values()
        return [(dirs.file(output.index), dirs.file(output.data)) for each in files for _, output in each]

    def stored_files(self) -> list[Path]:
        """The objects of the job's map outputs in the store: descriptions, and blocks behind each."""
        root = Path(self.context.master.store.uri.removeprefix("file://")) / self.context.master.prefix
        return sorted(path for path in root.rglob("*.shuffle*") if path.is_file())

    def lose(self, name: str, *indices: int) -> None:
        """Delete map outputs of a kept shuffle from the store, all of them if none is named."""
        vertices = {vertex.vertex for vertex in self.application.registry.vertices.values() if vertex.name == name}
        partitions = PartitionStore(self.context.master.store, self.context.master.prefix)
        survivors = [each for vertex, stored in partitions.survivors().items() if vertex in vertices for each in stored]
        partitions.delete(each for each in survivors if not indices or each.index in indices)
        assert survivors

    def skipped(self) -> str:
        """Why shuffles of this attempt are not kept."""
        newest = self.context.master.graph.newest
        assert newest is not None
        return "; ".join(event.reason for event in newest.skipped)


@contextmanager
def auto_attempt(attempts: Attempts, spark: SparkSession, *, restores: bool = True) -> Iterator[AutoAttempt]:
    """An attempt in auto mode, whose actions begin with what survived.

    :param restores: false for one that has found nothing at its start, whose actions are plain Spark's
    """
    attempts.options = {**EVERYTHING, **attempts.options}
    with attempts.attempt() as context:
        watcher = Watcher(context)
        application = watcher.application()
        assert application is not None
        wanted = restorable(context)
        restorer = Restorer(context, watcher, wanted)
        sinks = SinksOnce(context, OutputAttempt(context.master))
        restored = [restored_actions(restorer)] if restores else []
        with intercepted(
            sinks.stages(), SparkCheckpoints(context).stages(), *restored, noted_caches(context, restorer)
        ):
            yield AutoAttempt(context, application, wanted, restorer)


def is_filled(cached: DataFrame) -> bool:
    """Whether all partitions of a cached frame are there."""
    (relation,) = cached_below(cached)
    return relation_is_filled(relation)


@contextmanager
def job_group(spark: SparkSession, group: str) -> Iterator[str]:
    """Jobs that this thread starts inside belong to a group."""
    spark.sparkContext.setJobGroup(group, group)
    try:
        yield group
    finally:
        spark.sparkContext._jsc.clearJobGroup()


def jobs_of(spark: SparkSession, group: str | None) -> int:
    """How many jobs of a group Spark has begun; ``None`` for those of no group."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def tasks_run(spark: SparkSession, run: Any) -> int:
    """Run something; return how many tasks Spark ran for it."""
    group = f"tasks-{next(_numbers)}"  # not by an id, which another function may have had
    with job_group(spark, group):
        run()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
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


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session that hold inside."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
