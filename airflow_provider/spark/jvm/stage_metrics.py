"""What Spark's listeners have counted of the tasks of a shuffle: rows, bytes and time, of each task where they say so.

Spark's SQL tab keeps the metrics of every task of a stage as long as its execution is under way
(``SQLAppStatusListener.stageMetrics``), also where there is no UI. They come a little later than the tasks' ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from airflow_provider.spark.jvm.reflection import field_of, private_field
from airflow_provider.spark.jvm.scala import items

_METRIC = re.compile(r"(\d+)=\[J@")
"""The id of a metric, as Java prints the entry of an array of numbers."""


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
        self._spark = spark
        self._live = private_field(listener, "stageMetrics")
        self._stages = spark._jsc.sc().statusStore()
        self._arrays = spark._jvm.java.util.Arrays
        self._fields: dict[str, Any] = {}

    def stage_of(self, metric: int, rdd: int) -> int | None:
        """Return the stage of a shuffle's map tasks; ``None`` if Spark does not know it, or not any more.

        :param metric: id of an accumulator that its tasks count, as long as the query is under way
        :param rdd: id of the RDD that its tasks compute
        """
        found = [int(live.stageId()) for live in self._stages_alive() if metric in self._counted(live)[1]]
        if found:
            return max(found)
        jvm, nothing = self._spark._jvm, self._spark.sparkContext._gateway.new_array(self._spark._jvm.double, 0)
        every = jvm.java.util.ArrayList()
        stages = self._stages.stageList(every, False, False, nothing, every)
        ids = [int(s.stageId()) for s in items(stages) if s.rddIds().contains(rdd) and s.numCompleteTasks()]
        return max(ids, default=None)

    def read(self, stage: int, maps: int, metrics: tuple[int, ...]) -> StageMetrics:
        """Return what is known of a stage.

        :param maps: number of map tasks; a stage that runs some of them says nothing of the single ones
        :param metrics: ids of accumulators to return by task
        """
        data = self._stages.lastStageAttempt(stage)
        values: dict[int, dict[int, int]] = {}
        live = self._live.get(stage)
        if live is not None and int(live.numTasks()) == maps:
            listed = str(self._field(live, "completedIndices").mkString(","))
            ended = [int(index) for index in listed.split(",") if index]
            entries, counted = self._counted(live)
            for metric in metrics:
                if metric in counted:
                    value = entries[counted.index(metric)].getValue()
                    numbers = str(self._arrays.toString(value)).strip("[]").split(", ")
                    values[metric] = {index: int(numbers[index]) for index in ended if index < len(numbers)}
        return StageMetrics(stage, int(data.executorRunTime()) / 1000, int(data.numCompleteTasks()), values)

    def _stages_alive(self) -> list[Any]:
        """Return the stages of executions that are under way.

        By an array: at the end of an iterator of Java's there is an exception, which PySpark asks a dozen questions.
        """
        return [entry.getValue() for entry in self._live.entrySet().toArray()]

    def _counted(self, live: Any) -> tuple[Any, list[int]]:
        """Return what the tasks of a stage have counted: entries whose values are arrays by task, and the id of the
        metric of each. To get an entry takes a request, so none is got here.
        """
        entries = self._field(live, "taskMetrics").entrySet().toArray()
        return entries, [int(number) for number in _METRIC.findall(str(self._arrays.toString(entries)))]

    def _field(self, live: Any, name: str) -> Any:
        if name not in self._fields:
            self._fields[name] = field_of(live, name)
        return self._fields[name].get(live)
