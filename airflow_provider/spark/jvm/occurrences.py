"""Number the occurrences of shuffles whose tasks call Python functions, because these may read something outside Spark.

A retry puts back only the rows of the same occurrence. So occurrences must be counted alike in all attempts, and one
that went unseen in one attempt must not shift the others: an uncertain occurrence gets no number, nor do later ones
that may be of the same kind. The numbers of Spark's queries show their order, and whether any query went unseen.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider.core.causes import one_line
from airflow_provider.spark.jvm.ended_queries import EndedQueries, Kind, NotedQuery
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.reflection import private_field
from airflow_provider.spark.jvm.scala import companion

if TYPE_CHECKING:
    from airflow_provider.spark.jvm.purposes import Purposes

log = logging.getLogger(__name__)

_MOST_UNSETTLED = 1000
_PATIENCE = 10.0
"""Seconds that an action waits, once, until Spark has records of the queries that ended before they were noted."""
_MISSED = "an earlier query of its kind was over before it was looked at, or its settings have changed"


class Uncertain(Exception):
    """An occurrence has no certain number; the text says why."""


class NotYet(Uncertain):
    """The number may become known when earlier queries are over."""


@dataclass(frozen=True)
class Turn:
    """A query's position among those of its JVM.

    :ivar position: its number, or one between those of others
    :ivar token: see :class:`NotedQuery`
    """

    position: float
    token: int


@dataclass(frozen=True)
class Numbered:
    """A shuffle to be counted.

    :ivar what: digest over its purpose and everything that decides its rows, except for what its functions read
    :ivar kind: what it may be mistaken for
    :ivar purpose: its query's
    :ivar turn: its query's
    """

    what: str
    kind: Kind
    purpose: str
    turn: Turn


Count = Callable[[NotedQuery, Any, str], None]
"""Counts the shuffles of a query that has ended, as far as possible. Gets the query, its ``QueryExecution`` (``None``
if no longer held), and its purpose.
"""


class Occurrences:
    """The occurrences in one attempt.

    :ivar lock: held while something is counted
    """

    def __init__(self, purposes: Purposes) -> None:
        self.lock = threading.RLock()
        self._purposes = purposes
        self._counts: Counter[tuple[str, Kind]] = Counter()
        self._times: dict[tuple[str, int], str] = {}
        self._counted: dict[int, list[tuple[Numbered, int]]] = defaultdict(list)
        """Token of a query → each of its counted shuffles, with its number among those of its kind."""
        self._repeated: set[int] = set()
        """Tokens of queries that have failed and run again."""
        self._doubts: dict[str, set[Kind]] = defaultdict(set)
        self._told: dict[int, str] = {}
        self._told_by_token: dict[int, str] = {}
        self._unannounced: list[NotedQuery] = []
        self._unsettled: list[NotedQuery] = []
        self._queries: EndedQueries | None = None
        self._spark: Any = None
        self._lost = ""
        self._first = _next_query()

    def attach(self, spark: Any) -> None:
        """Listen for the queries of an application; if that fails, nothing that calls functions gets a number."""
        with self.lock:
            self._spark = spark
            try:
                if self._queries is None:
                    self._queries = EndedQueries(spark)
                elif self._queries.is_of(spark):
                    self._queries.attach(spark)
                else:
                    self._lost = "the script has started another JVM"
                self._purposes.count_by(self._queries.next)
            except Exception as error:
                log.debug("Queries cannot be counted", exc_info=error)
                self._lost = f"this version of Spark does not say which queries have run: {one_line(error)}"

    def detach(self) -> None:
        """Stop counting."""
        with self.lock:
            self._lost = self._lost or "nobody looks at this application any more"
            with suppress(Exception):  # the JVM has gone
                self._known().detach()

    def turn(self, execution: Any) -> Turn:
        """Return the turn of a query that is about to start.

        :raises Uncertain: the queries of its JVM are unknown
        """
        queries = self._known()
        return Turn(queries.next() - 0.5, queries.token(execution))

    def turn_of(self, number: int, execution: Any) -> Turn:
        """Return the turn of a query that Spark has announced.

        :raises Uncertain: the queries of its JVM are unknown
        """
        return Turn(number, self._known().token(execution))

    def kind(self, exchange: Any) -> Kind:
        """Return what a shuffle that calls functions may be mistaken for.

        :raises Uncertain: the queries of its JVM are unknown
        """
        return self._known().kind(exchange)

    def tell(self, number: int, purpose: str | None) -> None:
        """Note the purpose of a query that Spark has announced; ``None`` if it is not known now."""
        if purpose is not None:
            with self.lock:
                self._told[number] = purpose

    def tell_own(self, turn: Turn) -> None:
        """Note that a query of this thread has the thread's current purpose."""
        with self.lock:
            self._told_by_token[turn.token] = self._purposes.own

    @contextmanager
    def unannounced(self, execution: Any) -> Iterator[None]:
        """Count a query that runs inside, in this thread, without being announced."""
        try:
            turn = self.turn(execution)
        except Exception as error:  # noqa: BLE001 - nothing that calls functions has a number then
            with self.lock:
                self._lost = self._lost or f"a query could not be looked at: {one_line(error)}"
            yield
            return
        under_way = NotedQuery(turn.position, turn.token, "", False, ((Kind("", ""), None),))
        with self.lock:
            self.tell_own(turn)
            self._unannounced.append(under_way)
        try:
            yield
        finally:
            with self.lock:
                self._unannounced.remove(under_way)
                try:
                    self._known().ended(execution, turn.position)
                except Exception as error:  # noqa: BLE001 - the script has stopped Spark, say
                    self._lost = f"a query could not be looked at: {one_line(error)}"

    def next(self, shuffle: Numbered) -> str:
        """Return the occurrence that a shuffle would be if it were counted now.

        :raises Uncertain: it is unknown
        """
        with self.lock:
            self._check(shuffle)
            return f"{shuffle.kind.key} {self._counts[shuffle.what, shuffle.kind] + 1}"

    def take(self, shuffle: Numbered, application: str, number: int) -> str:
        """Count a shuffle, once; return which occurrence it is.

        :param application: Spark's id
        :param number: Spark's shuffle id
        :raises Uncertain: it is unknown
        """
        with self.lock:
            if (application, number) not in self._times:
                if shuffle.turn.token in self._repeated:
                    raise Uncertain(_because("its query has failed, and runs again"))
                self._times[application, number] = self.next(shuffle)
                self._counts[shuffle.what, shuffle.kind] += 1
                self._counted[shuffle.turn.token].append((shuffle, self._counts[shuffle.what, shuffle.kind]))
            return self._times[application, number]

    def failed(self, execution: Any) -> None:
        """A query of this thread has failed and runs again: let its next run count as the same occurrence.

        :param execution: its ``QueryExecution``; ``None`` for the last query of this thread
        """
        with self.lock:
            if self._queries is None:
                return
            token = self._queries.token(execution) if execution is not None else self._queries.failed()
            if token is None:
                return
            self._repeated.add(token)
            for shuffle, number in reversed(self._counted.pop(token, [])):
                if self._counts[shuffle.what, shuffle.kind] == number:
                    self._counts[shuffle.what, shuffle.kind] -= 1
                else:  # another thread has run one of its kind meanwhile
                    self._doubts[shuffle.purpose].add(shuffle.kind)

    def settle(self, count: Count, *, wait: bool = False) -> None:
        """Count the shuffles of queries that have ended; those that cannot be counted make later ones uncertain.

        :param wait: whether to wait a little until all earlier queries are known
        """
        with self.lock:
            if self._queries is None:
                return
            if wait and not self._lost and not self._queries.all_known(self._first, self._queries.next(), _PATIENCE):
                self._lost = "Spark does not say which queries have run"
            self._hear()
            for query in sorted(self._unsettled, key=lambda query: query.position):
                if self._settled(query, count) and query in self._unsettled:
                    self._unsettled.remove(query)
                self._queries.release(query)

    def _hear(self) -> None:
        queries = self._known()
        noted, lost = queries.noted()
        self._unsettled += [query for query in noted if query.position >= self._first]
        if lost or len(self._unsettled) > _MOST_UNSETTLED:
            self._lost = self._lost or "queries that called functions were over before they could be looked at"
        if self._lost:
            for query in noted:
                queries.release(query)
            self._unsettled.clear()

    def _settled(self, query: NotedQuery, count: Count) -> bool:
        if query.token in self._repeated:
            return True
        possible = self._possible(query)
        if self._left(query) and len(possible) == 1 and not query.of_stream:
            (purpose,) = possible
            execution = self._known().plan(query)
            try:
                count(query, execution, purpose)
            except NotYet:
                return False
            except Exception as error:
                log.debug("A query that has ended cannot be looked at", exc_info=error)
        left = self._left(query)
        if left:
            log.debug("The occurrences of shuffles with Python functions are no longer known")
        for purpose in possible:
            self._doubts[purpose].update(left)
        return True

    def _left(self, query: NotedQuery) -> list[Kind]:
        """Return the kinds of its shuffles that were not counted."""
        return [
            kind for kind, number in query.shuffles if number is None or (query.application, number) not in self._times
        ]

    def _possible(self, query: NotedQuery) -> set[str]:
        if query.token in self._told_by_token:
            return {self._told_by_token[query.token]}
        if query.position in self._told:
            return {self._told[int(query.position)]}
        return self._purposes.possible(query.position)

    def _check(self, shuffle: Numbered) -> None:
        if self._lost:
            raise Uncertain(_because(self._lost))
        if any(kind.may_be(shuffle.kind) for kind in self._doubts[shuffle.purpose]):
            raise Uncertain(_because(_MISSED))
        running = self._known().running(self._spark)  # first: what ends meanwhile is noted
        if not self._known().all_known(self._first, -int(-shuffle.turn.position // 1)):
            raise NotYet(_because("Spark has not told of all queries before it"))
        self._hear()
        for query in (*self._unsettled, *self._unannounced, *running):
            if (
                self._first <= query.position < shuffle.turn.position
                and query.token not in (shuffle.turn.token, *self._repeated)
                and any(kind.may_be(shuffle.kind) for kind in self._left(query))
                and shuffle.purpose in self._possible(query)
            ):
                raise NotYet(_because("an earlier query of its kind runs"))

    def _known(self) -> EndedQueries:
        if self._queries is None:
            raise Uncertain(_because(self._lost or "nobody has looked at this application"))
        return self._queries


def _because(reason: str) -> str:
    return f"it calls a Python function, and its occurrence among equal shuffles is unknown: {reason}"


def _next_query() -> int:
    """Return the number of the next query of the JVM that the script finds, 0 if it will start one."""
    context = getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_active_spark_context", None)
    if context is None or context._jsc is None:
        return 0
    module = companion(jvm_of(context).org.apache.spark.sql.execution, "SQLExecution")
    return int(private_field(module, "_nextExecutionId"))  # py4j returns a number
