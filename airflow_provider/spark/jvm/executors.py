"""The executors of an application, and tasks that run on a certain executor, or on any.

Spark cannot pin a task to an executor, but a preference for a living executor is nearly always met. Where a task ran is
known afterwards. The script's own tasks come first, but not for ever: in a stage of hours, what its tasks have written
would be stored only when the last of them has a core.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar

from airflow_provider.spark.jvm.compiled import compiled
from airflow_provider.spark.jvm.execution import local_properties
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.reflection import of_environment
from airflow_provider.spark.jvm.scala import items, to_seq
from airflow_provider.spark.jvm.task_times import OURS, PURPOSE
from airflow_provider.spark.local_dirs import LOCAL_DIRS, LocalDirs

log = logging.getLogger(__name__)

DRIVER = "driver"
"""The id of the only executor of a local master."""

_ALL = 2**31 - 1
_PAUSE = 0.1
"""Seconds between two checks for new executors."""
_WORTH_SAYING = 1.0
"""Seconds from which on a wait for executors is logged."""
_OWN_TASKS_FIRST = 5.0
"""Seconds for which tasks of recovery wait behind all tasks of the script; then they get the next free cores."""

Work = TypeVar("Work")
Answer = TypeVar("Answer")


def is_local(spark: Any) -> bool:
    """Whether the driver is the only executor; with ``local-cluster[…]`` it is not."""
    return str(spark.sparkContext.master).partition("[")[0] == "local"


def shuffle_servers(spark: Any) -> dict[str, Any]:
    """Return, by executor, what serves the map outputs in its directories: its own ``BlockManager.shuffleServerId``.

    That is the executor's block manager, or the external shuffle service of its machine, which is told whose
    directories to serve. With a local master it is the driver's block manager, asked for directly, because Spark
    forgets it for a moment when a shuffle file is lost.
    """
    manager = block_manager(spark)
    if is_local(spark):
        return {DRIVER: manager.shuffleServerId()}
    known = {str(place.executorId()): place for place in items(manager.master().getMemoryStatus().keys().toSeq())}
    own = {executor: place for executor, place in known.items() if executor != DRIVER}
    if not has_shuffle_service(spark):
        return own
    server, nowhere = jvm_of(spark).org.apache.spark.storage.BlockManagerId, jvm_of(spark).scala.Option.empty()
    port = manager.shuffleServerId().port()
    return {executor: server.apply(executor, place.host(), port, nowhere) for executor, place in own.items()}


def has_shuffle_service(spark: Any) -> bool:
    """Whether an external shuffle service serves the files of executors, even after these have gone.

    It is part of YARN's node managers or of standalone workers, and serves all executors of a machine
    (``spark.shuffle.service.enabled``).
    """
    return not is_local(spark) and bool(block_manager(spark).externalShuffleServiceEnabled())


def executors(spark: Any) -> list[tuple[str, str]]:
    """Return id and host of each executor."""
    return sorted((executor, str(place.host())) for executor, place in shuffle_servers(spark).items())


def wait_for_executors(spark: Any, seconds: float) -> int:
    """Wait for the executors that the application asks for at its start; return how many there are, or may still come.

    On YARN and Kubernetes, Spark itself waits for as many and as long as two settings say
    (``CoarseGrainedSchedulerBackend.isReady``). Here their values hold for any cluster.

    :param seconds: how long at most, even if Spark would wait longer
    """
    if is_local(spark):
        return 1
    context = spark._jsc.sc()
    conf, asked = context.conf(), _asked_for(spark)
    enough = math.ceil(asked * conf.getDouble("spark.scheduler.minRegisteredResourcesRatio", 0.8))
    longest = conf.getTimeAsMs("spark.scheduler.maxRegisteredResourcesWaitingTime", "30s")
    patience = min(seconds, (context.startTime() + longest) / 1000 - time.time())
    there, end = _registered(context), time.monotonic() + patience
    if there < enough and patience >= _WORTH_SAYING:
        log.info("Waiting up to %.0f s for executors: %d of %d have registered", patience, there, asked)
    while there < enough and time.monotonic() < end:
        time.sleep(_PAUSE)
        there = _registered(context)
    return max(there, asked, 1)


def _asked_for(spark: Any) -> int:
    """Return how many executors an application asks for at its start; 0 if it leaves that to the cluster."""
    conf, master = spark._jsc.sc().conf(), str(spark.sparkContext.master)
    if master.startswith("spark:") and not allocates_dynamically(spark):
        return int(conf.getInt("spark.cores.max", 0) // conf.getInt("spark.executor.cores", _ALL))
    default = 2 if master.startswith(("yarn", "k8s:")) else 0
    utils = jvm_of(spark).org.apache.spark.scheduler.cluster.SchedulerBackendUtils
    return int(utils.getInitialTargetExecutorNumber(conf, default))


def _registered(context: Any) -> int:
    """Return the number of executors; Spark's list also has the driver."""
    return int(context.getExecutorMemoryStatus().size()) - 1


def allocates_dynamically(spark: Any) -> bool:
    """Whether Spark requests and releases executors as it has tasks for them."""
    return bool(spark._jsc.sc().conf().getBoolean("spark.dynamicAllocation.enabled", False)) and not is_local(spark)


def report_shuffle_file(spark: Any, place: Any, shuffle: int, task: int) -> None:
    """Tell dynamic allocation that an executor holds a shuffle file, so that it is not released as idle.

    Dynamic allocation learns of shuffles from map tasks that end, and from an executor's report that it received a file
    from a decommissioned one (``IndexShuffleBlockResolver.putShuffleBlockAsStream``): this is that report.

    :param place: the block manager of the executor
    """
    storage = jvm_of(spark).org.apache.spark.storage
    block, level = storage.ShuffleDataBlockId(shuffle, task, 0), storage.StorageLevel.DISK_ONLY()
    block_manager(spark).master().updateBlockInfo(place, block, level, 0, 0)


def on_executors(
    spark: Any,
    work: Mapping[tuple[str, str], Sequence[Work]],
    do: Callable[[LocalDirs, Sequence[Work]], Iterable[Answer]],
) -> list[tuple[str, Answer]]:
    """Do each executor's work there; return its answers with the id of the executor that gave them.

    :param work: id and host of an executor → its work
    :param do: called with the local directories of an executor; picklable
    """
    return _run(spark, [(own, [f"executor_{host}_{executor}"]) for (executor, host), own in work.items()], do)


def on_any_executors(
    spark: Any, parts: Iterable[Sequence[Work]], do: Callable[[LocalDirs, Sequence[Work]], Iterable[Answer]]
) -> list[tuple[str, Answer]]:
    """Do *parts* wherever Spark's scheduler has a free core, also on executors that come meanwhile.

    Without any executor, it waits for the first, which dynamic allocation asks for. Otherwise as :func:`on_executors`.
    """
    return _run(spark, [(own, []) for own in parts], do)


def _run(
    spark: Any,
    parts: Sequence[tuple[Sequence[Work], list[str]]],
    do: Callable[[LocalDirs, Sequence[Work]], Iterable[Answer]],
) -> list[tuple[str, Answer]]:
    """Do each part in a task of its own.

    :param parts: work, and where Spark should do it
    """
    fanout = fanout_of(spark)
    if is_local(spark):
        manager = block_manager(spark).diskBlockManager()
        dirs = LocalDirs(tuple(str(path) for path in manager.localDirsString()), fanout)
        return [(DRIVER, answer) for own, _ in parts for answer in do(dirs, own)]

    def task(partition: Iterable[Sequence[Work]]) -> Iterator[tuple[int, int, int, Answer]]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None  # noqa: S101 - Spark sets it in every task
        here = LocalDirs(tuple(os.environ[LOCAL_DIRS].split(",")), fanout)
        for own in partition:
            for answer in do(here, own):
                yield context.stageId(), context.attemptNumber(), context.taskAttemptId(), answer

    with local_properties(spark.sparkContext, OURS), _waiting_no_longer_than(spark, _OWN_TASKS_FIRST):
        answers = _located(spark, parts).mapPartitions(task).collect()
    ran = _where(spark, {stage for stage, *_ in answers})
    return [(ran[number], answer) for *_, number, answer in answers if number in ran]


@contextmanager
def _waiting_no_longer_than(spark: Any, seconds: float) -> Iterator[None]:
    """Let tasks of recovery have the next free cores, after a while, as long as the block runs."""
    with ExitStack() as stack:
        try:
            line = compiled(spark, "FirstInLine", lambda: f"{PURPOSE} {OURS[PURPOSE]}")
            stack.callback(line.begin(spark._jsc.sc(), round(seconds * 1000)).end)
        except Exception:  # a Spark with another scheduler: they wait for all tasks of the script
            log.debug("Tasks of recovery cannot be moved forward", exc_info=True)
        yield


def fanout_of(spark: Any) -> int:
    """Return how many folders an executor has in each of its directories, see :class:`LocalDirs`."""
    return int(spark._jsc.sc().conf().getInt("spark.diskStore.subDirectories", 64))


def _located(spark: Any, parts: Sequence[tuple[Sequence[Any], list[str]]]) -> Any:
    """Return an RDD with one partition for each part, and the places that it prefers."""
    from pyspark import RDD
    from pyspark.serializers import CPickleSerializer

    jvm, serializer = jvm_of(spark), CPickleSerializer()
    tuples = [
        jvm.scala.Tuple2(serializer.dumps(list(own)), to_seq(jvm, places))  # type: ignore[no-untyped-call]
        for own, places in parts
    ]
    kind = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    rdd = spark._jsc.sc().makeRDD(to_seq(jvm, tuples), kind)
    return RDD(rdd.toJavaRDD(), spark.sparkContext, serializer)


def block_manager(spark: Any) -> Any:
    """Return the driver's block manager."""
    return of_environment(spark, "blockManager", "org.apache.spark.storage.BlockManager")


def _where(spark: Any, stages: set[int]) -> dict[int, str]:
    """Return the executor on which each task of *stages* ran, as far as known."""
    context = spark._jsc.sc()
    with suppress(Exception):  # the listeners are far behind: what they have not seen yet is unknown
        context.listenerBus().waitUntilEmpty()
    attempts = itertools.product(stages, range(4))
    tasks = (
        task for stage, attempt in attempts for task in items(context.statusStore().taskList(stage, attempt, _ALL))
    )
    return {int(task.taskId()): str(task.executorId()) for task in tasks}
