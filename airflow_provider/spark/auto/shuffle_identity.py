"""The identity of a shuffle across attempts: everything that decides its rows, and which occurrence of it this is.

It covers the physical plan below the exchange, so the rest of the query, and of the script, may change. If its rows
depend on more than that shows, as on the order of rows in the shuffles that its tasks read, it covers the incarnation
of these, too: what was made of map outputs fits to these alone. Of a broadcast whose rows may be others in a retry, as
one that has chosen among rows or reads a database, it covers the content. A cached frame that its tasks read must hold
the same again if the shuffles and broadcasts below the frame do, because other queries read it, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider.core import explain
from airflow_provider.core.digest import digest
from airflow_provider.core.events import SHUFFLE
from airflow_provider.core.partitions import FOLDER
from airflow_provider.core.vertex_token import READER, vertex_identity
from airflow_provider.spark.identity.fingerprint import changed_settings, exchange_fingerprint, uncertain
from airflow_provider.spark.jvm.cached_frames import doubt_of_bits, doubt_of_cached
from airflow_provider.spark.jvm.determinism import spreads, varies
from airflow_provider.spark.jvm.exchanges import (
    content_of,
    functions_of_several_rows,
    inputs_of,
    kind,
    may_be_spread_otherwise,
    names_seen,
    rows_to_choose_from,
)
from airflow_provider.spark.jvm.occurrences import NotYet, Uncertain
from airflow_provider.spark.jvm.scala import items

if TYPE_CHECKING:
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.identity.fingerprint import Fingerprint
    from airflow_provider.spark.jvm.exchanges import TaskInputs
    from airflow_provider.spark.jvm.session_settings import QuerySettings

_NAMED = {"AttributeReference", "Alias"}
_PARTITIONINGS = {"HashPartitioning", "SinglePartition", "RoundRobinPartitioning"}


class NotKept(Exception):
    """A shuffle cannot be kept, or put back; the text says why."""


@dataclass(frozen=True)
class Purpose:
    """What a shuffle is for.

    :ivar name: an output, a step, or a cached frame; ``None`` if unknown
    :ivar cached: whether it is inside a cached frame
    """

    name: str | None
    cached: bool = False

    @property
    def recorded(self) -> str:
        """The coordinator name of the only output that it serves; empty if a retry may need it otherwise."""
        return "" if self.cached or self.name is None else self.name


@dataclass(frozen=True)
class ShuffleIdentity:
    """The identity of a shuffle across attempts.

    :ivar title: for people: by what it shuffles
    :ivar fingerprint: over everything that decides its rows, except for what *inputs* hold
    :ivar inputs: Spark's ids of the shuffles that its tasks read, in the order of its plan, if what its plan shows does
        not decide its rows; else ``None``
    :ivar incarnation: of *inputs*, see :func:`.core.partitions.incarnation`; empty if it has none, or none is known yet
    :ivar over_cached: whether its tasks read a cached frame, perhaps filled long before
    """

    title: str
    fingerprint: Fingerprint
    inputs: tuple[int, ...] | None = None
    incarnation: str = ""
    over_cached: bool = False

    @classmethod
    def of(
        cls, context: RecoveryContext, spark: Any, exchange: Any, canonical: Any, settings: QuerySettings
    ) -> ShuffleIdentity:
        """Return the identity of an exchange.

        :param canonical: the form by which adaptive execution knows it
        :param settings: those that its query runs, or ran, with
        :raises NotKept: it has no certain identity
        """
        return cls._of(context, spark, exchange, canonical, settings)._with_names(spark, exchange)

    @classmethod
    def _of(
        cls, context: RecoveryContext, spark: Any, exchange: Any, canonical: Any, settings: QuerySettings
    ) -> ShuffleIdentity:
        if not may_be_kept(exchange):
            raise NotKept(f"its rows are spread by {_spread(exchange)}, which is not the same in every run")
        fingerprint = exchange_fingerprint(spark, context, canonical, settings)
        if fingerprint.cached and (doubt := doubt_of_cached(spark, exchange.child())) is not None:
            return cls._over_cached(context, spark, exchange, canonical, settings, fingerprint, doubt)
        if fingerprint.cached and (doubt := doubt_of_bits(spark, exchange.child())):
            raise NotKept(f"something below it reads a cached DataFrame, which {doubt}")
        reasons = _of_tasks(spark, (*fingerprint.opaque, *fingerprint.not_deterministic), items(exchange.children()))
        if reasons and _chosen_by_tasks(context, spark, canonical, fingerprint):
            reasons = ()
        identity = cls(title_of(exchange), fingerprint)
        if identity.calls_functions and (varying := functions_of_several_rows(items(canonical.children()))):
            reasons = (*reasons, varying)
        if not reasons:
            return identity
        read, contents = inputs_of(exchange), None
        if _known_but_for_order(fingerprint):
            contents = _contents(context, spark, read)
        else:  # what its tasks read stands for what is below that
            own = exchange_fingerprint(spark, context, canonical, settings, tasks=True)
            if _known_but_for_order(own):
                contents = _contents(context, spark, read, all_broadcasts=True)
            fingerprint = replace(own, parts=fingerprint.parts | own.parts)
        if read is None or contents is None:
            raise NotKept("; ".join(dict.fromkeys(reasons)))
        return replace(identity, inputs=read.shuffles, fingerprint=_with(contents, fingerprint))

    @classmethod
    def of_frame(cls, context: RecoveryContext, spark: Any, reader: Any, settings: QuerySettings) -> ShuffleIdentity:
        """Return the identity of a cached frame, by a shuffle that would read it.

        A retry finds the frame's own rows, so that they need not come out the same when it is filled again.

        :param settings: those under which it was cached and filled
        :raises NotKept: it has no certain identity
        """
        canonical = reader.canonicalized()
        fingerprint = exchange_fingerprint(spark, context, canonical, settings)
        made = cls._over_cached(context, spark, reader, canonical, settings, fingerprint, "")
        return made._with_names(spark, reader)

    def _with_names(self, spark: Any, exchange: Any) -> ShuffleIdentity:
        """Return it with the names by which functions see columns, which the canonical form does not have."""
        if not self.calls_functions or not (names := names_seen(exchange, spark)):
            return self
        named = digest(self.fingerprint.digest, "names", names)
        return replace(self, fingerprint=replace(self.fingerprint, digest=named))

    @classmethod
    def _over_cached(
        cls,
        context: RecoveryContext,
        spark: Any,
        exchange: Any,
        canonical: Any,
        settings: QuerySettings,
        fingerprint: Fingerprint,
        doubt: str,
    ) -> ShuffleIdentity:
        """Return the identity of an exchange whose tasks read cached frames: what they are made of stands for these.

        :param fingerprint: over everything below
        :param doubt: see :func:`doubt_of_cached`
        """
        own = exchange_fingerprint(spark, context, canonical, settings, tasks=True)
        reasons = _of_tasks(spark, (*own.opaque, *own.not_deterministic), items(exchange.children()))
        if any(part.startswith(explain.FUNCTION) for part in own.parts):
            reasons = (*reasons, functions_of_several_rows(items(canonical.children())))
        read = inputs_of(exchange)
        if doubt:
            reasons = (*reasons, f"it reads a cached DataFrame, which {doubt}")
        elif read is None:
            reasons = (*reasons, "it reads a cached DataFrame whose tasks are not planned")
        elif any(_changed_since(context.application.cached_under.get(number), settings) for number in read.cached):
            reasons = (*reasons, "it reads a cached DataFrame, which may have been made under other settings")
        if reasons := tuple(filter(None, reasons)):
            raise NotKept("; ".join(dict.fromkeys(reasons)))
        contents = _contents(context, spark, read, all_broadcasts=True)
        if read is None or contents is None:
            raise NotKept("it reads a cached DataFrame and something else that may hold other rows in a retry")
        made = _with(contents, replace(own, parts=fingerprint.parts | own.parts))
        return cls(title_of(exchange), made, read.shuffles, over_cached=True)

    @property
    def calls_functions(self) -> bool:
        """Whether it involves Python functions, which may read something that Spark does not see."""
        return any(part.startswith(explain.FUNCTION) for part in self.fingerprint.parts)

    def occurrence(self, purpose: Purpose, time: Callable[[str], str]) -> ShuffleIdentity:
        """Return the identity of one occurrence of the shuffle.

        A shuffle that calls Python functions may give other rows each time that the script runs it, in a loop that
        waits for something, say. So each occurrence in an attempt has a vertex of its own, across all applications of
        the script. Occurrences are counted per output, because a retry leaves out written outputs and their queries. A
        cached frame runs its shuffles once. All other shuffles give the same rows each time.

        :param time: given the shuffle's identity, returns the occurrence
        :raises NotKept: it calls functions, and its purpose or occurrence number is unknown
        :raises NotYet: its occurrence number is not known yet
        """
        if not self.calls_functions:
            return self
        if purpose.name is None:
            raise NotKept("it calls a Python function, and the output or cached frame that it is for is unknown")
        counted = digest(self.fingerprint.digest, purpose.name)
        try:
            numbered = digest(counted, "occurrence", "1" if purpose.cached else time(counted))
        except NotYet:
            raise
        except Uncertain as reason:
            raise NotKept(str(reason)) from reason
        return replace(self, fingerprint=replace(self.fingerprint, digest=numbered))

    def made_of(self, incarnation: str) -> ShuffleIdentity:
        """Return the identity of what was made of one incarnation of its inputs."""
        made = digest(self.fingerprint.digest, "made of", incarnation)
        return replace(self, incarnation=incarnation, fingerprint=replace(self.fingerprint, digest=made))

    @property
    def vertex(self) -> str:
        """The vertex's identity in the graph."""
        return vertex_identity(self.title, self.fingerprint.digest)

    def points_below(self, prefix: str) -> tuple[str, ...]:
        """Return the script's recovery points whose stored partitions are read below.

        :param prefix: the job's
        """
        stored = re.compile(rf"/{re.escape(prefix)}/{FOLDER}/([^/]+)/|{READER}(.+-[0-9a-f]{{32}})_")
        found = (stored.search(part) for part in self.fingerprint.parts)
        return tuple(dict.fromkeys(match[1] or match[2] for match in found if match is not None))


def _known_but_for_order(fingerprint: Fingerprint) -> bool:
    """Whether rows vary at most with the order of others, or with the tasks that get them."""
    return not fingerprint.opaque and not any(map(varies, fingerprint.not_deterministic))


def _of_tasks(spark: Any, reasons: tuple[str, ...], plans: Iterable[Any]) -> tuple[str, ...]:
    """Return those of the reasons why rows of plans may vary that count for single tasks.

    How rows are spread over tasks counts only for those that read them. Whatever a shuffle by keys is made of, each
    reducer gets the rows of its keys.
    """
    if not any(map(spreads, reasons)) or any(may_be_spread_otherwise(plan, spark) for plan in plans):
        return reasons
    return tuple(reason for reason in reasons if not spreads(reason))


def _chosen_by_tasks(context: RecoveryContext, spark: Any, canonical: Any, fingerprint: Fingerprint) -> bool:
    """Whether its rows vary only in which of its input rows each map task takes, or in which order.

    Each task chooses by itself, so outputs of two attempts fit together like those of two tries of a task. Whatever
    reads the shuffle takes the rows that are there; results of an earlier choice are not kept.
    """
    if not _known_but_for_order(fingerprint):
        return False
    rows = rows_to_choose_from(canonical)
    return rows is not None and not _of_tasks(spark, uncertain(spark, context, rows), [rows])


def _changed_since(cached_under: Mapping[str, str] | None, settings: QuerySettings) -> bool:
    """Whether settings that may change rows differ from those under which a frame was cached, or these are unknown."""
    return cached_under is None or bool(changed_settings(cached_under, settings.values))


def _with(contents: list[str], fingerprint: Fingerprint) -> Fingerprint:
    """Return a fingerprint that covers the contents of broadcasts, too."""
    return replace(fingerprint, digest=digest(fingerprint.digest, "broadcast", *contents)) if contents else fingerprint


def _contents(
    context: RecoveryContext, spark: Any, inputs: TaskInputs | None, *, all_broadcasts: bool = False
) -> list[str] | None:
    """Return the contents of the broadcasts that tasks read and whose rows may be others in a retry; ``None`` if
    something else that they read may be, besides shuffles, or it is not known what they read.

    :param all_broadcasts: whether to return the contents of all broadcasts
    """

    def varied(plan: Any) -> bool:
        several = functions_of_several_rows((plan,), deeper=True)
        return bool(several) or not all(map(spreads, uncertain(spark, context, plan)))

    if inputs is None or any(map(varied, inputs.others)):
        return None
    contents = [content_of(spark, each) for each in inputs.broadcasts if all_broadcasts or varied(each)]
    return contents if all(contents) else None


def may_be_kept(exchange: Any) -> bool:
    """Whether an exchange spreads its rows in the same way in every run."""
    return _spread(exchange) in _PARTITIONINGS


def _spread(exchange: Any) -> str:
    return kind(exchange.outputPartitioning()).rstrip("$")


def title_of(exchange: Any) -> str:
    """Return the shuffle's name in the log, by what it shuffles."""
    partitioning = exchange.outputPartitioning()
    hashed = kind(partitioning) == "HashPartitioning"
    names = ", ".join(_name_of(key) for key in items(partitioning.expressions())) if hashed else ""
    return shortened(f"{SHUFFLE}({names})" if names else SHUFFLE)


def shortened(title: str) -> str:
    """Return a vertex's name that ends with a parenthesis in at most 60 characters."""
    return title if len(title) <= 60 else f"{title[:58]}…)"


def _name_of(key: Any) -> str:
    return str(key.name() if kind(key) in _NAMED else key.prettyName())
