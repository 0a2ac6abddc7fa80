"""Write an output once per job: what an earlier attempt has committed is not written again.

Skipped is only what is certain to be the same and to be whole: the identity of the write is equal (fingerprint of the
DataFrame, target, format, mode, options, partitioning, and which of several such writes of the script it is), the
event that its commit had returned is in the store, and all files of that commit are still there, unchanged. An attempt
that dies between the commit and that event leaves an intent behind: its successor cannot tell whose files the new ones
are, writes again, and says so where that may be twice.
"""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider.recovery.causes import one_line
from airflow_provider.recovery.digest import digest
from airflow_provider.recovery.errors import Fenced
from airflow_provider.recovery.faults import AFTER_SINK_COMMIT, fault_point
from airflow_provider.recovery.sinks import Commit, OutputFile, listing_digest
from airflow_provider.spark.fingerprint import fingerprint
from airflow_provider.spark.jvm.commands import WritingCommand
from airflow_provider.spark.jvm.output import FILE_FORMATS, output_files, qualified, table_location, unspread
from airflow_provider.spark.wrapping import put_in_place
from airflow_provider.spark.writers import WRITERS

if TYPE_CHECKING:
    from airflow_provider.spark.context import RecoveryContext

log = logging.getLogger(__name__)

_TO_PATHS = ("save", "parquet", "json", "csv", "orc", "text")
_TO_TABLES = ("saveAsTable", "insertInto")
_MADE = "_spark_recovery_settings"
_WRITING = "_spark_recovery_writing"
_PREFIX = "sink/"


@dataclass(frozen=True)
class _Sink:
    """One write of the script.

    :ivar coordinator: under which it is remembered
    :ivar title: what the log calls it
    :ivar locate: where its files are now; empty text if nowhere
    :ivar overwrites: whether it replaces what is there
    :ivar repeated: why each attempt writes it; empty if its rows are certain to be the same
    """

    coordinator: str
    title: str
    locate: Callable[[], str]
    overwrites: bool
    repeated: str = ""


@contextmanager
def sinks_once(context: RecoveryContext) -> Iterator[None]:
    """Let the writes of ``df.write`` and of SQL inside happen once per job, if the job's options say so."""
    options = context.master.request.options
    if not options.enabled or options.sinks != "once":
        yield
        return
    with ExitStack() as stack:
        _Sinks(context).wrap(stack)
        yield


class _Sinks:
    def __init__(self, context: RecoveryContext) -> None:
        self._context = context
        self._occurrences: Counter[str] = Counter()

    def wrap(self, stack: ExitStack) -> None:
        from pyspark.sql import SparkSession
        from pyspark.sql.readwriter import DataFrameWriter

        stack.callback(put_in_place(SparkSession, "sql", self._sql(SparkSession.sql)))
        for name in WRITERS[DataFrameWriter.__name__].settings:
            original = getattr(DataFrameWriter, name, None)
            if original is not None:
                stack.callback(put_in_place(DataFrameWriter, name, self._setting(original, name)))
        for name in (*_TO_PATHS, *_TO_TABLES):
            original = getattr(DataFrameWriter, name)
            stack.callback(put_in_place(DataFrameWriter, name, self._write(original, name)))

    def _setting(self, original: Any, name: str) -> Any:
        @functools.wraps(original)
        def setting(writer: Any, *args: Any, **kwargs: Any) -> Any:
            if not getattr(writer, _WRITING, False):  # else PySpark makes it, of what the write was given
                setattr(writer, _MADE, (*getattr(writer, _MADE, ()), (name, args, kwargs)))
            return original(writer, *args, **kwargs)

        return setting

    def _write(self, original: Any, name: str) -> Any:
        @functools.wraps(original)
        def write(writer: Any, *args: Any, **kwargs: Any) -> Any:
            setattr(writer, _WRITING, True)
            try:
                return self._once(
                    writer._df.sparkSession,
                    lambda: self._sink(writer, name, args, kwargs),
                    lambda: original(writer, *args, **kwargs),
                    lambda _: None,
                )
            finally:
                setattr(writer, _WRITING, False)

        return write

    def _sql(self, original: Any) -> Any:
        @functools.wraps(original)
        def sql(spark: Any, sqlQuery: str, *args: Any, **kwargs: Any) -> Any:  # noqa: N803 - PySpark's name
            def write() -> Any:
                return original(spark, sqlQuery, *args, **kwargs)

            if not isinstance(sqlQuery, str) or args or kwargs or not hasattr(spark, "_jsparkSession"):
                return write()
            command = WritingCommand.parse(spark, sqlQuery)
            if command is None or not self._guarded(lambda: command.table):
                return write()
            return self._once(spark, lambda: self._sink_of_command(spark, command, sqlQuery), write, _no_rows)

        return sql

    def _once(
        self, spark: Any, sink_of: Callable[[], _Sink | None], write: Callable[[], Any], left_out: Callable[[Any], Any]
    ) -> Any:
        """Write, unless that was done.

        :param left_out: what the script gets instead
        """
        sink = self._guarded(sink_of)
        if sink is not None and sink.repeated:
            return self._repeat(sink, write)
        before = self._guarded(lambda: self._files(spark, sink)) if sink is not None else None
        if before is None:
            return write()
        if self._guarded(lambda: self._written(sink, before)):
            return left_out(spark)
        self._guarded(lambda: self._remember(sink, "WRITING", {"before": listing_digest(before)}))
        result = write()
        fault_point(AFTER_SINK_COMMIT)
        self._guarded(lambda: self._committed(spark, sink, before))
        return result

    def _repeat(self, sink: _Sink, write: Callable[[], Any]) -> Any:
        """Write what each attempt writes; warn where an earlier one has added its rows already."""
        known = self._context.master.coordinator(sink.coordinator)
        if known is None or sink.overwrites:
            log.info("sink %s is written by each attempt: %s", sink.title, sink.repeated)
        else:
            log.warning(
                "sink %s: attempt %s has added its rows already. They are added again, because they may not be the "
                "same: %s. Rows may be there twice.",
                sink.title,
                known.get("attempt"),
                sink.repeated,
            )
        result = write()
        self._guarded(lambda: self._remember(sink, "REPEATED", {}))
        return result

    def _guarded(self, do: Callable[[], Any]) -> Any:
        """Return what *do* returns, ``None`` where it fails: then the output is written as it always is."""
        try:
            return do()
        except Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is wrong, the write itself comes out as without this
            log.info("Whether an output was written already cannot be told: %s", one_line(error))
            return None

    def _sink(self, writer: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Sink | None:
        """Return what the script is about to write; ``None`` for what is always written."""
        df = writer._df
        if not self._usable(df):
            return None
        made = getattr(writer, _MADE, ())
        given = _given(made, name, args, kwargs)
        if given["mode"] == "ignore" or (name in _TO_PATHS and given["format"] not in FILE_FORMATS | {""}):
            return None
        if not given["target"]:
            return None
        spark = df.sparkSession
        if name in _TO_PATHS:
            if not given["format"] and spark.conf.get("spark.sql.sources.default") not in FILE_FORMATS:
                return None
            path = qualified(spark, given["target"])
            target, locate = path, lambda: path
        else:
            target, locate = self._table(spark, given["target"])
        what = (name, repr(made), repr(args), repr(sorted(kwargs.items())))
        return self._identified(df, target, locate, what, overwrites=given["mode"] == "overwrite")

    def _sink_of_command(self, spark: Any, command: WritingCommand, text: str) -> _Sink | None:
        df = command.query()
        if not self._usable(df):
            return None
        target, locate = self._table(spark, command.table)
        return self._identified(df, target, locate, (text,), overwrites=command.overwrites)

    def _usable(self, df: Any) -> bool:
        self._context.master.check()
        return self._context.master.usable and not df.isStreaming

    def _table(self, spark: Any, name: str) -> tuple[str, Callable[[], str]]:
        return f"table {name} of {spark.catalog.currentDatabase()}", lambda: table_location(spark, name)

    def _identified(
        self, df: Any, target: str, locate: Callable[[], str], what: tuple[str, ...], *, overwrites: bool
    ) -> _Sink:
        """Return the sink of a DataFrame's rows."""
        identity = fingerprint(df, self._context)
        not_deterministic = identity.not_deterministic
        rows = unspread(df) if not_deterministic else df  # coalesce(1) before a write does not change its rows
        if rows is not df:
            not_deterministic = fingerprint(rows, self._context).not_deterministic
        reason = "; ".join((*identity.opaque, *not_deterministic))
        key = digest("repeated" if reason else identity.digest, target, *what)
        self._occurrences[key] += 1
        occurrence = self._occurrences[key]
        return _Sink(
            f"{_PREFIX}{digest(key, str(occurrence))[:32]}",
            target if occurrence == 1 else f"{target} (write {occurrence})",
            locate,
            overwrites,
            reason,
        )

    def _files(self, spark: Any, sink: _Sink) -> list[OutputFile]:
        location = sink.locate()
        return output_files(spark, location) if location else []

    def _written(self, sink: _Sink, now: list[OutputFile]) -> bool:
        """Whether an earlier attempt has written it, and it is there as that attempt left it."""
        known = self._context.master.coordinator(sink.coordinator)
        if known is None:
            return False
        commit = Commit.from_state(known)
        if commit is None:
            if known.get("before") != listing_digest(now) and not sink.overwrites:
                log.warning(
                    "sink %s: attempt %s died while it wrote, and files have arrived since. Whether they are its own "
                    "cannot be told, so it is written again; rows may be there twice.",
                    sink.title,
                    known.get("attempt"),
                )
            return False
        changed = commit.changed(now)
        if not changed and sink.overwrites:
            changed = commit.others(now)
        if changed:
            log.info(
                "sink %s was written by attempt %s, but %s: it is written again",
                sink.title,
                known.get("attempt"),
                changed,
            )
            return False
        log.info("sink %s: already written by attempt %s, not written again", sink.title, known.get("attempt"))
        return True

    def _committed(self, spark: Any, sink: _Sink, before: list[OutputFile]) -> None:
        commit = Commit.between(before, self._files(spark, sink))
        if commit is None:
            log.info("sink %s: what this write has left cannot be told from others; a retry writes again", sink.title)
            return
        self._remember(sink, "WRITTEN", commit.to_state())

    def _remember(self, sink: _Sink, status: str, state: dict[str, Any]) -> None:
        master = self._context.master
        master.remember(sink.coordinator, {"status": status, "attempt": master.epoch, **state})


def _no_rows(spark: Any) -> Any:
    """Return what SQL's writing commands return."""
    from pyspark.sql.types import StructType

    return spark.createDataFrame([], StructType())


def _given(made: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, str]:
    """Return mode, format and target (path or table) as the script gave them; empty texts for defaults."""
    mode = format_ = path = ""
    for setting, given, named in made:
        values = [*given, *named.values()]
        if setting == "mode" and values[0]:
            mode = str(values[0])
        elif setting == "format":
            format_ = str(values[0])
        elif setting == "option" and str(given[0] if given else named.get("key")).lower() == "path":
            path = str(given[1] if len(given) > 1 else named.get("value"))
        elif setting == "options":
            path = str(named.get("path", path))
    first = args[0] if args else kwargs.get("path", kwargs.get("name", kwargs.get("tableName")))
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
        mode = str((second if name != "text" else None) or kwargs.get("mode") or mode)
    return {"mode": mode.lower(), "format": format_.lower(), "target": str(first or path or "")}
