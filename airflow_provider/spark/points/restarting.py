"""Compute a vertex, and fail over inside the application when that fails.

A failed Spark job is answered as Flink answers a failed task: its causes are classified, the restart strategy is asked,
running jobs of the region are cancelled, and after the delay the region runs again. What was stored before the failure
is kept. Stored partitions that turned out missing or damaged are computed again by their own vertex, and the plans that
read them are led to the new ones. What cannot be fixed here fails the attempt; then it is up to Airflow's retry.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider.core.causes import causes, one_line, unreadable_partitions
from airflow_provider.core.errors import Fenced
from airflow_provider.core.executions import ExecutionState
from airflow_provider.core.failover import FailureHandlingResult
from airflow_provider.core.partitions import StoredPartition
from airflow_provider.core.vertex_token import vertex_of
from airflow_provider.spark.jvm.relation import with_sources
from airflow_provider.spark.points.materialize import NotStored, materialize, tag_of
from airflow_provider.spark.points.reading import read_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.identity.recovery_point import RecoveryPoint

log = logging.getLogger(__name__)


def compute(
    context: RecoveryContext, point: RecoveryPoint, because: tuple[str, ...] = ()
) -> dict[int, StoredPartition]:
    """Compute what is missing of a vertex, restart what fails, and seal it; return its partitions by index.

    :param because: why the vertex is not the one that was stored earlier
    :raises NotStored: the store failed; nothing is wrong with the job itself
    :raises Exception: what the last try failed with, if nothing may be restarted any more
    """
    point = _with_what_was_left(context, point)
    while True:
        execution = context.executions.begin(point.vertex)
        context.executions.move(execution, ExecutionState.SCHEDULED)
        try:
            made = materialize(context, point, execution, because)
        except (Fenced, NotStored):
            context.executions.fail(execution)
            raise
        except Exception as error:
            context.executions.fail(execution)
            with context.failing_over:
                if not context.executions.is_current(execution) and point.vertex in context.done:
                    return context.done[point.vertex]  # cancelled by a restart in another thread, which computed it
                result = _handle(context, point, error)
                if not result.can_restart:
                    raise
                _restart(context, result)
            point = replace(point, df=up_to_date(context, point.df))
            continue
        if not context.master.vertex_finished(point.vertex, made.upstream_seconds, made.storing_seconds):
            raise NotStored("the event store has failed")
        context.executions.move(execution, ExecutionState.FINISHED)
        return made.partitions


def _with_what_was_left(context: RecoveryContext, point: RecoveryPoint) -> RecoveryPoint:
    """Complete the vertices that *point* reads and that were left as they are, because nothing was known to need them:
    only what is lost of them is computed, and *point* reads what is stored, as it did when it was cut.
    """
    application = context.application
    for vertex in map(vertex_of, point.fingerprint.upstream):
        # In another thread's plans, or if it cannot be stored, it is computed along with what reads it.
        with suppress(KeyError, NotStored):
            application.left.remove(vertex)
            context.done[vertex] = compute(context, application.points[vertex])
            application.recomputed.add(vertex)
    return replace(point, df=up_to_date(context, point.df))


def up_to_date(context: RecoveryContext, df: DataFrame) -> DataFrame:
    """Return *df* so that it reads the partitions that vertices have now, after some were computed again."""
    application = context.application
    if not application.recomputed:
        return df
    return with_sources(
        df,
        {
            vertex: partial(read_partitions, context, application.points[vertex], context.done[vertex])
            for vertex in application.recomputed
        },
    )


def _handle(context: RecoveryContext, point: RecoveryPoint, error: Exception) -> FailureHandlingResult:
    """Give up what cannot be read any more, and decide what to restart; says so in the log and the event store."""
    master = context.master
    master.check()
    lost = {
        partition.vertex
        for key in unreadable_partitions(error)
        if (partition := StoredPartition.from_key(key, 0)) and master.give_up(partition)
    }
    reached = [vertex for vertex in context.application.points if vertex not in context.application.left]
    result = master.failed_vertex(point.vertex, one_line(error), causes(error), lost, reached)
    if result.refused:
        log.error("%s failed: %s. It is not restarted: %s.", point.title, result.error.rstrip("."), result.refused)
    else:
        names = ", ".join(repr(context.application.points[vertex].name) for vertex in result.vertices_to_restart)
        log.warning(
            "%s failed: %s. Restarting %s in %.1f s (failure %d of this job).",
            point.title,
            result.error.rstrip("."),
            names,
            result.delay,
            result.memory.failures,
        )
    return result


def _restart(context: RecoveryContext, result: FailureHandlingResult) -> None:
    """Cancel what still runs of the region, wait, and compute what the failed vertex reads; itself it comes last."""
    for execution in context.executions.at_work(list(result.vertices_to_restart)):
        context.executions.move(execution, ExecutionState.CANCELING)
        context.application.points[execution.vertex].df.sparkSession.sparkContext.cancelJobsWithTag(tag_of(execution))
        context.executions.move(execution, ExecutionState.CANCELED)
    _wait(context, result.delay)
    if context.master.request.options.failover_strategy == "full":
        for vertex in result.vertices_to_restart:
            context.master.start_over(vertex, "restarted after a failure; the failover strategy is full")
    for vertex in result.vertices_to_restart:
        if vertex != result.failed:
            point = context.application.points[vertex]
            context.done[vertex] = compute(context, replace(point, df=up_to_date(context, point.df)))
            context.application.recomputed.add(vertex)


def _wait(context: RecoveryContext, seconds: float) -> None:
    """Wait, but no longer than this attempt owns the job."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 0.5))
        context.master.check()
