"""The queries of a JVM, running or ended, that have shuffles whose tasks call Python functions.

Spark numbers its queries, and posts an event with the plan when one ends. The class ``EndedQueries`` receives it in the
driver's JVM, in the query's thread and before the action returns, and notes what Python asks for later; of a query that
calls no function it notes nothing. It is not a listener, so a script finds no listeners but its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_provider.spark.jvm.compiled import compiled
from airflow_provider.spark.jvm.exchanges import search_of
from airflow_provider.spark.jvm.reflection import private_field

HELD = 16
"""How many ended queries are held until they are looked at, and Spark's shuffle files with them: the last ones."""
_UNKNOWN = "?"
_ANY_KEY = "*"
_OF_STREAM = "stream"
_LOST = "!"


@dataclass(frozen=True)
class Kind:
    """What identifies a shuffle that calls functions before its full identity is known.

    :ivar key: digest over its partitioning, functions and files; empty if only the title is known
    :ivar title: digest over its partitioning; empty if nothing is known
    """

    key: str
    title: str

    def may_be(self, other: Kind) -> bool:
        """Whether shuffles of these two kinds may be the same shuffle."""
        if not self.title or not other.title:
            return True
        return self.title == other.title and (not self.key or not other.key or self.key == other.key)


@dataclass(frozen=True)
class NotedQuery:
    """A query that has ended, or runs.

    :ivar position: its place among all queries of the JVM
    :ivar token: a number that no other query has; several executions of one frame may be one query
    :ivar application: Spark's id
    :ivar of_stream: whether a batch of a stream has run it, or may have
    :ivar shuffles: each one that may call functions, with its number if it has one
    """

    position: float
    token: int
    application: str
    of_stream: bool
    shuffles: tuple[tuple[Kind, int | None], ...]


class EndedQueries:
    """What one JVM knows of its queries."""

    def __init__(self, spark: Any) -> None:
        self._java = compiled(spark, "EndedQueries", lambda: str(HELD))
        self.attach(spark)

    def is_of(self, spark: Any) -> bool:
        """Whether these are the queries of a session's JVM."""
        return self._java is compiled(spark, "EndedQueries", lambda: str(HELD))

    def attach(self, spark: Any) -> None:
        """Start to listen for the queries of an application."""
        store = spark._jsparkSession.sharedState().statusStore()
        self._java.attach(spark._jsc.sc(), search_of(spark), store)

    def detach(self) -> None:
        """Stop listening, and forget the noted queries."""
        self._java.detach()

    def next(self) -> int:
        """Return the number that the next query gets."""
        return int(self._java.next())

    def token(self, execution: Any) -> int:
        """Return the token of a ``QueryExecution``."""
        return int(self._java.token(execution))

    def failed(self) -> int | None:
        """Return the token of the query that this thread has run last, if it has failed."""
        token = str(self._java.failed())
        return int(token) if token else None

    def kind(self, exchange: Any) -> Kind:
        """Return the kind of a shuffle that calls functions."""
        key, title = str(self._java.key(exchange)).split(":")
        return Kind(key, title)

    def ended(self, execution: Any, position: float) -> None:
        """Note a query that Spark does not announce.

        :param position: between the numbers of others
        """
        self._java.ended(execution, str(position))

    def noted(self) -> tuple[list[NotedQuery], bool]:
        """Return the queries that have ended since the last call, and whether some of them were lost.

        Queries are lost if they ended before this listened, or were too many.
        """
        lines = str(self._java.reports()).splitlines()
        return [_noted(line) for line in lines if line != _LOST], _LOST in lines

    def running(self, spark: Any) -> list[NotedQuery]:
        """Return the running queries that may have shuffles that call functions."""
        listener = spark._jsparkSession.sharedState().statusStore().listener().get()
        return [
            _noted(line) for line in str(self._java.running(private_field(listener, "liveExecutions"))).splitlines()
        ]

    def plan(self, query: NotedQuery) -> Any:
        """Return the ``QueryExecution`` of a query that has ended; ``None`` if it is no longer held."""
        return self._java.plan(str(query.token))

    def release(self, query: NotedQuery) -> None:
        """Stop holding a query that has ended."""
        self._java.release(str(query.token))

    def all_known(self, first: int, end: int, seconds: float = 0.0) -> bool:
        """Wait until every query from *first* to before *end* is known to run or to have ended; return success."""
        return bool(self._java.allKnown(first, end, int(1000 * seconds)))


def _noted(line: str) -> NotedQuery:
    position, where, token, application, *shuffles = line.split()
    return NotedQuery(float(position), int(token), application, where == _OF_STREAM, tuple(map(_shuffle, shuffles)))


def _shuffle(text: str) -> tuple[Kind, int | None]:
    if text == _UNKNOWN:
        return Kind("", ""), None
    key, title, number = text.split(":")
    return Kind("" if key == _ANY_KEY else key, title), None if number == "-" else int(number)
