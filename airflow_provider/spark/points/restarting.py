"""Compute a vertex, and fail over inside the application when that fails.

A failed Spark job is answered as Flink answers a failed task: its causes are classified, the restart strategy is asked,
running jobs of the region are cancelled, and after the delay the region runs again. What was stored before the failure
is kept. Stored partitions that turned out missing or damaged are computed again by their own vertex, and the plans that
read them are led to the new ones. What cannot be fixed here fails the attempt; then it is up to Airflow's retry.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider.core.causes import causes, one_line, unreadable_partitions
from airflow_provider.core.errors import Fenced
from airflow_provider.core.executions import ExecutionState, ExecutionVersion
from airflow_provider.core.failover import FailureHandlingResult
from airflow_provider.core.partitions import StoredPartition
from airflow_provider.core.vertex_token import vertex_of
from airflow_provider.spark.jvm.relation import with_sources
from airflow_provider.spark.points.materialize import Materialized, NotStored, materialize, tag_of
from airflow_provider.spark.points.reading import read_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.identity.recovery_point import RecoveryPoint

log = logging.getLogger(__name__)

_CANCEL_AGAIN = 0.5
"""Seconds until jobs that have not ended are cancelled again."""


def compute(context: RecoveryContext, point: RecoveryPoint, because: tuple[str, ...] = ()) -> None:
    """Compute what is missing of a vertex, restart what fails, and seal it: its partitions are in ``context.done``.

    One thread at a time computes a vertex; another one that comes to it, or whose execution a restart has cancelled,
    waits, and takes what is made meanwhile.

    :param because: why the vertex is not the one that was stored earlier
    :raises NotStored: the store failed; nothing is wrong with the job itself
    :raises Exception: what the last try failed with, if nothing may be restarted any more
    """
    point = _with_what_was_left(context, point)
    executions, vertex, refused = context.executions, point.vertex, context.application.refused
    elsewhere = False
    """Whether another thread may have computed it meanwhile."""
    while True:
        with context.failing_over:  # a restart makes what it has cancelled, and nobody else does
            if elsewhere and executions.state(vertex) is ExecutionState.FINISHED:
                return
            if elsewhere and vertex in refused:
                raise refused[vertex]
            if free := executions.wait_until_ended([vertex], 0):
                refused.pop(vertex, None)
                execution = executions.begin(vertex)
                executions.move(execution, ExecutionState.SCHEDULED)
        if not free:
            elsewhere = executions.wait_until_ended([vertex])
            continue
        try:
            made = materialize(context, point, execution, because)
            confirmed = context.master.vertex_finished(
                vertex, made.upstream_seconds, made.storing_seconds, _sealing(context, execution, made)
            )
        except BaseException as error:
            elsewhere = not executions.fail(execution)
            if isinstance(error, Fenced) or not isinstance(error, Exception):
                raise
            if elsewhere:  # a restart in another thread has cancelled it
                continue
            if isinstance(error, NotStored):
                raise
            with context.failing_over:
                if executions.state(vertex) is ExecutionState.FINISHED:
                    return  # a restart in another thread was first, and has computed it
                result = _handle(context, point, error)
                if not result.can_restart:
                    refused[vertex] = error
                    raise
                _restart(context, result)
            point = replace(point, df=up_to_date(context, point.df))
            continue
        if not confirmed:
            raise NotStored("the event store has failed")
        return


@contextmanager
def _sealing(context: RecoveryContext, execution: ExecutionVersion, made: Materialized) -> Iterator[None]:
    """Let the vertex be finished, with these partitions, if no restart has cancelled its execution."""
    with context.executions.finishing(execution):
        yield
        context.done[execution.vertex] = made.partitions


def _with_what_was_left(context: RecoveryContext, point: RecoveryPoint) -> RecoveryPoint:
    """Complete the vertices that *point* reads and that were left as they are, because nothing was known to need them:
    only what is lost of them is computed, and *point* reads what is stored, as it did when it was cut.
    """
    application = context.application
    for vertex in map(vertex_of, point.fingerprint.upstream):
        with context.failing_over:
            left = vertex in application.left
            application.left.discard(vertex)
        if left:  # else in another thread's plans it is computed along with what reads it
            with suppress(NotStored):  # then here, too
                compute(context, application.points[vertex])
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
            for vertex in tuple(application.recomputed)
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
    application = context.application
    reached = [vertex for vertex in list(application.points) if vertex not in application.left]
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
    _cancel(context, result.vertices_to_restart)
    _wait(context, result.delay)
    if context.master.request.options.failover_strategy == "full":
        for vertex in result.vertices_to_restart:
            context.master.start_over(vertex, "restarted after a failure; the failover strategy is full")
    for vertex in result.vertices_to_restart:
        if vertex != result.failed:
            compute(context, context.application.points[vertex])
            context.application.recomputed.add(vertex)


def _cancel(context: RecoveryContext, vertices: Collection[str]) -> None:
    """Cancel what other threads compute of the region, and wait until each of them says that it has ended.

    Again and again, because such a thread may be about to start a job.
    """
    while at_work := context.executions.cancel(vertices):
        context.master.check()
        for execution in at_work:
            session = context.application.points[execution.vertex].df.sparkSession
            session.sparkContext.cancelJobsWithTag(tag_of(execution))
        context.executions.wait_until_ended(vertices, _CANCEL_AGAIN)


def _wait(context: RecoveryContext, seconds: float) -> None:
    """Wait, but no longer than this attempt owns the job."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 0.5))
        context.master.check()
