"""Run an action again if its Spark job has failed, as a failed recovery point is.

The call itself is repeated, so it passes the same stages as the first time: what survived is put back, what is missing
is computed. An action is repeated only if nothing of its failed try can have reached the script or the world outside.
If no restart is allowed, the script gets the very error that Spark raised.
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
"""They make a query inside the JVM: the last one of their thread."""


@dataclass(frozen=True)
class Action:
    """An action that may run again.

    :ivar name: in events and log
    :ivar refused: given the error, returns why it may not run again; empty if it may
    :ivar renew: prepares the next try; if this fails, there is none
    :ivar execution: returns the ``QueryExecution`` that has failed; ``None`` if unknown
    """

    name: str
    refused: Callable[[Exception], str]
    renew: Callable[[], object]
    execution: Callable[[], Any] = lambda: None


class _Thread(threading.local):
    """Whether a thread is inside an action: what that calls itself is part of it."""

    acts = False


_thread = _Thread()


def restarted_actions(context: RecoveryContext) -> Stages:
    """Return the stages that run DataFrame actions that return rows again, as often as the restart strategy allows."""

    def query(call: Call, proceed: Proceed) -> Any:
        _read_what_is_there(context, call.owner)
        return with_restarts(context, _query(context, call), proceed)

    if not may_restart(context):
        return {}
    return dict.fromkeys((Kind.QUERY, *_OWN_QUERY), query)  # ``show`` prints after it has all rows


def may_restart(context: RecoveryContext) -> bool:
    """Whether the job's options allow restarts at all."""
    options = context.master.request.options
    return options.enabled and options.restart_strategy != "none"


def with_restarts(context: RecoveryContext, action: Action, run: Callable[[], _T]) -> _T:
    """Run an action, and again when its Spark job fails.

    :raises Exception: the error of the last try
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
    """Fail over after an error of an action; return whether to run it again, with everything ready for that."""
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
    """Return why a query of *frame* may not run again, because it does more than return rows; empty if it may."""
    if micro_batch(frame.sparkSession):
        return "it works on a batch of a stream, whose own checkpoint is its recovery"
    if observes(frame):
        return "its rows are observed"
    if _has_accumulators() and calls_python(frame):
        return "its functions may have added to accumulators"
    return ""


def _has_accumulators() -> bool:
    """Whether the script has accumulators. Two kinds are not its own: those of PySpark's profiler, whose numbers are
    negative, and those by which tasks report what they have stored.
    """
    from pyspark.accumulators import _accumulatorRegistry

    others = [each for number, each in list(_accumulatorRegistry.items()) if number >= 0]
    return any(not isinstance(each.accum_param, Delivering) for each in others)


def _read_what_is_there(context: RecoveryContext, frame: Any) -> None:
    """Point a frame of the script's at partitions that were computed again since it was made, or last updated."""
    if context.application.recomputed and is_classic(frame):
        with suppress(Exception):  # then it fails, and is updated before it runs again
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
