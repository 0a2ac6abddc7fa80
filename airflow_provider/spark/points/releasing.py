"""Release stored vertices while the job runs, once no known reader needs them and the script cannot reach them.

A vertex is released if three things are true. Everything known to read it is committed, so no retry would compute it
for that. The script has dropped everything that reads it, so this attempt will not ask for it. And no action has given
the script rows of it, because a retry would run that action again. If something needs it all the same, such as a
restart with a lost input or an edited script, it is computed again from its upstream, as a lost vertex is.

One thread does this, in rounds. A recovery point that is computed asks for a round when it starts, and waits for one
when it ends. So a chain holds what it reads, what it writes, and what it read before that. The first one of an attempt
also waits before it computes, because a killed attempt leaves vertices that it had yet to release.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider.core.causes import one_line
from airflow_provider.core.errors import Fenced
from airflow_provider.core.vertex_token import vertex_of
from airflow_provider.spark.calls import Call, Kind, Proceed, Stages
from airflow_provider.spark.jvm.plan_walk import vertices_read_by
from airflow_provider.spark.jvm.queries import is_classic

if TYPE_CHECKING:
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.identity.recovery_point import RecoveryPoint

log = logging.getLogger(__name__)

_INTERVAL = 5.0
"""Seconds between two rounds that nothing asked for."""
_PATIENCE = 30.0
"""Most seconds that a recovery point waits, for a store that does not answer, say."""
_LOCK_PATIENCE = 1.0
"""Seconds that a round waits for a restart, which may itself wait for the round."""


@contextmanager
def releasing(context: RecoveryContext) -> Iterator[Stages]:
    """Release unneeded vertices while the block runs; yield the stages for the script's calls."""
    if not context.master.request.options.enabled:
        yield {}
        return
    began = time.monotonic()

    def work() -> float | None:
        try:
            _round(context, time.monotonic() - began)
        except Fenced:
            return None
        except Exception as error:
            log.debug("Nothing is released now: %s", one_line(error), exc_info=error)
        return _INTERVAL

    with context.rounds.at_work("release", work, _INTERVAL, patience=_PATIENCE):
        yield _noted_readers(context)


@contextmanager
def released_meanwhile(context: RecoveryContext, point: RecoveryPoint) -> Iterator[None]:
    """Release unneeded vertices while *point* is computed inside, and finish that by the end of the block."""
    with context.application.plans.read([vertex_of(token) for token in point.fingerprint.upstream]):
        first = context.rounds.ask()
        if first == 1:
            context.rounds.wait(first, _PATIENCE)
        yield
        context.rounds.wait(context.rounds.ask(), _PATIENCE)


def _round(context: RecoveryContext, elapsed: float) -> None:
    """Release what may go, and delete it.

    :param elapsed: seconds since the script started
    """
    master, application = context.master, context.application
    wanted = [vertex for vertex in master.needed_no_more() if vertex not in context.given_out]
    if wanted and application.points:
        plans = application.plans
        unknown = plans.worth_looking([vertex for vertex in wanted if not plans.dropped(vertex)])
        if unknown and plans.seconds <= master.request.options.overhead_budget * elapsed:
            plans.collect(application.points[unknown[0]].df.sparkSession, unknown)
        for vertex in filter(plans.dropped, wanted):
            _release(context, vertex)
    master.delete_unneeded()


def _release(context: RecoveryContext, vertex: str) -> None:
    """Release a vertex, unless something has come to need it meanwhile."""
    if not context.failing_over.acquire(timeout=_LOCK_PATIENCE):
        return
    try:
        application = context.application
        if application.plans.dropped(vertex) and vertex not in context.given_out and context.master.release(vertex):
            context.done.pop(vertex, None)
            application.plans.forget(vertex)
            application.recomputed.discard(vertex)
            application.left.add(vertex)
    finally:
        context.failing_over.release()


def _noted_readers(context: RecoveryContext) -> Stages:
    """Note the vertices that each attempt reads again: those that give an action its rows, or are read by outputs that
    cannot be looked up.
    """

    def frame(call: Call, proceed: Proceed) -> Any:
        given_out(context, call.owner)
        return proceed()

    def table(call: Call, proceed: Proceed) -> Any:
        given_out(context, call.argument(0, "df"))
        return proceed()

    def write(call: Call, proceed: Proceed) -> Any:
        given_out(context, call.owner._df)
        return proceed()

    stages = {Kind.QUERY: frame, Kind.COUNT: frame, Kind.TO_RDD: frame, Kind.SHOW: frame, Kind.TABLE: table}
    return stages if context.master.request.options.sinks == "once" else {**stages, Kind.WRITE: write}


def given_out(context: RecoveryContext, df: Any) -> None:
    """Note that a retry will read what *df* reads, whatever is committed."""
    if not context.done or not is_classic(df):
        return
    try:
        context.given_out.update(map(vertex_of, vertices_read_by(df)))
    except Exception as error:  # noqa: BLE001 - the frame itself says what is wrong with it
        log.debug("Cannot find out what a DataFrame reads: %s", one_line(error))
        context.given_out.update(context.done)
