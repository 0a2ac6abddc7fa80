"""Write an output once per job: skip what an earlier attempt has committed.

A write is skipped only if it is certain to be the same and complete: it has the same identity (fingerprint of the
DataFrame, target, format, mode, options, partitioning, and its position among several such writes of the script), the
event that says that its commit returned is in the store, and all files of that commit are still there, unchanged. A
write is recorded before it starts, so that a later attempt can take back what a killed one has left, or keep its
committed tasks.

If a write's Spark job fails, the write is repeated in the same attempt, as the restart strategy says, provided that its
commit protocol has not asked to commit. Only a watched write can tell.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider.core.causes import one_line
from airflow_provider.core.committed_output import DOUBT, Commit, OutputFile
from airflow_provider.core.errors import Fenced
from airflow_provider.core.failure import UnrecoverableError
from airflow_provider.core.faults import AFTER_SINK_COMMIT, fault_point
from airflow_provider.core.unfinished_write import REPEATED, UNKNOWN, WRITTEN, UnfinishedWrite
from airflow_provider.spark.calls import Call, Kind, Proceed, Stages
from airflow_provider.spark.jvm.commands import no_rows
from airflow_provider.spark.jvm.output import add_partitions
from airflow_provider.spark.jvm.pending_output import PendingOutput
from airflow_provider.spark.jvm.sql_commands import WritingCommand, changed_in_place
from airflow_provider.spark.points.filled_caches import FilledCaches
from airflow_provider.spark.points.releasing import given_out
from airflow_provider.spark.points.restarted_actions import with_restarts
from airflow_provider.spark.sinks.begun_write import begin_write
from airflow_provider.spark.sinks.own_results import OwnResults
from airflow_provider.spark.sinks.rdd_sinks import RddSinks
from airflow_provider.spark.sinks.sink_identity import Sink, SinkIdentity, files_there, is_there
from airflow_provider.spark.sinks.tries import Rows, Tries
from airflow_provider.spark.sinks.unknown_sinks import UnknownSinks
from airflow_provider.spark.sinks.unmet_writes import UnmetWrites

if TYPE_CHECKING:
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.sinks.take_back import OutputAttempt

log = logging.getLogger(__name__)

_MADE = "_spark_recovery_settings"


class SinksOnce:
    """Makes each write of ``df.write`` and of SQL happen once per job, if the job's options say so."""

    def __init__(self, context: RecoveryContext, output: OutputAttempt) -> None:
        self._context = context
        self._output = output
        self._unknown = UnknownSinks(context.master)
        self._caches = FilledCaches(context)
        self._identity = SinkIdentity(context)
        self._results = OwnResults(context.master)
        self._unmet = UnmetWrites(context.master, self._results)

    def stages(self) -> Stages:
        """Return the stages for the script's calls."""
        if not self._context.master.request.options.writes_once:
            return {}
        return {
            Kind.SETTING: self._setting,
            Kind.WRITE: self._write,
            Kind.SQL: self._sql,
            **self._unknown.stages(),
            **RddSinks(self._context.master, self._output).stages(),
        }

    def unmet(self) -> UnrecoverableError | None:
        """After the script has succeeded, warn of earlier attempts' writes that it did not make and whose rows may be
        missing or there twice. Remove kept tasks of writes that it did not make.

        :returns: the error that the job ends with, if its options want one
        """
        master = self._context.master
        self._guarded(self._output.discard_unmet)
        if not master.request.options.writes_once:
            return None
        missing = {**self._unmet.missing(), **self._results.unread()}
        for name, doubt in {**missing, **self._unmet.twice()}.items():
            log.warning("%s", doubt)
            state = {**(master.coordinator(name) or {}), DOUBT: doubt}
            self._guarded(functools.partial(master.remember, name, state))
        fails = missing and master.request.options.unknown_sinks == "fail"
        return UnrecoverableError(" ".join(missing.values())) if fails else None

    def _setting(self, call: Call, proceed: Proceed) -> Any:
        made = getattr(call.owner, _MADE, ())
        setattr(call.owner, _MADE, (*made, (call.name, call.args, dict(call.kwargs))))
        return proceed()

    def _write(self, call: Call, proceed: Proceed) -> Any:
        writer, name, args, kwargs = call.owner, call.name, call.args, dict(call.kwargs)
        spark, made = writer._df.sparkSession, getattr(writer, _MADE, ())
        rows = Rows.of_writer(self._context, writer, made)
        self._guarded(lambda: rows.renew and rows.renew())

        def sink_of() -> Sink | None:
            found = None
            try:
                found = self._identity.of_writer(writer, made, name, args, kwargs)
                return found
            finally:
                if found is None:  # each attempt writes it
                    given_out(self._context, writer._df)

        return self._once(
            spark,
            sink_of,
            lambda failed: self._identity.unknown_writer(spark, made, name, args, kwargs, files=failed),
            proceed,
            lambda _: None,
            rows,
        )

    def _sql(self, call: Call, proceed: Proceed) -> Any:
        spark, text = call.owner, call.argument(0, "sqlQuery")
        if not isinstance(text, str) or not hasattr(spark, "_jsparkSession"):
            return proceed()
        commands = WritingCommand.parse_all(spark, text)
        if not commands:
            changed = self._guarded(lambda: changed_in_place(spark, text))
            return self._unknown.write(spark, changed, proceed) if changed else proceed()
        tables = [self._guarded(functools.partial(getattr, command, "table")) for command in commands]
        if all(tables) and call.text_alone:
            return self._commands(spark, commands, text, proceed)
        command, arguments = commands[0], call.argument(1, "args")
        by_args = call.text_and_values and len(commands) == 1
        query = self._guarded(lambda: command.query(arguments)) if by_args and all(tables) else None
        if query is None:
            title = f"table {', '.join(table or 'of a name that is computed' for table in tables)}"
            adds = any(one.adds for one in commands)
            return self._unknown.write(spark, title, proceed) if adds else proceed()
        what = (text, repr(arguments))
        return self._once(
            spark,
            lambda: self._identity.of_command(spark, command, query, what),
            lambda failed: f"table {command.table}" if failed and command.adds else "",
            proceed,
            no_rows,
            Rows(lambda: query),
        )

    def _commands(self, spark: Any, commands: Sequence[WritingCommand], text: str, proceed: Proceed) -> Any:
        """Run a statement; of several commands in it, only those that an earlier attempt has not completed."""
        left: dict[int, WritingCommand] = {}

        def run() -> Any:
            if len(left) == len(commands):
                return proceed()
            for command in left.values():  # the check that the statement's own call would pass on its way to Spark
                self._context.master.check_now()
                command.run()
            return no_rows(spark)

        def step(number: int) -> Any:
            if number == len(commands):
                return run()
            command = commands[number]
            what = (text,) if len(commands) == 1 else (text, str(number))

            def write() -> Any:
                left[number] = command
                return step(number + 1)

            return self._once(
                spark,
                lambda: self._identity.of_command(spark, command, command.query(), what),
                lambda failed: f"table {command.table}" if failed and command.adds else "",
                write,
                lambda _: step(number + 1),
                Rows(command.query, again=len(commands) == 1),
            )

        return step(0)

    def _once(
        self,
        spark: Any,
        sink_of: Callable[[], Sink | None],
        unknown_of: Callable[[bool], str],
        write: Callable[[], Any],
        left_out: Callable[[Any], Any],
        rows: Rows,
    ) -> Any:
        """Write, unless an earlier attempt has done so.

        :param unknown_of: if it is no sink, returns where rows are added that cannot be looked up; called with whether
            finding the sink failed
        :param left_out: returns what the script gets instead
        """
        self._guarded(lambda: self._output.prepare(spark))
        sink, failure = self._tried(sink_of)
        if sink is None:
            unknown = self._guarded(lambda: unknown_of(bool(failure)))
            graph, epoch = self._context.master.graph, self._context.master.epoch
            untold = _untold(failure) if graph.base_epoch < epoch else ""
            return self._unknown.write(spark, unknown, write, untold) if unknown else write()
        if sink.mode == "append" and self._guarded(lambda: not sink.place.locate() and not sink.place.new()):
            return self._unknown.write(spark, sink.place.target, write)
        self._guarded(lambda: self._output.make_room(spark, sink.coordinator))
        if sink.if_absent and self._guarded(lambda: is_there(spark, sink.place)):
            return write()  # Spark writes nothing
        before, failure = self._tried(lambda: files_there(spark, sink.place))
        sink = replace(sink, earlier=self._guarded(lambda: self._results.earlier(sink)) or "")
        known = sink.earlier or ("" if sink.repeated else sink.coordinator)
        if before is not None and known:
            written, failure = self._tried(functools.partial(self._written, spark, sink, before, known))
            if written:
                if sink.place.table:
                    add_partitions(spark, sink.place.table, (path for path, _, _ in written.own(before)))
                self._caches.fill(rows.frame, sink.coordinator)
                return left_out(spark)
        if sink.repeated:
            self._guarded(lambda: self._say_repeated(sink))
        if before is not None:
            before, remaining = self._tried(functools.partial(self._without_remains, spark, sink, before))
            failure = failure or remaining
        untold = self._in_doubt(spark, sink, failure)
        if untold:
            write, rows = functools.partial(self._unknown.write, spark, sink.title, write, untold), rows.once()
        tries = Tries(self._context, self._output, spark, sink, rows, before)
        if sink.again and sink.mode == "append":
            self._guarded(tries.begin_again)

        def make() -> Any:
            with ExitStack() as stack:
                stack.enter_context(tries.at_work())
                if tries.before is not None:
                    tries.watched = self._guarded(lambda: begin_write(self._context, tries, stack))
                stack.enter_context(self._context.purposes.serving(sink.coordinator))
                return write()

        try:
            result = with_restarts(self._context, tries.action(), make)
        except Exception:
            if not (sink.repeated and tries.watched is not None and tries.watched.commits):  # else it may be complete
                self._identity.has_failed(sink)
            raise
        fault_point(AFTER_SINK_COMMIT)
        self._guarded(lambda: self._returned(spark, sink, tries))
        return result

    def _say_repeated(self, sink: Sink) -> None:
        """Log why each attempt writes it, and whether an earlier attempt's rows are still there."""
        known = self._context.master.coordinator(sink.coordinator)
        if known is None:
            return
        added = known.get("status") == REPEATED and known.get("attempt") != self._context.master.epoch
        if added and sink.mode == "append" and Commit.from_state(known) is None:
            log.warning(
                "sink %s: attempt %s already added its rows, but its files cannot be distinguished from others. This "
                "attempt adds the rows again, because they may differ: %s. Rows may be there twice; check the output.",
                sink.title,
                known.get("attempt"),
                sink.repeated,
            )
        else:
            log.info("sink %s is written again by each attempt: %s", sink.title, sink.repeated)

    def _guarded(self, do: Callable[[], Any]) -> Any:
        """Return the result of *do*, ``None`` if it fails: then the output is written as it always is."""
        return self._tried(do)[0]

    def _tried(self, do: Callable[[], Any]) -> tuple[Any, str]:
        """Return the result of *do* and empty text; ``None`` and the reason if it fails."""
        try:
            return do(), ""
        except Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is wrong, the write itself comes out as without this
            log.info("Cannot find out whether an output was written already: %s", one_line(error))
            return None, one_line(error)

    def _in_doubt(self, spark: Any, sink: Sink, failure: str) -> str:
        """Return why it is unknown whether the rows that a write adds are there already; empty if it is known.

        :param failure: why the existing files could not be listed; empty if they could
        """
        master = self._context.master
        known = master.coordinator(sink.coordinator)
        if astray := self._guarded(lambda: self._results.doubt(sink)):
            return str(astray)
        if sink.mode != "append":
            return ""
        if self._guarded(lambda: self._output.left_there(sink.place.locate())):
            return "files of an earlier attempt could not be removed before this attempt read from there"
        lost = self._unknown.lost(spark, known)
        if known is None:
            return lost
        attempt = known.get("attempt")
        if known.get("unnamed"):
            return "an attempt died during this write, and newer files there may or may not be its own"
        if attempt == master.epoch:
            return ""  # which has taken them back
        if not failure and known.get("status") == UNKNOWN:
            return f"attempt {attempt} has written it, and its files cannot be distinguished from others"
        return _untold(failure) or lost

    def _written(self, spark: Any, sink: Sink, now: list[OutputFile], name: str) -> Commit | None:
        """Return an earlier attempt's commit, if its files are there as that attempt left them.

        :param name: under which it is recorded
        """
        known = self._context.master.coordinator(name)
        if known is None:
            return None
        commit = Commit.from_state(known)
        if commit is None:
            return None
        changed = commit.changed(now)
        in_its_turn = not sink.overwrites or sink.reads_its_results  # else it can be made again as it was
        if changed and in_its_turn and self._results.replaced(commit, now):
            changed = ""  # further on the script replaces some of it, and has done so
        if not changed and sink.overwrites:
            changed = commit.others(now)
        if not changed and not commit.files and not is_there(spark, sink.place):
            changed = "nothing is there"
        if changed and in_its_turn and sink.overwrites and self._results.overtaken(commit, sink.place.locate(), now):
            changed = ""  # later in the script it is replaced, and an earlier attempt has done that
        if changed:
            log.info(
                "sink %s was written by attempt %s, but %s: it is written again",
                sink.title,
                known.get("attempt"),
                changed,
            )
            return None
        self._results.leaves_out(name)
        log.info("sink %s: already written by attempt %s, not written again", sink.title, known.get("attempt"))
        if sink.reads_its_results:
            log.info("sink %s reads its own output: the rows of attempt %s stay", sink.title, known.get("attempt"))
        return commit

    def _without_remains(self, spark: Any, sink: Sink, now: list[OutputFile]) -> list[OutputFile]:
        """Remove what is left of a committed write that is repeated, because some of it is gone or was changed, or
        because it belongs to a batch that a streaming query repeats; return the files that are there then.
        """
        known = self._context.master.coordinator(sink.coordinator)
        commit = Commit.from_state(known) if known is not None else None
        if commit is None or not commit.files or sink.overwrites or (sink.place.table and sink.mode == "error"):
            return now
        if self._output.left_there(sink.place.locate()):  # the script has seen them
            return now
        target = PendingOutput(spark, sink.place.locate(), self._output.number)
        removed = target.remove_files(path for path, _, _ in commit.own(now))
        if sink.mode == "error":
            target.remove_target()
        if removed:
            log.info("sink %s: %d files of that write were left; they are removed", sink.title, removed)
        return files_there(spark, sink.place)

    def _returned(self, spark: Any, sink: Sink, tries: Tries) -> None:
        """Record what was written, now that Spark reports the commit."""
        self._results.makes(sink)
        before = tries.before
        if before is None:
            known = self._context.master.coordinator(sink.coordinator)
            if sink.repeated:
                self._remember(sink, REPEATED, {})
            elif sink.mode == "append" and (known is None or Commit.from_state(known) is None):
                self._remember(sink, UNKNOWN, {})
            return
        now = tries.without_late_files(files_there(spark, sink.place))
        if tries.wrote():
            self._unmet.makes(sink, now)
        write = UnfinishedWrite.from_state(self._context.master.coordinator(sink.coordinator))
        name = write.writes[0] if write is not None and len(write.writes) == 1 else ""
        commit = Commit.named(name, now) if name or set(now) <= set(before) else Commit.between(before, now)
        if commit is not None and not commit.files and tries.wrote() and (write is None or write.writes):
            commit = None  # its rows are elsewhere: in a table of Hive, or where a partition has its own location
        if commit is not None and sink.overwrites:
            commit = commit.replacing(before, now, self._output.committed_writes())
        state = {**write.addition(), **write.going_on()} if write is not None else {}
        if commit is not None:
            status = REPEATED if sink.repeated or tries.lost(commit) else WRITTEN
            self._remember(sink, status, {**commit.to_state(), **state})
        elif sink.repeated:
            self._remember(sink, REPEATED, state)
        else:
            log.info("sink %s: cannot tell the files of this write from others; a retry writes it again", sink.title)
            self._remember(sink, UNKNOWN, state)

    def _remember(self, sink: Sink, status: str, state: dict[str, Any]) -> None:
        master = self._context.master
        master.remember(sink.coordinator, {**sink.state(status, master.epoch), **state})


def _untold(failure: str) -> str:
    return f"it is unknown whether an earlier attempt has written it ({failure})" if failure else ""
