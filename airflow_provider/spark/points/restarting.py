"""Compute a vertex, and fail over inside the application when that, or an action, fails.

A failed Spark job is handled as Flink handles a failed task: its causes are classified, the restart strategy is asked,
running jobs of the region are cancelled, and after the delay the region runs again. Partitions stored before the
failure are kept. Stored partitions that turn out missing or damaged are computed again by their own vertex, and the
plans that read them are updated. A source that has lost pinned files is pinned anew; what reads it then has another
identity. If the failure cannot be fixed here, the attempt fails; the rest is up to Airflow's retry.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider.core.causes import causes, one_line, unreadable_partitions
from airflow_provider.core.errors import Fenced, RecoveryError, ResetFailed
from airflow_provider.core.executions import ExecutionState, ExecutionVersion
from airflow_provider.core.failover import ACTION, FailureHandlingResult
from airflow_provider.core.failure import file_gone
from airflow_provider.core.vertex_token import vertex_of
from airflow_provider.spark.jvm.relation import vertex_at, vertices_below, with_sources
from airflow_provider.spark.points.materialize import Materialized, NotStored, materialize, tag_of
from airflow_provider.spark.points.pinned_sources import Resets, SourceReset, is_outdated, read_by, reset, to_reset
from airflow_provider.spark.points.reading import read_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.identity.recovery_point import RecoveryPoint

log = logging.getLogger(__name__)

_CANCEL_AGAIN = 0.5
"""Seconds until jobs that have not ended are cancelled again."""


def compute(context: RecoveryContext, point: RecoveryPoint, because: tuple[str, ...] = ()) -> None:
    """Compute the missing partitions of a vertex, restart what fails, and seal it: its partitions are in
    ``context.done``.

    One thread at a time computes a vertex. Another one that reaches it, or whose execution a restart has cancelled,
    waits, and uses the result.

    :param because: why the vertex is not the one that was stored earlier
    :raises NotStored: the store failed; the job itself is fine
    :raises SourceReset: a source lost files and was pinned anew
    :raises Exception: the error of the last try, if no restart is allowed any more
    """
    point = _with_what_was_left(context, point)
    executions, vertex, refused = context.executions, point.vertex, context.application.refused
    elsewhere = False
    """Whether another thread may have computed it meanwhile."""
    while True:
        with context.failing_over:  # only the restart itself computes what it has cancelled
            if is_outdated(context, point):
                raise SourceReset
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
            confirmed = context.master.vertex_finished(vertex, made.storing_seconds, _sealing(context, execution, made))
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
                result = _handle(context, vertex, point.title, error)
                if not result.can_restart:
                    refused[vertex] = error
                    raise
                if resets := to_reset(context, point.df) if file_gone(causes(error)) else {}:
                    _pin_anew(context, resets, result.delay)
                    raise SourceReset from error
                _restart(context, result)
            point = replace(point, df=up_to_date(context, point.df))
            continue
        if not confirmed:
            raise NotStored("the event store has failed")
        return


@contextmanager
def _sealing(context: RecoveryContext, execution: ExecutionVersion, made: Materialized) -> Iterator[None]:
    """Let the vertex finish, with these partitions, unless a restart has cancelled its execution."""
    with context.executions.finishing(execution):
        yield
        context.done[execution.vertex] = made.partitions


def _with_what_was_left(context: RecoveryContext, point: RecoveryPoint) -> RecoveryPoint:
    """Complete the vertices that *point* reads and that were left incomplete, because nothing was known to need them.
    Only what is lost of them is computed, and *point* reads what is stored, as it did when it was split.
    """
    application = context.application
    for vertex in map(vertex_of, point.fingerprint.upstream):
        with context.failing_over:
            left = vertex in application.left
            application.left.discard(vertex)
        if left:  # else another thread has it computed along with what reads it
            with suppress(NotStored):  # then here, too
                compute(context, application.points[vertex])
                application.recomputed.add(vertex)
    return replace(point, df=up_to_date(context, point.df))


def up_to_date(context: RecoveryContext, df: DataFrame) -> DataFrame:
    """Return *df* reading the current partitions of its vertices, after some were computed again."""
    application = context.application
    if application.outdated:
        df = _renewed(context, df)
    if not application.recomputed:
        return df
    return with_sources(
        df,
        {
            vertex: partial(read_partitions, context, application.points[vertex], context.done[vertex])
            for vertex in application.recomputed - application.outdated
        },
    )


def _renewed(context: RecoveryContext, df: DataFrame) -> DataFrame:
    """Return *df* reading what has replaced outdated vertices, which is computed first."""
    tokens: dict[str, str] = {}
    sources: dict[str, Callable[[], DataFrame]] = {}
    application = context.application
    for old in {vertex_of(token) for token in vertices_below(df)} & application.outdated:
        new = old
        while new in application.outdated:
            if new not in application.renewed:
                token = vertex_at(application.again[new]())
                if token is None:
                    raise ResetFailed(
                        f"{application.points[new].title} has read files that are gone, and cannot be switched to "
                        "the new ones.",
                        remedy="Retry the task: the next attempt pins the new files before it reads any.",
                    )
                application.renewed[new] = token
            tokens[old] = application.renewed[new]
            new = vertex_of(tokens[old])
        sources[old] = partial(_rows, context, new)
    return with_sources(df, sources, tokens) if sources else df


def _rows(context: RecoveryContext, vertex: str) -> DataFrame:
    """Return a DataFrame with the rows of a vertex, by position: its plan, if it could not be stored."""
    point, stored = context.application.points[vertex], context.done.get(vertex)
    return read_partitions(context, point, stored) if stored is not None else point.df


def fail_over(context: RecoveryContext, action: str, title: str, error: Exception) -> bool:
    """Handle the failure of an action; return whether to run it again, now.

    While this only waits, without a vertex to compute, other threads can fail over.

    :param action: its name, used like a vertex
    :raises RecoveryError: this attempt does not own the job any more
    """
    with context.failing_over:
        result = _handle(context, action, title, error)
        if not result.can_restart:
            return False
        if len(result.vertices_to_restart) > 1:
            try:
                _restart(context, result)
            except RecoveryError:
                raise
            except Exception as problem:  # noqa: BLE001 - the action's own failure is what the script is told
                log.error("%s is not restarted: %s", title, one_line(problem))
                return False
            return True
        seconds = result.delay
    _wait(context, seconds)
    return True


def _handle(context: RecoveryContext, failed: str, title: str, error: Exception) -> FailureHandlingResult:
    """Give up what cannot be read any more, and decide what to restart; log and record the decision.

    :param failed: a vertex or an action
    """
    master = context.master
    master.check()
    lost = {vertex for key in unreadable_partitions(error) if (vertex := master.give_up(key))}
    application = context.application
    reached = [v for v in list(application.points) if v not in application.left and v not in application.outdated]
    result = master.failed_vertex(failed, one_line(error), causes(error), lost, reached)
    if result.refused:
        log.error("%s failed: %s. It is not restarted: %s.", title, result.error.rstrip("."), result.refused)
    else:
        log.warning(
            "%s failed: %s. Restarting %s in %.1f s (failure %d of this job).",
            title,
            result.error.rstrip("."),
            ", ".join(_called(context, vertex) for vertex in result.vertices_to_restart),
            result.delay,
            result.memory.failures,
        )
    return result


def _called(context: RecoveryContext, failed: str) -> str:
    """Return the name of a vertex or an action in the log."""
    point, known = context.application.points.get(failed), context.master.vertex(failed)
    if point is not None:
        return repr(point.name)
    return failed.removeprefix(ACTION) if known is None else repr(known.initialized.name)


def _restart(context: RecoveryContext, result: FailureHandlingResult) -> None:
    """Cancel what still runs of the region, wait, and compute its recovery points, except for the failed one: that
    comes last. Shuffles run again with the queries that need them.
    """
    application = context.application
    _cancel(context, result.vertices_to_restart)
    _wait(context, result.delay)
    if context.master.request.options.failover_strategy == "full":
        for vertex in result.vertices_to_restart:
            if context.master.vertex(vertex) is not None:
                context.master.start_over(vertex, "restarted after a failure; the failover strategy is full")
        if context.shuffles is not None:
            context.shuffles.give_up(set(result.vertices_to_restart))
    for vertex in result.vertices_to_restart:
        if vertex != result.failed and vertex in application.points:
            compute(context, application.points[vertex])
            application.recomputed.add(vertex)


def _pin_anew(context: RecoveryContext, resets: Resets, delay: float) -> None:
    """Cancel everything running that reads these sources, wait, and pin them anew."""
    _cancel(context, read_by(context, list(resets)))
    _wait(context, delay)
    reset(context, resets)


def _cancel(context: RecoveryContext, vertices: Collection[str]) -> None:
    """Cancel what other threads compute of the region, and wait until each of them says that it has ended.

    Cancel repeatedly, because such a thread may be about to start a job.
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
