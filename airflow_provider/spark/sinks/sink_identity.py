"""The identity of a write: where it goes, and whether its rows are certain to be the same."""

from __future__ import annotations

import functools
import heapq
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider.core.causes import one_line
from airflow_provider.core.digest import digest
from airflow_provider.core.outputs_read import SourceRead, made_meanwhile, outputs_read
from airflow_provider.core.unfinished_write import CALL, MADE, MOMENT, SINK, SOURCES, output_state
from airflow_provider.core.vertex_token import vertex_of
from airflow_provider.spark.identity.fingerprint import fingerprint, settled_once
from airflow_provider.spark.identity.known import DrawsOfOnePlan
from airflow_provider.spark.jvm.determinism import spreads
from airflow_provider.spark.jvm.execution import micro_batch
from airflow_provider.spark.jvm.output import (
    FILE_FORMATS,
    content_digest,
    new_table_location,
    output_files,
    path_exists,
    qualified,
    qualified_table,
    table_exists,
    table_location,
    unspread,
)
from airflow_provider.spark.jvm.sql_commands import WritingCommand

if TYPE_CHECKING:
    from airflow_provider.core.committed_output import OutputFile
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.jvm.sources import Source

log = logging.getLogger(__name__)

TO_PATHS = ("save", "parquet", "json", "csv", "orc", "text", "xml")
TO_TABLES = ("saveAsTable", "insertInto")
_KEPT_NOWHERE = frozenset({"noop", "console", "memory"})


@dataclass(frozen=True)
class Place:
    """Where a write goes.

    :ivar target: its name
    :ivar locate: returns where its files are now; empty if nowhere
    :ivar new: returns where Spark puts them if there is no such table yet; empty if unknown
    :ivar table: the table's qualified name; empty for a path
    """

    target: str
    locate: Callable[[], str]
    new: Callable[[], str]
    table: str = ""


@dataclass(frozen=True)
class Sink:
    """One write of the script.

    :ivar coordinator: the name of its record
    :ivar title: its name in the log
    :ivar mode: ``append``, ``overwrite`` or ``error``
    :ivar reads: the vertices whose rows it writes
    :ivar repeated: why each attempt writes it; empty if it is left out once it is written
    :ivar chosen: what makes its rows depend on the order in which the query's tasks read theirs; empty if they are
        certain to be the same
    :ivar moment: represents the state of everything that functions read for it by themselves; empty if they read
        nothing
    :ivar of_a_batch: whether a streaming query writes it. Such a query continues after the batches that its checkpoint
        knows, so only the batch that it repeats is written again.
    :ivar told: whether its plan tells it from other writes, even if its rows differ between attempts
    :ivar if_absent: whether Spark leaves it out where something is
    :ivar again: whether the script has called it before in this attempt, and it failed
    :ivar made: represents its rows and how they are written, wherever that is; empty if nothing can
    :ivar call: represents the script's call, whatever its sources hold; empty if nothing can
    :ivar sources: of its rows
    :ivar earlier: the record name under which an earlier attempt made it, if it reads what the script has not reached
        yet; else empty
    :ivar turns: the common key of all such writes of the script, and that of all such calls, with its position, from 1
    """

    coordinator: str
    title: str
    place: Place
    mode: str
    reads: tuple[str, ...]
    repeated: str = ""
    chosen: str = ""
    moment: str = ""
    of_a_batch: bool = False
    told: bool = False
    if_absent: bool = False
    again: bool = False
    made: str = ""
    call: str = ""
    sources: tuple[SourceRead, ...] = ()
    earlier: str = ""
    turns: tuple[tuple[str, int], ...] = ()

    @property
    def reads_its_results(self) -> bool:
        """Whether it changed, in an earlier attempt, what it reads."""
        return self.earlier not in ("", self.coordinator)

    @property
    def overwrites(self) -> bool:
        """Whether it replaces what is there."""
        return self.mode == "overwrite"

    def state(self, status: str, attempt: int) -> dict[str, Any]:
        """Return what its record always contains, as plain JSON."""
        return {**output_state(status, attempt, self.title, self.reads), **self.origin()}

    def origin(self) -> dict[str, Any]:
        """Return what its record says of where its rows come from, as plain JSON."""
        made = {MADE: self.made, MOMENT: self.moment} if self.made else {}
        sources = [[source.name, source.identity] for source in self.sources]
        return {**made, CALL: self.call, SOURCES: sources} if self.call else made


class _Sources:
    """What the rows of one write are read from, in the order of its plan.

    :param states: the records of the job's writes
    :param made_meanwhile: returns what stands for the files of a source that are newer than the job's start
    :ivar varying: the titles of those that it reads, and that each attempt makes again
    :ivar at_a_moment: whether functions have read something by themselves for what it reads
    """

    def __init__(self, states: Mapping[str, Any], made_meanwhile: Callable[[Source], str]) -> None:
        self._states = states
        self._made_meanwhile = made_meanwhile
        self.read: list[SourceRead] = []
        self.varying: dict[str, None] = {}
        self.at_a_moment = False

    def read_as(self, source: Source) -> Source:
        """Return what represents a source: for outputs of the job itself, what they were made of."""
        own = outputs_read(source.roots, source.files, self._states)
        if own is not None:
            source = replace(source, identity=digest("outputs", *source.how, *source.partitions, own.stands_for))
            self.varying |= dict.fromkeys(own.varying)
            self.at_a_moment |= own.at_a_moment
        elif made := self._made_meanwhile(source):
            source = replace(source, identity=digest("made meanwhile", *source.how, *source.partitions, made))
        name = digest(*source.how, *source.places) if source.places else ""
        self.read.append(SourceRead(name, source.lasting, own.writes if own is not None else ()))
        return source


class SinkIdentity:
    """Tells the writes of a script apart."""

    def __init__(self, context: RecoveryContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._occurrences: Counter[str] = Counter()
        self._failed: dict[str, list[int]] = {}
        self._held: dict[tuple[str, int, int], str] = {}

    def of_writer(
        self, writer: Any, made: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Sink | None:
        """Return the sink that a writer is about to write; ``None`` if each attempt writes it.

        :param made: how the writer was set up: names of methods, arguments, named arguments
        """
        df = writer._df
        if not self._usable(df) or name not in (*TO_PATHS, *TO_TABLES):
            return None
        given = _given(made, name, args, kwargs)
        if name in TO_PATHS and given["format"] not in FILE_FORMATS | {""}:
            return None
        if not given["target"]:
            return None
        spark = df.sparkSession
        files = (given["format"] or _default_format(spark)) in FILE_FORMATS
        mode = given["mode"] or "error"
        if name == "insertInto" and mode != "overwrite":  # Spark uses no other mode
            mode = "append"
        if name in TO_PATHS:
            if not files:
                return None
            path = qualified(spark, given["target"])
            place = Place(path, lambda: path, lambda: path)
        else:
            of_hive = given["format"] == "hive" and given["mode"] not in ("append", "overwrite")
            creates = name == "saveAsTable" and (files or of_hive)
            place = self._table(spark, given["target"], given["path"], creates=creates, replaces=mode == "overwrite")
        call = (name, repr(made), repr(args), repr(sorted(kwargs.items())))
        how = tuple(text.replace(repr(given["target"]), "") for text in call)  # the target has several spellings
        sink = self._identified(df, place, how, mode if mode in ("append", "overwrite") else "error")
        return replace(sink, if_absent=mode == "ignore")

    def unknown_writer(
        self, spark: Any, made: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, files: bool
    ) -> str:
        """Return where a writer adds rows that cannot be looked up; empty if it adds none.

        :param files: whether to include files and tables, whose rows can be looked up unless that fails
        """
        if name == "jdbc":  # url, table, mode, properties
            table = args[1] if len(args) > 1 else kwargs.get("table")
            args = (f"table {table} of a database", *args[2:])
        given = _given(made, name, args, kwargs)
        format_ = given["format"] or _default_format(spark)
        adds = given["mode"] == "append" or (name == "insertInto" and given["mode"] != "overwrite")
        if not adds and not (format_ == "kafka" and given["mode"] in ("", "error", "errorifexists")):
            return ""
        if format_ in _KEPT_NOWHERE or (not files and (name in TO_TABLES or format_ in FILE_FORMATS)):
            return ""
        if name in TO_TABLES:
            return f"table {given['target']}"
        return f"{format_} {given['target'] or _option(made, 'dbtable')}".strip()

    def of_command(self, spark: Any, command: WritingCommand, df: Any, what: tuple[str, ...]) -> Sink | None:
        """Return the sink that a statement is about to write; ``None`` if each attempt writes it.

        :param df: the rows
        :param what: the statement
        """
        if not self._usable(df):
            return None
        files = (command.provider or _default_format(spark)) in FILE_FORMATS | {"hive"}
        creates, replaces = files and command.creates, command.overwrites
        place = self._table(spark, command.table, command.location, creates=creates, replaces=replaces)
        mode = "overwrite" if command.overwrites else "error" if command.creates else "append"
        return replace(self._identified(df, place, what, mode), if_absent=command.if_absent)

    def has_failed(self, sink: Sink) -> None:
        """Let the script's next call of this kind be the same write, because scripts retry by themselves."""
        with self._lock:
            for key, number in sink.turns:
                heapq.heappush(self._failed.setdefault(key, []), number)

    def _usable(self, df: Any) -> bool:
        self._context.master.check()
        return not df.isStreaming

    def _table(self, spark: Any, name: str, path: str, *, creates: bool, replaces: bool) -> Place:
        """Return a table's place.

        :param path: where the script puts the files of a new table; empty if it leaves that to Spark
        :param creates: whether the write makes a table of files if there is none
        :param replaces: whether it makes another one where there is one, of any kind
        """

        def new() -> str:
            if not creates or (not replaces and table_exists(spark, name)):
                return ""
            return qualified(spark, path) if path else new_table_location(spark, name)

        target = f"table {name} of {spark.catalog.currentDatabase()}"
        return Place(target, lambda: table_location(spark, name), new, qualified_table(spark, name))

    def _identified(self, df: Any, place: Place, how: tuple[str, ...], mode: str) -> Sink:
        """Return the sink of a DataFrame's rows.

        :param how: the call without its target, or the statement
        """
        spark = df.sparkSession
        batch = micro_batch(spark)
        meanwhile = functools.partial(self._made_meanwhile, spark) if not batch else lambda _: ""
        sources = _Sources(dict(self._context.master.graph.coordinators), meanwhile)
        of_this_run = self._context.run_marks.of(spark)
        asked = None if mode == "overwrite" else lambda value: bool(of_this_run(value))
        draws = DrawsOfOnePlan(self._context.draws)
        identity = fingerprint(df, self._context, of_this_run=asked, read_as=sources.read_as, draws=draws)
        not_deterministic = identity.not_deterministic
        rows = unspread(df) if not_deterministic else df  # coalesce(1) before a write does not change its rows
        if rows is not df:
            not_deterministic = fingerprint(rows, self._context, draws=draws).not_deterministic
        not_deterministic = tuple(reason for reason in not_deterministic if not spreads(reason))
        marked = (of_this_run(*identity.literals) or identity.marked,) if identity.of_each_run else ()
        settled = "; ".join(not_deterministic) if settled_once(rows, self._context, not_deterministic) else ""
        read = ("functions read something by themselves",) if batch and identity.reads else ()
        varying = ", ".join(sources.varying)
        read_back = (f"it reads {varying}, which each attempt writes again",) if varying else ()
        certain = () if settled else not_deterministic
        reason = "; ".join((*identity.opaque, *certain, *marked, *read, *read_back))
        # A database's table has no version, but the request identifies it; an RDD may have nothing that does.
        told = not identity.opaque or bool(identity.unversioned)
        plan = (identity.of_each_run or identity.digest,) if told else ()
        key = digest(*(("repeated", *plan) if reason else plan), place.target, *how, *batch)
        occurrence, again = self._turn(key)
        call = digest("call", identity.call, place.target, *how) if plan and not batch else ""
        number = self._turn(call)[0] if call else 0
        return Sink(
            f"{SINK}{digest(key, str(occurrence))[:32]}",
            place.target if occurrence == 1 else f"{place.target} (write {occurrence})",
            place,
            mode,
            tuple(map(vertex_of, identity.upstream)),
            reason,
            settled,
            self._context.master.moment if identity.reads or sources.at_a_moment else "",
            bool(batch),
            told,
            again=again,
            made=digest(*plan, *how) if plan and not settled and not batch else "",
            call=call and digest(call, str(number)),
            sources=tuple(sources.read),
            turns=((key, occurrence), *(((call, number),) if call else ())),
        )

    def _made_meanwhile(self, spark: Any, source: Source) -> str:
        """Return what stands for a source's files, if some have come since the job began; else an empty text."""
        graph = self._context.master.graph
        began = min(attempt.started_at for epoch, attempt in graph.attempts.items() if epoch >= graph.base_epoch)

        def held_by(*file: Any) -> str:
            if file not in self._held:
                self._held[file] = content_digest(spark, file[0])
            return self._held[file]

        try:
            return made_meanwhile(source.roots, source.files, began, held_by)
        except Exception as error:  # noqa: BLE001 - then they count as any other files
            log.info("Cannot read files that are newer than the job's start: %s", one_line(error))
            return ""

    def _turn(self, key: str) -> tuple[int, bool]:
        """Return the position of a call among those with the same key, and whether it has failed before."""
        with self._lock:
            if failed := self._failed.get(key):
                return heapq.heappop(failed), True
            self._occurrences[key] += 1
            return self._occurrences[key], False


def _default_format(spark: Any) -> str:
    return str(spark.conf.get("spark.sql.sources.default")).lower()


def _option(made: Any, key: str) -> str:
    """Return an option as the script gave it; empty if it did not."""
    found = ""
    for setting, given, named in made:
        if setting == "option" and str(given[0] if given else named.get("key")).lower() == key:
            found = str(given[1] if len(given) > 1 else named.get("value"))
        elif setting == "options":
            found = str(named.get(key, found))
    return found


def _given(made: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, str]:
    """Return mode, format, target (path or table) and path as the script gave them; empty texts for defaults."""
    mode = format_ = ""
    path = kwargs.get("path") or _option(made, "path")
    for setting, given, options in made:
        values = [*given, *options.values()]
        if setting == "mode" and values[0]:
            mode = str(values[0])
        elif setting == "format":
            format_ = str(values[0])
    named = kwargs.get("name", kwargs.get("tableName")) if name in TO_TABLES else kwargs.get("path")
    first = args[0] if args else named
    second = args[1] if len(args) > 1 else None
    third = args[2] if len(args) > 2 else None
    if name == "insertInto":
        overwrite = second if second is not None else kwargs.get("overwrite")
        mode = mode if overwrite is None else "overwrite" if overwrite else "append"
    elif name in ("save", "saveAsTable"):
        format_ = str(second or kwargs.get("format") or format_)
        mode = str(third or kwargs.get("mode") or mode)
    else:
        format_ = name
        positional = {"text": None, "xml": third}.get(name, second)
        mode = str(positional or kwargs.get("mode") or mode)
    return {"mode": mode.lower(), "format": format_.lower(), "target": str(first or path or ""), "path": path}


def files_there(spark: Any, place: Place) -> list[OutputFile]:
    """Return the files where a write goes; none if there is no such place."""
    location = place.locate()
    return output_files(spark, location) if location else []


def is_there(spark: Any, place: Place) -> bool:
    """Whether there is a table, of whatever kind, or a folder where a write goes."""
    if place.table:
        return table_exists(spark, place.table)
    location = place.locate()
    return bool(location) and path_exists(spark, location)
