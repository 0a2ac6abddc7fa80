"""The tries of one write in one attempt: after a try whose Spark job failed, the next one starts as the first did.

A write is tried again only if its commit protocol (see :mod:`.commit_gate`) has certainly not asked to commit. Files
that tasks have left all the same are removed by Spark's name of that try.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider.core.causes import unreadable_partitions
from airflow_provider.core.committed_output import OutputFile, write_of
from airflow_provider.core.unfinished_write import UnfinishedWrite
from airflow_provider.spark.jvm.output import table_exists
from airflow_provider.spark.jvm.pending_output import PendingOutput
from airflow_provider.spark.jvm.writer_commands import write_other_rows
from airflow_provider.spark.points.restarted_actions import Action, why_not
from airflow_provider.spark.points.restarting import up_to_date
from airflow_provider.spark.sinks.sink_identity import files_there

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider.core.committed_output import Commit
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.jvm.commit_gate import Watched
    from airflow_provider.spark.sinks.sink_identity import Sink
    from airflow_provider.spark.sinks.take_back import OutputAttempt

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rows:
    """Where the rows of a write come from.

    :ivar frame: returns the frame
    :ivar renew: updates the write to partitions that were computed again; ``None`` if that is impossible
    :ivar again: whether the write may be repeated if it fails
    """

    frame: Callable[[], DataFrame]
    renew: Callable[[], object] | None = None
    again: bool = True

    def once(self) -> Rows:
        """Return them for a write that is not repeated."""
        return replace(self, again=False)

    @classmethod
    def of_writer(cls, context: RecoveryContext, writer: Any, made: Sequence[Any]) -> Rows:
        """Return the rows of a PySpark writer.

        :param made: how it was set up: names of methods, arguments, named arguments
        """

        def renew() -> None:
            frame = up_to_date(context, writer._df)
            if frame is not writer._df:
                write_other_rows(writer, frame, made)

        return cls(lambda: writer._df, renew)


@dataclass(eq=False)
class Tries:
    """The tries of one write.

    :ivar before: the files that were there before the last try; ``None`` if unknown
    :ivar watched: how far the last one has come; ``None`` if it is not watched
    :ivar failed: Spark's names of those that have failed
    :ivar count: returns how many rows and files the last one has written, once it has returned; ``None`` if Spark does
        not tell
    :ivar beside: whether another write to the same place ran at the same time as the last one
    """

    context: RecoveryContext
    output: OutputAttempt
    spark: Any
    sink: Sink
    rows: Rows
    before: list[OutputFile] | None
    watched: Watched | None = None
    failed: tuple[str, ...] = ()
    count: Callable[[], tuple[int, int]] | None = None
    beside: bool = False

    def action(self) -> Action:
        """Return the write as an action that may run again."""
        return Action(f"output {self.sink.title}", self._refused, self._renew)

    def wrote(self) -> bool:
        """Whether the last one has written rows, or Spark does not tell."""
        return self.count is None or self.count()[0] > 0

    def lost(self, commit: Commit) -> bool:
        """Whether files that tasks of the last one have committed are gone; if so, say so.

        A table's partitions may lie elsewhere.
        """
        written = 0 if self.count is None or self.sink.place.table else self.count()[1]
        if written > commit.files:
            log.warning(
                "sink %s: %d of the %d files that its tasks have written are gone. Most likely another write to the "
                "same folder has failed meanwhile: Spark then removes what others have pending there. A retry writes "
                "this output again; let writes to one folder run one after the other.",
                self.sink.title,
                written - commit.files,
                written,
            )
        return written > commit.files

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Learn of other writes to the same place that run while the block does."""
        others = self.output.at_work[self.sink.place.target]
        self.beside = bool(others)
        for other in others:
            other.beside = True
        others.append(self)
        try:
            yield
        finally:
            others.remove(self)

    def without_late_files(self, now: list[OutputFile]) -> list[OutputFile]:
        """Remove what tasks of failed tries committed after their job had failed.

        :param now: the files that are there when the write has returned
        """
        late = [file for file in now if self.failed and write_of(file[0]) in self.failed]
        if late:
            target = PendingOutput(self.spark, self.sink.place.locate(), self.output.number)
            target.remove_files(path for path, _, _ in late)
        return [file for file in now if file not in late]

    def _refused(self, error: Exception) -> str:
        write = self._begun()
        if not self.rows.again or self.watched is None or write is None:
            return "it is not certain which files it left"
        if self.beside:
            return "another write to its folder ran beside it, and Spark has removed what that one had pending"
        if self.watched.commits:
            return "it was about to commit, and something of it may be there"
        if write.creates and write.table and table_exists(self.spark, write.table):
            return "a table of its name is there"
        if self.rows.renew is None and unreadable_partitions(error):
            return "its statement reads lost partitions"
        return why_not(self.rows.frame())

    def begin_again(self) -> None:
        """Restore the target to its state before a failed try."""
        self.context.master.check_now()
        write = self._begun()
        if write is not None and write.attempt == self.context.master.epoch:
            self.failed = (*write.failed, *write.writes)
            self.output.discard_kept(self.spark, write)
            self.output.remove_failed(self.spark, write)
        self.before, self.watched, self.count = files_there(self.spark, self.sink.place), None, None

    def _renew(self) -> None:
        self.begin_again()
        if self.rows.renew is not None:
            self.rows.renew()

    def _begun(self) -> UnfinishedWrite | None:
        return UnfinishedWrite.from_state(self.context.master.coordinator(self.sink.coordinator))
