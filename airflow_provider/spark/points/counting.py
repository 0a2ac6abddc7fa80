"""Record the task time of the job while the script runs, so that a page can show which share a retry would keep.

A thread asks the JVM for a few sums, and records them when they have grown by a small share: a few hundred times in a
long job. What earlier attempts have spent counts as far as this one has taken it over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from airflow_provider.core.causes import one_line
from airflow_provider.core.errors import Fenced
from airflow_provider.core.rounds import Rounds
from airflow_provider.core.savings import taken_over
from airflow_provider.core.task_time import TASK_TIME, TaskTime, Use, state_of, task_time, together
from airflow_provider.spark.calls import Call, Kind, Proceed, Stages
from airflow_provider.spark.jvm.task_times import TaskTimes

if TYPE_CHECKING:
    from airflow_provider.spark.context import RecoveryContext

log = logging.getLogger(__name__)

_INTERVAL = 2.0
"""Least seconds between two questions."""
_SHARE = 50
"""After a long answer the pause is this many times as long: stages of a loop add up."""
_GROWTH = 0.02
"""Growth of the task time, as a share, that is recorded."""


@contextmanager
def counted_tasks(context: RecoveryContext) -> Iterator[Stages]:
    """Record the task time of everything that runs inside; yield the stages for the script's calls."""
    if not context.master.request.options.enabled:
        yield {}
        return
    counting = _Counting(context)

    def work() -> float:
        began = time.monotonic()
        counting.look()
        return max(_INTERVAL, _SHARE * (time.monotonic() - began))

    try:
        with Rounds().at_work("task-time", work, _INTERVAL):
            yield {Kind.SESSION: counting.session}
    finally:
        counting.end()


class _Counting:
    """The task time of one attempt, over all applications of its script."""

    def __init__(self, context: RecoveryContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._before = taken_over(context.master.graph)
        """Time kept of earlier attempts, and of earlier applications; ``None`` if some of it is unknown."""
        self._now: dict[Use, float] = {}
        self._application: Any = None
        self._shuffles: dict[int, str] = {}
        self._times: TaskTimes | None = None
        self._recorded: TaskTime = {}
        if self._before:
            self._record(self._before)

    def session(self, _: Call, proceed: Proceed) -> Any:
        """Count from the first task of a session's application, which may be new."""
        made = proceed()
        self.look()
        return made

    def look(self, least: float = _GROWTH) -> None:
        """Update the task time; record it if it has grown by more than the share *least*."""
        with self._lock:
            try:
                self._see()
                used = self._used()
                new = sum(max(0.0, seconds - self._recorded.get(use, 0.0)) for use, seconds in used.items())
                if new > least * sum(self._recorded.values()):
                    self._record(used)
            except Fenced:
                return
            except Exception as error:
                log.debug("What the tasks have taken is not known now: %s", one_line(error), exc_info=error)

    def end(self) -> None:
        """Count and record the rest when the script is over."""
        self.look(least=0.0)
        if self._times is not None:
            with suppress(Exception):  # the JVM has gone
                self._times.detach()

    def _used(self) -> dict[Use, float]:
        return together([*self._before.items(), *self._now.items()]) if self._before is not None else {}

    def _see(self) -> None:
        self._count()  # the last tasks of an application that has ended, too
        if self._found_application():
            self._count()

    def _count(self) -> None:
        times = self._times.stages() if self._times is not None else None
        if times is not None:
            self._now = task_time(times, dict(self._shuffles), self._context.master.graph.vertices)
        elif self._times is not None:
            self._give_up()

    def _found_application(self) -> bool:
        """Switch to the application that runs now; return whether it is another one."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        context: Any = SparkContext._active_spark_context
        session: Any = SparkSession._instantiatedSession
        if context is None or context is self._application or session is None or session._sc is not context:
            return False
        self._before = self._used() if self._before is not None else None
        self._now, self._application, self._shuffles = {}, context, self._context.application.shuffles
        try:
            self._times = TaskTimes(session)
        except Exception:
            self._give_up()
            raise
        return True

    def _give_up(self) -> None:
        """Stop counting, because some tasks were missed and no number would be right."""
        self._before, self._now, self._times = None, {}, None
        if self._recorded:
            self._record(None)

    def _record(self, used: TaskTime | None) -> None:
        self._context.master.note(TASK_TIME, state_of(self._context.master.epoch, used))
        self._recorded = used or {}
