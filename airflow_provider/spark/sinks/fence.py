"""Confirm that this attempt still owns the job before it writes anything outside the event store.

A driver that was suspended or cut off for longer than its lease may resume after a successor has taken over. So it
checks its lease before each write of the DataFrame API, SQL, RDDs and MLlib, and before a streaming query starts, the
catalog changes, or a function runs on executors for its side effects. That keeps it from writing the same output a
second time. It checks before anything is decided about the write, and again right before Spark writes. A write of files
checks once more before it commits.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from airflow_provider.core.sql_text import may_write
from airflow_provider.spark.calls import WRITES, Call, Kind, Proceed, Stages

if TYPE_CHECKING:
    from airflow_provider.spark.context import RecoveryContext


def confirmed(check: Callable[[], None], after: Callable[[], None] = lambda: None) -> Stages:
    """Call *check* before each call that leaves something outside the event store, including SQL that may, and *after*
    when it has returned: a driver that was replaced meanwhile does not continue its script.
    """

    def write(call: Call, proceed: Proceed) -> Any:
        if not _may_write(call):
            return proceed()
        check()
        result = proceed()
        after()
        return result

    return dict.fromkeys((*WRITES, Kind.SQL), write)


def confirmed_commits(context: RecoveryContext) -> Stages:
    """Make the file writes of a call check before they commit, unless they are watched already; for RDDs, whose writers
    do not check, the tasks do.
    """

    def save(call: Call, proceed: Proceed) -> Any:
        from pyspark.sql import SparkSession

        spark = SparkSession._instantiatedSession
        gate = context.commit_gate(spark) if spark is not None else None
        with gate.holding() if gate is not None else nullcontext():
            return proceed()

    def write(call: Call, proceed: Proceed) -> Any:
        if not _may_write(call):
            return proceed()
        spark = call.owner if call.kind is Kind.SQL else call.owner._df.sparkSession
        gate = context.commit_gate(spark) if hasattr(spark, "_jsparkSession") else None
        if gate is None or gate.watches:
            return proceed()
        with gate.watching("", lambda _: None, context.master.check_now):
            return proceed()

    return {Kind.WRITE: write, Kind.SQL: write, Kind.SAVE_RDD: save, Kind.SAVE_RDD_BY_CONFIGURATION: save}


def _may_write(call: Call) -> bool:
    return call.kind is not Kind.SQL or may_write(str(call.argument(0, "sqlQuery")))
