"""Run an action again whose Spark job has failed: the same answer that a failed recovery point gets.

The call itself is repeated, so it passes the same stages as at its first try: what survived is put back, what is
missing is computed. Of a failed try nothing has reached the script or the world outside; an action of which that is not
certain is not repeated. When no restart is allowed, the script gets the very error that Spark raised.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider.core.causes import one_line
from airflow_provider.core.errors import RecoveryError
from airflow_provider.core.failover import ACTION
from airflow_provider.core.failure import of_a_job
from airflow_provider.spark.calls import Call, Kind, Proceed, Stages
from airflow_provider.spark.jvm.execution import micro_batch, trace_of
from airflow_provider.spark.jvm.queries import calls_python, is_classic, observes, query_of
from airflow_provider.spark.jvm.relation import lead, renewed
from airflow_provider.spark.points.manifests import Delivering
from airflow_provider.spark.points.restarting import fail_over, up_to_date

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider.spark.context import RecoveryContext

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_READS = "_spark_recovery_reads"
_OWN_QUERY = (Kind.COUNT, Kind.SHOW)
"""Make a query inside the JVM: it is the last one of their thread."""


@dataclass(frozen=True)
class Action:
    """What may be run again.

    :ivar name: what events and log call it
    :ivar refused: given what it failed with, says why it may not run again; empty text if it may
    :ivar renew: makes ready for the next try; its own failure is the end of it
    :ivar execution: returns the ``QueryExecution`` that has failed; ``None`` if nobody knows it
    """

    name: str
    refused: Callable[[Exception], str]
    renew: Callable[[], object]
    execution: Callable[[], Any] = lambda: None


class _Thread(threading.local):
    """Whether a thread is inside of an action: what that calls by itself is a part of it."""

    acts = False


_thread = _Thread()


def restarted_actions(context: RecoveryContext) -> Stages:
    """Let actions of DataFrames run again that return rows, as often as the restart strategy allows."""

    def query(call: Call, proceed: Proceed) -> Any:
        _read_what_is_there(context, call.owner)
        return with_restarts(context, _query(context, call), proceed)

    if not may_restart(context):
        return {}
    return dict.fromkeys((Kind.QUERY, *_OWN_QUERY), query)  # ``show`` prints what it has got


def may_restart(context: RecoveryContext) -> bool:
    """Whether the job's options allow restarts at all."""
    options = context.master.request.options
    return options.enabled and options.restart_strategy != "none"


def with_restarts(context: RecoveryContext, action: Action, run: Callable[[], _T]) -> _T:
    """Run an action, and again when its Spark job fails.

    :raises Exception: what the last try failed with
    """
    if _thread.acts or not may_restart(context):
        return run()
    _thread.acts = True
    begins: AbstractContextManager[None] = nullcontext()
    try:
        while True:
            try:
                with begins:
                    return run()
            except Exception as error:
                if not _fails_over(context, action, error):
                    raise
            begins = context.shuffles.restoring() if context.shuffles is not None else nullcontext()
    finally:
        _thread.acts = False


def _fails_over(context: RecoveryContext, action: Action, error: Exception) -> bool:
    """Whether an action is to run again, for which everything is ready."""
    if not of_a_job(trace_of(error)):
        return False
    try:
        refused = action.refused(error)
        if refused:
            log.warning("%s failed, and is not run again: %s", action.name, refused)
            return False
        execution = action.execution()
        if not fail_over(context, f"{ACTION}{action.name}", action.name, error):
            return False
        if context.shuffles is not None:
            context.shuffles.failed(execution)
        action.renew()
    except RecoveryError:
        raise
    except Exception as problem:
        log.warning("%s is not run again: %s", action.name, one_line(problem))
        log.debug("A restart failed", exc_info=problem)
        return False
    return True


def why_not(frame: DataFrame) -> str:
    """Return why a query of *frame* may not run again, because more than its rows would come of it; empty text if it
    may.
    """
    if micro_batch(frame.sparkSession):
        return "it works on a batch of a stream, whose own checkpoint is its recovery"
    if observes(frame):
        return "its rows are observed"
    if _has_accumulators() and calls_python(frame):
        return "its functions may have added to accumulators"
    return ""


def _has_accumulators() -> bool:
    """Whether the script has accumulators. None of its are those of PySpark's profiler, whose numbers are negative, and
    those by which tasks report what they have stored.
    """
    from pyspark.accumulators import _accumulatorRegistry

    others = [each for number, each in list(_accumulatorRegistry.items()) if number >= 0]
    return any(not isinstance(each.accum_param, Delivering) for each in others)


def _read_what_is_there(context: RecoveryContext, frame: Any) -> None:
    """Lead a frame that the script holds to partitions that were computed again since it was made, or led last."""
    if context.application.recomputed and is_classic(frame):
        with suppress(Exception):  # then it fails, and is led there before it runs again
            now = context.incarnations(context.application.recomputed)
            if getattr(frame, _READS, None) != now:
                lead(frame, up_to_date(context, frame))
                setattr(frame, _READS, now)


def _query(context: RecoveryContext, call: Call) -> Action:
    frame: DataFrame = call.owner

    def refused(_: Exception) -> str:
        return why_not(frame) if is_classic(frame) else "it is a query of Spark Connect"

    def renew() -> None:
        current = up_to_date(context, frame)
        lead(frame, renewed(frame) if current is frame else current)

    return Action(call.name.lstrip("_"), refused, renew, lambda: None if call.kind in _OWN_QUERY else query_of(frame))
