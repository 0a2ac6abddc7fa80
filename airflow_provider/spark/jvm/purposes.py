"""The purpose of a query: the output, or the step, for which a thread of the script runs it.

A retry leaves out what an earlier attempt has written, and the queries for it. So whatever is counted in the order of
the script is counted per output, so that nothing shifts. The watcher finds purposes by the local properties of the
script's threads, where Spark sets the running execution. One property of our own says which purpose task time counts
for; the others are read, never changed.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider.core.task_time import ANY
from airflow_provider.spark.jvm.task_times import purpose_property

if TYPE_CHECKING:
    from airflow_provider.spark.jvm.exchanges import RunningQueries, RunningQuery

_EXECUTION = ("spark.sql.execution.root.id", "spark.sql.execution.id")
_LOOKS = 3


@dataclass(frozen=True, eq=False)
class _Begun:
    """A purpose that a thread of the script has now.

    :ivar properties: the thread's local properties in the JVM; ``None`` if it has none of its own
    """

    purpose: str
    properties: Any


@dataclass(eq=False)
class _Span:
    """The queries of a JVM that may have a purpose.

    :ivar first: the number of the first one
    :ivar end: the number after the last one; infinite while more may come
    :ivar over: whether the purpose has ended
    """

    purpose: str
    first: float
    end: float = math.inf
    over: bool = False


class _Thread(threading.local):
    def __init__(self) -> None:
        self.purposes: list[str] = []


class Purposes:
    """The purposes of one attempt's queries."""

    def __init__(self) -> None:
        self._next_query: Callable[[], int] | None = None
        self._spans: list[_Span] = []
        self._lock = threading.Lock()
        self._begun: list[_Begun] = []
        self._changes = 0
        self._thread = _Thread()

    @contextmanager
    def serving(self, purpose: str) -> Iterator[None]:
        """Give *purpose* to the queries that this thread runs inside."""
        begun, span = _Begun(purpose, _properties()), _Span(purpose, self._now(-math.inf))
        self._thread.purposes.append(purpose)
        with self._lock:
            self._begun.append(begun)
            self._spans.append(span)
            self._changes += 1
        try:
            with _counted_for(purpose, begun.properties):
                yield
        finally:
            self._thread.purposes.pop()
            end = self._now(math.inf)
            with self._lock:
                span.end, span.over = end, True
                self._begun.remove(begun)
                self._changes += 1

    @property
    def own(self) -> str:
        """The purpose of this thread's queries."""
        return self._thread.purposes[-1] if self._thread.purposes else ANY

    def count_by(self, next_query: Callable[[], int]) -> None:
        """Track from now on which queries may have which purpose.

        :param next_query: returns the number that the next one gets
        """
        with self._lock:
            self._next_query = next_query
            number = next_query()
            for span in self._spans:
                if span.over:
                    span.end = min(span.end, number)

    def _now(self, unknown: float) -> float:
        try:
            return self._next_query() if self._next_query is not None else unknown
        except Exception:  # noqa: BLE001 - the script has stopped Spark
            return unknown

    def possible(self, position: float) -> set[str]:
        """Return the purposes that a query may have had, by its number, if it was not observed."""
        with self._lock:
            return {ANY, *(span.purpose for span in self._spans if span.first <= position < span.end)}

    def started(self, queries: RunningQueries) -> dict[int, tuple[RunningQuery, str | None]]:
        """Return, by number, each running query and its purpose; ``None`` if it is unknown.

        The parts are read at different moments. The result is trusted if no thread has started or ended a purpose
        meanwhile, and if a query that seems to have none still runs at the end.
        """
        found: dict[int, RunningQuery] = {}
        for _ in range(_LOOKS):
            with self._lock:
                begun, changes = self._begun[::-1], self._changes
            found = queries.started()
            purposes = {number: _purpose(number, begun) for number in found}
            still = queries.numbers() if begun and ANY in purposes.values() else purposes.keys()
            with self._lock:
                if changes != self._changes:
                    continue
            told = {n: purpose for n, purpose in purposes.items() if purpose != ANY or n in still}
            return {number: (query, told.get(number)) for number, query in found.items()}
        return {number: (query, None) for number, query in found.items()}


def _properties() -> Any:
    """Return this thread's local properties, which Spark changes in place; ``None`` if they may be another thread's."""
    from py4j.clientserver import ClientServer
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context
    if context is None or not isinstance(context._gateway, ClientServer):  # Python and Java threads are paired
        return None
    return context._jsc.sc().getLocalProperties()


@contextmanager
def _counted_for(purpose: str, properties: Any) -> Iterator[None]:
    """Count the task time of jobs that this thread starts inside towards a purpose.

    :param properties: the thread's; ``None`` if unknown
    """
    before: dict[str, Any] = {}
    with suppress(Exception):  # the JVM has gone, here and below
        told = purpose_property(purpose) if properties is not None else {}
        before = {name: properties.setProperty(name, value) for name, value in told.items()}
    try:
        yield
    finally:
        with suppress(Exception):
            for name, value in before.items():
                properties.remove(name) if value is None else properties.setProperty(name, value)


def _purpose(number: int, begun: list[_Begun]) -> str | None:
    """Return the purpose of an execution.

    :param begun: inner ones first
    """
    for one in begun:
        if one.properties is None:
            return None
        outermost, innermost = (one.properties.getProperty(key) for key in _EXECUTION)
        if str(number) in (outermost, innermost):
            return one.purpose
        if outermost and innermost and int(outermost) < number < int(innermost):
            return None  # nested in another one, or a query of another thread
    return ANY
