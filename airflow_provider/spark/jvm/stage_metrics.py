"""Read what Spark's listeners have counted of a shuffle's tasks: rows, bytes and time, of each task if available.

Spark's SQL tab keeps the metrics of every task of a stage while its execution runs
(``SQLAppStatusListener.stageMetrics``), even without a UI. They arrive a little after the tasks end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_provider.spark.jvm.compiled import compiled
from airflow_provider.spark.jvm.reflection import private_field


@dataclass(frozen=True)
class StageMetrics:
    """What is known of the tasks of one stage.

    :ivar seconds: task time of the tasks that have ended
    :ivar ended: how many have
    :ivar values: metric's id → index of the map task → value, of tasks that have ended
    """

    seconds: float
    ended: int
    values: dict[int, dict[int, int]] = field(default_factory=dict)

    @property
    def per_task(self) -> float:
        """Average seconds of a task."""
        return self.seconds / self.ended if self.ended else 0.0


class StageMetricsReader:
    """Reads the listeners of one application."""

    def __init__(self, spark: Any) -> None:
        self._queries = spark._jsparkSession.sharedState().statusStore()
        listener = self._queries.listener().get()
        self._live = private_field(listener, "stageMetrics")
        self._stages = spark._jsc.sc().statusStore()
        self._look = compiled(spark, "ShuffleLook", str)

    def stage_of(self, metric: int, rdd: int) -> int | None:
        """Return the stage of a shuffle's map tasks; ``None`` if Spark does not know it, or no longer does.

        :param metric: id of an accumulator that its tasks count while the query runs
        :param rdd: id of the RDD that its tasks compute
        """
        found = int(self._look.stageThatCounts(self._live, str(metric)))
        if found < 0:
            found = int(self._look.stageThatComputes(self._stages, rdd))
        return found if found >= 0 else None

    def seconds_before(self, stage: int, rdd: int) -> float:
        """Return the task time of the first stage that has computed an RDD; 0 if that is *stage*, or is not known."""
        first = min(self.computing(rdd), default=stage)
        return int(str(self._look.ended(self._stages, first)).split()[1]) / 1000 if first < stage else 0.0

    def filling(self, rdd: int, tasks: int) -> tuple[float, int]:
        """Return the task time in which a cached RDD was filled, and how many tasks have ended.

        The first action may have filled a part of it: stages count until as many tasks have ended. Later ones read it.

        :param tasks: number of partitions that are filled
        """
        seconds, ended = 0.0, 0
        for stage in sorted(self.computing(rdd)):
            if ended >= tasks:
                break
            more, millis, _ = map(int, str(self._look.ended(self._stages, stage)).split())
            seconds, ended = seconds + millis / 1000, ended + more
        return seconds, ended

    def computing(self, rdd: int) -> frozenset[int]:
        """Return the stages that have computed an RDD, or do so now."""
        return frozenset(map(int, str(self._look.allThatCompute(self._stages, rdd)).split()))

    def queries_of(self, stages: frozenset[int]) -> dict[int, int]:
        """Return the query that has run each of the stages, as far as Spark knows it."""
        lines = str(self._look.queriesThatRan(self._queries, " ".join(map(str, stages)))).splitlines()
        return {int(stage): int(query) for stage, query in map(str.split, lines)}

    def read(self, stage: int, maps: int, metrics: tuple[int, ...]) -> StageMetrics:
        """Return what is known of a stage.

        :param maps: number of map tasks; a stage that runs only some of them numbers these anew, and says nothing here
        :param metrics: ids of accumulators to return by task
        """
        ended, millis, tasks = map(int, str(self._look.ended(self._stages, stage)).split())
        if tasks != maps:
            return StageMetrics(millis / 1000, ended)
        values: dict[int, dict[int, int]] = {metric: {} for metric in metrics}
        for line in str(self._look.counts(self._live, stage, maps, " ".join(map(str, metrics)))).splitlines():
            index, *counted = map(int, line.split())
            for metric, value in zip(metrics, counted, strict=True):
                values[metric][index] = value
        values = {metric: counts for metric, counts in values.items() if counts}
        return StageMetrics(millis / 1000, ended, values)

    def records(self, stage: int) -> dict[int, int]:
        """Return how many records the tasks of a stage have written, by the index of their partition.

        Spark knows these longer than what :meth:`read` returns, also of a stage that runs only some of its tasks or
        belongs to no query. To ask takes longer.
        """
        pairs = (line.split() for line in str(self._look.records(self._stages, stage)).splitlines())
        return {int(index): int(count) for index, count in pairs}
