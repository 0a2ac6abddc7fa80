"""Before a job writes anything outside of its event store, make sure that it still owns itself.

A driver that was suspended, or cut off, for longer than its lease may wake up when a successor has taken over. It asks
its lease before each write of the DataFrame API, of SQL, of RDDs and of MLlib, before a streaming query starts, the
catalog changes, or a function runs on executors for what it does there, which keeps it from writing the same output a
second time. It asks before anything is decided about the write, and once more right before Spark writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_provider.core.sql_text import may_write
from airflow_provider.spark.calls import WRITES, Call, Kind, Proceed, Stages


def confirmed(check: Callable[[], None]) -> Stages:
    """Call *check* before each call that leaves something outside of the event store, SQL that may among them."""

    def write(call: Call, proceed: Proceed) -> Any:
        if call.kind is not Kind.SQL or may_write(str(call.argument(0, "sqlQuery"))):
            check()
        return proceed()

    return dict.fromkeys((*WRITES, Kind.SQL), write)
