"""Intercept the actions of a retry, and put what survived into their plans before they run.

Actions that run a DataFrame's own query (``collect`` and similar, ``checkpoint``, ``rdd``) run as they are once their
plan is filled. ``count``, ``show``, ``isEmpty``, ``pivot`` and what writes rows make a query inside the JVM: here the
same query is made as Spark makes it, filled, and run. What MLlib makes there cannot be observed, and runs as it is.
"""

from __future__ import annotations

import functools
import logging
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider.core.causes import one_line
from airflow_provider.core.digest import digest
from airflow_provider.spark.calls import Call, Kind, Proceed, Stage, Stages
from airflow_provider.spark.identity.fingerprint import fingerprint
from airflow_provider.spark.jvm.adaptive_plan import has_begun, runs_later
from airflow_provider.spark.jvm.cached_tables import CachingStatement, table_named
from airflow_provider.spark.jvm.commands import no_rows, unless_unable
from airflow_provider.spark.jvm.exchanges import cached_plan
from airflow_provider.spark.jvm.execution import in_execution
from airflow_provider.spark.jvm.executors import is_local
from airflow_provider.spark.jvm.queries import calls_python, held_weakly, is_classic, is_classic_session, query_of
from airflow_provider.spark.jvm.relation import cached_as, cached_in
from airflow_provider.spark.jvm.session_settings import QuerySettings, all_settings
from airflow_provider.spark.jvm.shown_rows import any_row, as_table, most_to_pivot, rows_to_show, values_to_pivot
from airflow_provider.spark.jvm.sql_commands import filled
from airflow_provider.spark.jvm.table_writer import writing_table
from airflow_provider.spark.jvm.writer_commands import written_through

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider.spark.auto.restoring import Restorer
    from airflow_provider.spark.auto.watching import Watcher
    from airflow_provider.spark.context import RecoveryContext

log = logging.getLogger(__name__)


def restored_actions(restorer: Restorer) -> Stages:
    """Let actions start from what survived; without survivors they go straight to Spark."""

    def before_writing(spark: Any, execution: Any) -> bool:
        if not restorer.before(spark, execution):
            return False
        restorer.confirm_ownership()  # putting back may have taken long
        return True

    def own_query(call: Call, proceed: Proceed) -> Any:
        restorer.before(call.owner.sparkSession, query_of(call.owner))
        return proceed()

    def to_rdd(call: Call, proceed: Proceed) -> Any:
        frame = call.owner
        if not in_execution(frame.sparkSession):
            restorer.before(frame.sparkSession, query_of(frame), in_tasks=False)
        return proceed()

    def count(call: Call, proceed: Proceed) -> int:
        """Run the aggregate that ``count()`` runs: the one that ``groupBy().count()`` makes."""
        counted = call.owner.groupBy().count()
        if not restorer.before(call.owner.sparkSession, query_of(counted)):
            return int(proceed())
        return int(counted.collect()[0][0])

    def show(call: Call, proceed: Proceed) -> Any:
        """Run the query that ``show()`` or ``isEmpty()`` runs."""
        frame = call.owner
        if call.name == "isEmpty":
            row = any_row(frame)
            return not row.collect() if restorer.before(frame.sparkSession, query_of(row)) else proceed()
        layout = _Layout.of(call)
        if layout is None:
            return proceed()
        rows = rows_to_show(frame, layout.count)
        if not restorer.before(frame.sparkSession, query_of(rows)):
            return proceed()
        print(as_table(rows, layout.count, layout.width, layout.vertical))  # noqa: T201 - as it does
        return None

    def pivot(call: Call, proceed: Proceed) -> Any:
        """Run the query that ``pivot()`` runs for the values that become columns, if the script does not name them."""
        column, frame = call.argument(0, "pivot_col"), call.owner._df
        if call.argument(1, "values") is not None or not isinstance(column, str):
            return proceed()
        values = unless_unable(lambda: values_to_pivot(frame, column))
        if values is None or not restorer.before(frame.sparkSession, query_of(values)):
            return proceed()
        found = [row[0] for row in values.collect()]
        return call.owner.pivot(column, found) if 0 < len(found) <= most_to_pivot(frame) else proceed()

    def checkpoint(call: Call, proceed: Proceed) -> Any:
        frame = call.owner
        runs_now = call.eager or not runs_later(query_of(frame).executedPlan())
        if runs_now:
            restorer.before(frame.sparkSession, query_of(frame))
        return proceed()

    def sql(call: Call, proceed: Proceed) -> Any:
        """Run SQL that writes the rows of a query, which Spark does as soon as ``sql()`` is called."""
        spark, text = call.owner, call.argument(0, "sqlQuery")
        known = call.text_alone or call.text_and_values
        if not isinstance(text, str) or not known or not is_classic_session(spark):
            return proceed()
        fill = functools.partial(before_writing, spark)
        run = unless_unable(lambda: filled(spark, text, call.argument(1, "args"), fill))
        if run is None:
            return proceed()
        run()
        return no_rows(spark)

    def write(call: Call, proceed: Proceed) -> Any:
        """Let the JVM's writer make its command, and run it with a plan that starts from what survived."""
        spark = call.owner._df.sparkSession
        with written_through(call.owner, functools.partial(before_writing, spark)):
            return proceed()

    def write_table(call: Call, proceed: Proceed) -> Any:
        """Run the command of ``df.writeTo`` or ``df.mergeInto``, or let the JVM's writer create a table."""
        fill = functools.partial(before_writing, call.owner._spark)
        with writing_table(call.owner, call.name, call.argument(0, "condition"), fill) as run:
            return proceed() if run is None else run()

    def if_wanted(stage: Stage) -> Stage:
        return lambda call, proceed: stage(call, proceed) if restorer.wanted else proceed()

    stages = {
        Kind.QUERY: own_query,
        Kind.TO_RDD: to_rdd,
        Kind.COUNT: count,
        Kind.SHOW: show,
        Kind.PIVOT: pivot,
        Kind.CHECKPOINT: checkpoint,
        Kind.SQL: sql,
        Kind.WRITE: write,
        Kind.ADD_TO_TABLE: write_table,
        Kind.REPLACE_TABLE: write_table,
    }
    return {kind: if_wanted(stage) for kind, stage in stages.items()}


@dataclass(frozen=True)
class _Layout:
    """How ``show`` is asked to lay out rows.

    :ivar width: characters after which a cell is cut off; 0 for never
    """

    count: int
    width: int
    vertical: bool

    @classmethod
    def of(cls, call: Call) -> _Layout | None:
        """Return what a call asks for; ``None`` if it is for PySpark to say what is wrong with it."""

        def asked(n: object = 20, truncate: object = True, vertical: object = False) -> _Layout | None:
            if type(n) is not int or not isinstance(truncate, int) or not isinstance(vertical, bool):
                return None
            return cls(n, 20 if truncate is True else int(truncate), vertical)

        try:
            return asked(*call.args, **call.kwargs)
        except TypeError:
            return None


def noted_rdds(watcher: Watcher) -> Stages:
    """Let *watcher* see the queries of frames that become RDDs.

    With adaptive execution, all shuffles run during the call, with the settings in force then. Without it, or below a
    cached frame, they run in whichever later job needs them, so their settings are unknown.
    """

    def note(call: Call, proceed: Proceed) -> Any:
        application = watcher.application()
        runs: AbstractContextManager[None] = nullcontext()
        if application is not None:
            with suppress(Exception):  # leave it to the frame to report what is wrong with it
                spark, execution = call.owner.sparkSession, query_of(call.owner)
                plan = execution.executedPlan()  # the call itself asks for this first, in the same thread
                inside = in_execution(spark)
                if runs_later(plan) or cached_in(execution):
                    application.leave_alone("rdd", "its shuffles run in a later job, with settings that are not known")
                elif not has_begun(spark, plan) and not inside:
                    application.note(execution, QuerySettings(all_settings(spark), in_tasks=False))
                if not inside:
                    runs = application.unannounced(execution)
        with runs:
            return proceed()

    return {Kind.TO_RDD: note}


def noted_caches(context: RecoveryContext, restorer: Restorer) -> Stages:
    """Give each cached frame an identity: frames not noted here cannot be told apart.

    A cached frame has one value for all outputs that read it, and a retry leaves some of these out. So the shuffles
    below it that call functions are counted per frame. A frame is identified by what it holds and by how many times the
    script has cached that so far, counted in the order of the script, or of the step that caches it. For what is
    shuffled above it, the settings are noted.

    SQL's ``CACHE TABLE`` marks a table and counts its rows, which fills it. If something has survived, these become two
    calls, so that the count can start from it.

    :param restorer: knows what has survived
    """

    def note(frame: Callable[[], Any]) -> None:
        try:
            _note(context, frame())
        except Exception as error:  # noqa: BLE001 - then what is below it, or below a later one, is not kept
            context.cached = None
            log.debug("Cannot identify cached frames: %s", one_line(error))

    def cache(call: Call, proceed: Proceed) -> Any:
        cached = proceed()
        if is_classic(call.owner):
            note(lambda: call.owner)
        return cached

    def cache_table(call: Call, proceed: Proceed) -> Any:
        proceed()
        note(lambda: table_named(call.owner._sparkSession, call.argument(0, "tableName")))

    def sql(call: Call, proceed: Proceed) -> Any:
        spark, text = call.owner, call.argument(0, "sqlQuery")
        known = isinstance(text, str) and is_classic_session(spark)
        statement = CachingStatement.parse(spark, text) if known else None
        if statement is None:
            return proceed()
        apart = bool(restorer.wanted) and call.text_alone and not statement.lazy
        answer = statement.mark() if apart else proceed()
        note(lambda: statement.table)
        if apart:
            statement.fill()
        return answer

    return {Kind.CACHE: cache, Kind.CACHE_TABLE: cache_table, Kind.SQL: sql}


def _note(context: RecoveryContext, df: Any) -> None:
    relation, known = cached_as(df), context.application.cached
    if relation is None:
        return
    number, spark, under = cached_plan(relation), df.sparkSession, context.application.cached_under
    if number not in under:
        settings = all_settings(spark)
        with context.lock:
            before = next(reversed(under.values()), None)
            under[number] = before if before == settings else settings  # mostly the same: kept once
        if is_local(spark):
            context.application.frames.append((spark, held_weakly(spark, relation)))
    if not calls_python(df):
        return  # its shuffles need no counting
    frame = (fingerprint(df, context).digest, context.purposes.own)
    with context.lock:
        if number not in known and context.cached is not None:  # the script may cache what is cached
            context.cached[frame] += 1
            known[number] = digest("cached", *frame, str(context.cached[frame]))
