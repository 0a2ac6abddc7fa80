"""The executors of an application, and tasks that have to run on a certain one.

Spark has no such tasks; a preference for an executor is nearly always met while that executor lives. Where a task ran
is known afterwards.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from airflow_provider.spark.jvm.reflection import of_environment
from airflow_provider.spark.jvm.scala import items, to_seq
from airflow_provider.spark.map_output import LocalDirs
from airflow_provider.spark.scratch import LOCAL_DIRS

DRIVER = "driver"
"""The id of the one executor of a local master."""

_ALL = 2**31 - 1

Work = TypeVar("Work")
Answer = TypeVar("Answer")


def is_local(spark: Any) -> bool:
    """Whether the driver is the only executor."""
    return str(spark.sparkContext.master).startswith("local")


def block_managers(spark: Any) -> dict[str, Any]:
    """Return the block manager of each executor by its id; of a local master the driver's.

    That is asked for directly: Spark forgets it for a moment when a shuffle file is lost.
    """
    manager = _block_manager(spark)
    if is_local(spark):
        return {DRIVER: manager.blockManagerId()}
    known = {str(place.executorId()): place for place in items(manager.master().getMemoryStatus().keys().toSeq())}
    return {executor: place for executor, place in known.items() if executor != DRIVER}


def executors(spark: Any) -> list[tuple[str, str]]:
    """Return id and host of each executor."""
    return sorted((executor, str(place.host())) for executor, place in block_managers(spark).items())


def wait_for_executor(spark: Any) -> None:
    """Return once an executor is there: a small task makes Spark ask for one, and waits for it."""
    on_executors(spark, {("", ""): [0]}, lambda _, work: work)


def on_executors(
    spark: Any,
    work: Mapping[tuple[str, str], Sequence[Work]],
    do: Callable[[LocalDirs, Sequence[Work]], Iterable[Answer]],
) -> list[tuple[str, Answer]]:
    """Do each executor's work there; return its answers with the id of the executor that gave them.

    :param work: id and host of an executor to what it is to do
    :param do: called with the local directories of an executor; picklable
    """
    fanout = int(spark._jsc.sc().conf().getInt("spark.diskStore.subDirectories", 64))
    if is_local(spark):
        manager = _block_manager(spark).diskBlockManager()
        dirs = LocalDirs(tuple(str(path) for path in manager.localDirsString()), fanout)
        return [(executor, answer) for (executor, _), own in work.items() for answer in do(dirs, own)]

    def task(parts: Iterable[Sequence[Work]]) -> Iterator[tuple[int, int, int, Answer]]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None  # noqa: S101 - Spark sets it in every task
        here = LocalDirs(tuple(os.environ[LOCAL_DIRS].split(",")), fanout)
        for own in parts:
            for answer in do(here, own):
                yield context.stageId(), context.attemptNumber(), context.taskAttemptId(), answer

    answers = _located(spark, work).mapPartitions(task).collect()
    ran = _where(spark, {stage for stage, *_ in answers})
    return [(ran[number], answer) for *_, number, answer in answers if number in ran]


def _located(spark: Any, work: Mapping[tuple[str, str], Sequence[Any]]) -> Any:
    """Return an RDD with a partition for each executor, which it is to run on."""
    from pyspark import RDD
    from pyspark.serializers import CPickleSerializer

    jvm, serializer = spark._jvm, CPickleSerializer()
    tuples = [
        jvm.scala.Tuple2(serializer.dumps(list(own)), to_seq(jvm, [f"executor_{host}_{executor}"]))  # type: ignore[no-untyped-call]
        for (executor, host), own in work.items()
    ]
    kind = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    rdd = spark._jsc.sc().makeRDD(to_seq(jvm, tuples), kind)
    return RDD(rdd.toJavaRDD(), spark.sparkContext, serializer)


def _block_manager(spark: Any) -> Any:
    return of_environment(spark, "blockManager", "org.apache.spark.storage.BlockManager")


def _where(spark: Any, stages: set[int]) -> dict[int, str]:
    """Return on which executor each task of *stages* ran, as far as that is known."""
    context = spark._jsc.sc()
    with suppress(Exception):  # listeners that are far behind: what they have not seen yet is not known
        context.listenerBus().waitUntilEmpty()
    attempts = itertools.product(stages, range(4))
    tasks = (
        task for stage, attempt in attempts for task in items(context.statusStore().taskList(stage, attempt, _ALL))
    )
    return {int(task.taskId()): str(task.executorId()) for task in tasks}
