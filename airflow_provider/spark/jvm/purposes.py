"""What a query is for: the output, or the step, for which a thread of the script runs it.

A retry leaves out what an earlier attempt has written, and the queries for it. What is counted in the order of the
script is therefore counted for each output by itself, so that nothing shifts. The thread that looks on finds out by the
local properties of the script's threads: Spark sets there which execution runs. One of our own says to which purpose
the time of tasks counts; the others are read, and never changed.
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
    """The queries of a JVM that may be for a purpose.

    :ivar first: the number of the first of them
    :ivar end: the number behind the last of them; infinite as long as there may be more
    :ivar over: whether nothing is for it any more
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
        """Queries that this thread runs inside are for *purpose*."""
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
        """What queries of this thread are for."""
        return self._thread.purposes[-1] if self._thread.purposes else ANY

    def count_by(self, next_query: Callable[[], int]) -> None:
        """Remember from now on which queries may be for what.

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
        """Return what a query may have been for, by its number, if nobody has seen it."""
        with self._lock:
            return {ANY, *(span.purpose for span in self._spans if span.first <= position < span.end)}

    def started(self, queries: RunningQueries) -> dict[int, tuple[RunningQuery, str | None]]:
        """Return, by number, each query under way and what it is for; ``None`` if that cannot be told.

        What is read at several moments is believed if no thread has begun or ended anything meanwhile, and if the
        query that seems to be for nothing still runs at the end.
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
    """Return the local properties of this thread, which Spark changes in place; ``None`` if they may be another's."""
    from py4j.clientserver import ClientServer
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context
    if context is None or not isinstance(context._gateway, ClientServer):  # threads of Python and Java go in pairs
        return None
    return context._jsc.sc().getLocalProperties()


@contextmanager
def _counted_for(purpose: str, properties: Any) -> Iterator[None]:
    """Let the tasks of jobs that this thread starts inside count to a purpose.

    :param properties: the thread's; ``None`` if nobody knows them
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
    """Return what an execution is for.

    :param begun: those inside of others first
    """
    for one in begun:
        if one.properties is None:
            return None
        outermost, innermost = (one.properties.getProperty(key) for key in _EXECUTION)
        if str(number) in (outermost, innermost):
            return one.purpose
        if outermost and innermost and int(outermost) < number < int(innermost):
            return None  # one inside of another, or a query of another thread
    return ANY
