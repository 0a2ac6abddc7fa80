"""What Spark's listeners have counted of the tasks of a shuffle: rows, bytes and time, of each task where they say so.

Spark's SQL tab keeps the metrics of every task of a stage as long as its execution is under way
(``SQLAppStatusListener.stageMetrics``), also where there is no UI. They come a little later than the tasks' ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_provider.spark.jvm.reflection import private_field


@dataclass(frozen=True)
class StageMetrics:
    """What is known of the tasks of one stage.

    :ivar stage: Spark's stage id
    :ivar seconds: task time of the tasks that have ended
    :ivar ended: how many have
    :ivar values: metric's id → index of the map task → value, of tasks that have ended
    """

    stage: int
    seconds: float
    ended: int
    values: dict[int, dict[int, int]] = field(default_factory=dict)

    @property
    def per_task(self) -> float:
        """Seconds of a task, on average."""
        return self.seconds / self.ended if self.ended else 0.0


class StageMetricsReader:
    """Reads the listeners of one application."""

    def __init__(self, spark: Any) -> None:
        listener = spark._jsparkSession.sharedState().statusStore().listener().get()
        self._live = private_field(listener, "stageMetrics")
        self._stages = spark._jsc.sc().statusStore()
        self._arrays = spark._jvm.java.util.Arrays

    def stage_of(self, metric: int) -> int | None:
        """Return the stage whose tasks count *metric*, an accumulator's id, now; the newest if there are several."""
        found = [live for live in self._live.values() if live.accumIdsToMetricType().contains(metric)]
        return max((int(live.stageId()) for live in found), default=None)

    def read(self, stage: int, maps: int, metrics: tuple[int, ...]) -> StageMetrics:
        """Return what is known of a stage.

        :param maps: number of map tasks; a stage that runs some of them says nothing of the single ones
        :param metrics: ids of accumulators to return by task
        """
        data = self._stages.lastStageAttempt(stage)
        values: dict[int, dict[int, int]] = {}
        for live in self._live.values():
            if int(live.stageId()) != stage or int(live.numTasks()) != maps:
                continue
            listed = str(private_field(live, "completedIndices").mkString(","))
            ended = [int(index) for index in listed.split(",") if index]
            counted = {int(e.getKey()): e.getValue() for e in private_field(live, "taskMetrics").entrySet()}
            for metric in metrics:
                if metric not in counted:
                    values[metric] = dict.fromkeys(ended, 0)  # no task has counted anything
                    continue
                numbers = str(self._arrays.toString(counted[metric])).strip("[]").split(", ")
                values[metric] = {index: int(numbers[index]) for index in ended if index < len(numbers)}
        return StageMetrics(stage, int(data.executorRunTime()) / 1000, int(data.numCompleteTasks()), values)
