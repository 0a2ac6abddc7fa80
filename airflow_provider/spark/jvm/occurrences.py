"""Which time of a shuffle this is, where its tasks call Python functions: these may ask something outside.

A retry puts back the rows of the same time only. So the times must be counted alike in all attempts, and a time that
went unseen in one must not shift the others: what cannot be told for certain has no number, and with it all that may
be of the same kind and comes later. The numbers of Spark's queries say whether any went unseen, and their order.
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
"""Seconds for which an action waits, once, until Spark has records of the queries that ended before they were noted."""
_MISSED = "an earlier query of its kind was over before it was looked at, or its settings have changed"


class Uncertain(Exception):
    """Which time of a shuffle this is cannot be told; says why."""


class NotYet(Uncertain):
    """It may be told later, when queries that began before are over."""


@dataclass(frozen=True)
class Turn:
    """Where a query stands among those of its JVM.

    :ivar position: its number, or one between those of others
    :ivar token: see :class:`NotedQuery`
    """

    position: float
    token: int


@dataclass(frozen=True)
class Numbered:
    """A shuffle to be counted.

    :ivar what: digest over what it is for and all that decides its rows, but for what its functions ask
    :ivar kind: what it may be taken for
    :ivar purpose: what its query is for
    :ivar turn: where its query stands
    """

    what: str
    kind: Kind
    purpose: str
    turn: Turn


Count = Callable[[NotedQuery, Any, str], None]
"""Counts the shuffles of a query that has ended, as far as it can; is given its ``QueryExecution``, ``None`` if that is
not held any more, and its purpose.
"""


class Occurrences:
    """The times of one attempt.

    :ivar lock: held while something is counted
    """

    def __init__(self, purposes: Purposes) -> None:
        self.lock = threading.RLock()
        self._purposes = purposes
        self._counts: Counter[tuple[str, Kind]] = Counter()
        self._times: dict[tuple[str, int], str] = {}
        self._counted: dict[int, list[tuple[Numbered, int]]] = defaultdict(list)
        """By the token of its query, each shuffle that was counted, and its number among those of its kind."""
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
        """Hear of the queries of an application; if that cannot be, nothing that calls functions has a number."""
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
        """Count nothing more."""
        with self.lock:
            self._lost = self._lost or "nobody looks at this application any more"
            with suppress(Exception):  # the JVM has gone
                self._known().detach()

    def turn(self, execution: Any) -> Turn:
        """Return the turn of a query that is about to begin.

        :raises Uncertain: nobody knows of its JVM's queries
        """
        queries = self._known()
        return Turn(queries.next() - 0.5, queries.token(execution))

    def turn_of(self, number: int, execution: Any) -> Turn:
        """Return the turn of a query that Spark has announced.

        :raises Uncertain: nobody knows of its JVM's queries
        """
        return Turn(number, self._known().token(execution))

    def kind(self, exchange: Any) -> Kind:
        """Return what a shuffle that calls functions may be taken for.

        :raises Uncertain: nobody knows of its JVM's queries
        """
        return self._known().kind(exchange)

    def tell(self, number: int, purpose: str | None) -> None:
        """A query that Spark has announced is for *purpose*; ``None`` if that cannot be told now."""
        if purpose is not None:
            with self.lock:
                self._told[number] = purpose

    def tell_own(self, turn: Turn) -> None:
        """A query of this thread is for what this thread does now."""
        with self.lock:
            self._told_by_token[turn.token] = self._purposes.own

    @contextmanager
    def unannounced(self, execution: Any) -> Iterator[None]:
        """Count a query of this thread that Spark does not announce: it runs inside."""
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
        """Return which time it would be if a shuffle were counted now.

        :raises Uncertain: that cannot be told
        """
        with self.lock:
            self._check(shuffle)
            return f"{shuffle.kind.key} {self._counts[shuffle.what, shuffle.kind] + 1}"

    def take(self, shuffle: Numbered, application: str, number: int) -> str:
        """Count a shuffle, once; return which time it is.

        :param application: Spark's id
        :param number: Spark's, of the shuffle
        :raises Uncertain: that cannot be told
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
        """A query of this thread has failed, and runs again: the next try is the time that this one was.

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
        """Count the shuffles of queries that have ended; what cannot be counted makes later ones uncertain.

        :param wait: until each query before is known, but not long
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
            log.debug("Which time of a function's shuffle comes next cannot be told any more")
        for purpose in possible:
            self._doubts[purpose].update(left)
        return True

    def _left(self, query: NotedQuery) -> list[Kind]:
        """Return of which kinds it has shuffles that were not counted."""
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
    return f"it calls a Python function, and which time of it this is cannot be told: {reason}"


def _next_query() -> int:
    """Return the number of the next query of the JVM that the script finds, 0 if it will start one."""
    context = getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_active_spark_context", None)
    if context is None or context._jsc is None:
        return 0
    module = companion(jvm_of(context).org.apache.spark.sql.execution, "SQLExecution")
    return int(private_field(module, "_nextExecutionId"))  # py4j hands over a number
