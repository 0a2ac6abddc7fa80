"""Take back what killed writes have left, and added rows that may differ when this attempt writes them again.

Leftovers go before the script reads or writes anything, added rows when the same write is made again. So a script that
skips what it has done, by marker files or a control table, finds its rows, and a script that writes all of it again has
them once. Added rows whose repeated write could not be recognised also go before the script looks. If they went later,
a script that looks at its output first (for the newest row, say) would add none, and the rows that it saw would be
gone.

Removed are only the files of that write, which Spark names after it, and the folder of its pending tasks, which bears
the number of its driver: other jobs may write to the same place at any time. It does not matter whether the write had
finished: another job's commit clears Spark's folder of pending tasks, so its absence proves nothing. A write is
unfinished if no event says that Spark's call returned; it is repeated in any case.

If a write's rows are certain to be the same, its committed tasks are kept beside the target until this attempt makes
the write: their rows are not computed again (:mod:`.begun_write`).

The driver that wrote is dead or fenced. If it is only paused, its committed tasks are gone when it wakes: it cannot add
rows a second time that it had written before, and the fence ends it.
"""

from __future__ import annotations

import functools
import logging
import secrets
import threading
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider.core.causes import one_line
from airflow_provider.core.committed_output import Commit, listing_digest, write_of
from airflow_provider.core.errors import Fenced
from airflow_provider.core.faults import AFTER_TASKS_TAKEN, fault_point
from airflow_provider.core.loss import may_be_outdated
from airflow_provider.core.unfinished_write import (
    READS,
    REPEATED,
    ROWS,
    SINK,
    TAKEN_BACK,
    WRITTEN,
    AddedRows,
    UnfinishedWrite,
    at_another_moment,
    output_state,
    rows_made_again,
    unfinished_writes,
)
from airflow_provider.spark.calls import Call, Kind, Proceed, Stages
from airflow_provider.spark.jvm.kept_output import KeptOutput, can_keep, discard_kept
from airflow_provider.spark.jvm.listings import Listings
from airflow_provider.spark.jvm.output import drop_table, is_table_of_files, output_files, table_exists
from airflow_provider.spark.jvm.pending_output import PendingOutput, set_application_attempt

if TYPE_CHECKING:
    from airflow_provider.job.job_master import JobMaster

log = logging.getLogger(__name__)


class OutputAttempt:
    """The attempt as Hadoop's file committers see it.

    :ivar number: used for its file writes: random, because others write to the same folders, and this job's attempts
        count from 1 again if it was deleted from the store
    :ivar at_work: name of a place → the writes that run there now
    """

    def __init__(self, master: JobMaster) -> None:
        self._master = master
        self._lock = threading.Lock()
        self._looked = False
        self._failed: dict[str, str] = {}
        self._stays: set[str] = set()
        self._listings = Listings()
        self.at_work: defaultdict[str, list[Any]] = defaultdict(list)
        self.number = 1 + secrets.randbelow(2**31 - 2)

    def stages(self) -> Stages:
        """Return the stages that prepare each session that the script makes, and what it reads."""

        def session(call: Call, proceed: Proceed) -> None:
            proceed()
            self.prepare(call.owner)

        def looks(call: Call, proceed: Proceed) -> Any:
            self._last_time(getattr(call.owner, "_spark", call.owner))
            frame = proceed()
            if self._has_rows_to_remove:
                self._listings.note(frame)
            return frame

        return {Kind.SESSION: session, Kind.READ: looks, Kind.SQL: looks}

    def prepare(self, spark: Any) -> None:
        """Give file writes this attempt's number, and take back what this attempt makes again."""
        try:
            set_application_attempt(spark, self.number)
        except Exception as error:  # noqa: BLE001 - the job runs as it does without
            log.info("Cannot mark this attempt's file writes, by which a retry knows them: %s", one_line(error))
        if self._master.request.options.writes_once:
            self.take_back(spark)

    def left_there(self, location: str) -> bool:
        """Whether something that earlier attempts left in a folder could not be taken back before the script looked."""
        return location in self._failed.values()

    def _last_time(self, spark: Any) -> None:
        """Try again what has failed, before the script reads: what it has seen is not taken back any more.

        A script may give Spark its credentials once it has a session.
        """
        if self._failed and not self._looked:
            self.take_back(spark)
            self._looked = True

    def take_back(self, spark: Any) -> None:
        """Take back what killed writes have left, and added rows whose repeated write could not be recognised.

        What fails is tried again at the next call, until the script reads. While the store does not answer this waits,
        as a write does; otherwise the script would continue from rows that are taken back later.

        :raises Fenced: a newer attempt owns the job
        :raises OwnershipUnconfirmed: the store did not say whether this one does
        """
        with self._lock:
            if self._looked:
                return
            known, epoch = dict(self._master.graph.coordinators), self._master.epoch
            added = {name: rows for name, rows in self._made_again_of(known).items() if not rows.told}
            self._take_back_all(spark, {**unfinished_writes(known, epoch), **added})

    def make_room(self, spark: Any, name: str) -> None:
        """Take back what an earlier attempt has added by the write that this one is about to repeat.

        If that was the first write, which happens only where nothing is, everything that the job has added there goes.

        :raises Fenced: a newer attempt owns the job
        :raises OwnershipUnconfirmed: the store did not say whether this one does
        """
        if (self._master.coordinator(name) or {}).get("status") != REPEATED:
            return
        with self._lock:
            added = self._made_again_of(dict(self._master.graph.coordinators))
            rows = added.get(name)
            if rows is not None and rows.told:  # for others this is already decided
                together = rows.location if rows.first else ""
                own = {each: one for each, one in added.items() if each == name or one.location == together}
                self._take_back_all(spark, own)

    @functools.cached_property
    def _has_rows_to_remove(self) -> bool:
        """Whether earlier attempts have added rows that this one may add again. This does not change while it runs."""
        return bool(self._made_again_of(dict(self._master.graph.coordinators)))

    def _made_again_of(self, known: dict[str, Any]) -> dict[str, AddedRows]:
        return rows_made_again(known, self._master.epoch, self._master.moment)

    def _take_back_all(self, spark: Any, left: Mapping[str, UnfinishedWrite | AddedRows]) -> None:
        left = {name: write for name, write in left.items() if name not in self._stays}
        if left:
            self._master.check_now()
        for name, write in left.items():
            try:
                if isinstance(write, AddedRows):
                    self._remove(spark, name, write)
                else:
                    self._take_back(spark, name, write)
                self._failed.pop(name, None)
            except Fenced:
                raise
            except Exception as error:  # noqa: BLE001 - then it is written again with what is there
                self._failed[name] = write.location
                log.info(
                    "sink %s: what attempt %d has left cannot be removed: %s",
                    write.title,
                    write.attempt,
                    one_line(error),
                )

    def _remove(self, spark: Any, name: str, rows: AddedRows) -> None:
        """Remove added rows that are added again."""
        target = PendingOutput(spark, rows.location, self.number)
        files = [path for path, _, _ in output_files(spark, rows.location)]
        own = [path for path in files if rows.write and write_of(path) == rows.write]
        if rows.first and own != files:
            self._stays.add(name)
            log.info(
                "sink %s: kept the files of attempt %d: other files are there, and this write needs an empty target",
                rows.title,
                rows.attempt,
            )
            return
        removed = target.remove_files(own)
        self._listings.forget(spark, own)
        if rows.table and own == files and is_table_of_files(spark, rows.table, rows.location):
            drop_table(spark, rows.table)
        if rows.created:
            target.remove_target()
        log.info(
            "sink %s: %d files of attempt %d removed, because this attempt writes them again",
            rows.title,
            removed,
            rows.attempt,
        )
        known = self._master.coordinator(name) or {}
        lost = may_be_outdated(self._master.graph.coordinators, known)
        state = output_state(TAKEN_BACK, self._master.epoch, rows.title, known.get(READS, ()))
        self._master.remember(name, {**state, "unnamed": bool(lost) and own != files, ROWS: bool(rows.write)})

    def remove_failed(self, spark: Any, write: UnfinishedWrite) -> None:
        """Remove what a failed write of this attempt has left, before it is repeated."""
        pending, names = PendingOutput(spark, write.location, write.number), {*write.writes, *write.failed}
        removed = pending.remove_files(
            path for path, _, _ in output_files(spark, write.location) if write_of(path) in names
        )
        pending.remove(names)
        if not write.existed:
            pending.remove_target()
        log.info("sink %s: removed %d files of the failed write before writing it again", write.title, removed)

    def discard_kept(self, spark: Any, write: UnfinishedWrite) -> None:
        """Remove what is kept of a write, if anything is."""
        if write.kept or write.may_be_kept:
            KeptOutput(spark, write.location, write.writes[0]).discard()

    def discard_unmet(self) -> None:
        """Remove what is kept of writes that the script has not made, now that it has succeeded."""
        for name, state in dict(self._master.graph.coordinators).items():
            write = UnfinishedWrite.from_state(state) if name.startswith(SINK) else None
            if write is not None and write.kept and write.attempt == self._master.epoch:
                log.info(
                    "sink %s: removed its kept tasks: this attempt did not make that write",
                    write.title,
                )
                discard_kept(write.location, write.writes[0])

    def _tasks_kept(self, spark: Any, write: UnfinishedWrite) -> int:
        """Move a write's committed tasks out of its target; return how many of them can be kept.

        Moved tasks are useless if the job had started to commit. That is checked once nothing can commit any more.
        """
        graph = self._master.graph
        outdated = write.attempt < graph.base_epoch or may_be_outdated(graph.coordinators, {"attempt": write.attempt})
        try:
            if outdated or self._made_again(write) or not write.may_be_kept or not can_keep(spark, write.location):
                self.discard_kept(spark, write)
                return 0
            kept = KeptOutput(spark, write.location, write.writes[0])
            kept.take(write.number, went_on=write.kept)
            fault_point(AFTER_TASKS_TAKEN)
            in_place = any(write_of(path) in write.writes for path, _, _ in output_files(spark, write.location))
            tasks = {} if in_place else kept.tasks()
            if not tasks:
                kept.discard()
        except Exception as error:  # noqa: BLE001 - then all of it is written again
            log.info("sink %s: tasks of attempt %d are not kept: %s", write.title, write.attempt, one_line(error))
            with suppress(Exception):  # nothing looks for them any more
                self.discard_kept(spark, write)
            return 0
        return len(tasks)

    def _take_back(self, spark: Any, name: str, write: UnfinishedWrite) -> None:
        pending = PendingOutput(spark, write.location, write.number)
        if commit := self._replaced_all(spark, write, pending):
            self._adopt(spark, name, write, commit)
            return
        kept = self._tasks_kept(spark, write)
        names = set(write.writes) if write.watched else {*write.writes, *pending.writes()} - self.committed_writes()
        names.update(write.failed)
        files = output_files(spark, write.location)
        own = [file for file in files if write_of(file[0]) in names]
        exists = bool(write.table) and table_exists(spark, write.table)
        made = write.creates and exists and write.mode == "error"
        # Spark makes Hive's tables before their files, so they may lack some; others when all files are there.
        lacking = made and own == files and is_table_of_files(spark, write.table, write.location, {"hive"})
        if made and not lacking:
            nothing = Commit.of_nothing() if write.watched and write.writes and not files else None
            commit = Commit.between([], own) or nothing
            if commit is not None:
                self.discard_kept(spark, write)
                _register_partitions(spark, write.table)
                self._adopt(spark, name, write, commit)
                return
        # If a table was made and may not be made again, Spark refuses it; its rows stay.
        replaced = (made and not lacking) or (write.mode == "overwrite" and (exists or not write.table))
        removed = 0 if replaced else pending.remove_files(path for path, _, _ in own)
        was_pending = pending.remove(names)
        if lacking or (write.creates and exists and write.mode == "append" and own and own == files):
            drop_table(spark, write.table)
            exists = False
        gone = bool(write.table) and not exists
        if not replaced and (gone or not (write.existed or write.creates)):
            pending.remove_target()
        if removed or was_pending or lacking:
            left = {f"{removed} of its files": True, "its pending tasks": was_pending, "its table": lacking}
            log.info(
                "sink %s: attempt %d died while it wrote; %s removed before it is written again",
                write.title,
                write.attempt,
                " and ".join(what for what, there in left.items() if there),
            )
        if kept:
            log.info(
                "sink %s: attempt %d died while it wrote; %d of its tasks had committed and are kept",
                write.title,
                write.attempt,
                kept,
            )
            over = write.taken_over(self._master.epoch, self.number)
            self._master.remember(name, over.to_state())
            return
        if was_pending and write.cut.why:
            log.info("sink %s: tasks that had committed are not kept: %s", write.title, write.cut.why)
        lost = may_be_outdated(self._master.graph.coordinators, {"attempt": write.attempt})
        others = [file for file in files if file not in own]
        told = (write.watched or names) and not lost
        unnamed = write.mode == "append" and not told and listing_digest(others) != write.before
        state = output_state(TAKEN_BACK, self._master.epoch, write.title, write.reads)
        self._master.remember(name, {**state, "unnamed": unnamed})

    def _replaced_all(self, spark: Any, write: UnfinishedWrite, pending: PendingOutput) -> Commit | None:
        """Return the commit of a write that replaced everything in its target and finished; ``None`` if unknown.

        It deletes the target first, and Hadoop's committer puts its marker there when all files are in place. A marker
        that is as new as the write's files is therefore its own if nobody else's file is there. Where only some
        partitions are replaced, the marker stays the older one.
        """
        reused = write.attempt >= self._master.graph.base_epoch and write.watched and not write.of_a_batch
        if write.mode != "overwrite" or not reused or len(write.writes) != 1:
            return None
        if write.table and (not table_exists(spark, write.table) or _is_partitioned(spark, write.table)):
            return None
        files = output_files(spark, write.location)
        whole = bool(files) and all(write_of(path) == write.writes[0] for path, _, _ in files)
        if not whole or pending.success_at() < max(changed for _, _, changed in files):
            return None
        self.discard_kept(spark, write)
        return replace(Commit.named(write.writes[0], files), replaced=write.replaces)

    def _adopt(self, spark: Any, name: str, write: UnfinishedWrite, commit: Commit) -> None:
        """Record a write as committed that finished without an event that says so."""
        log.info("sink %s: attempt %d has written all of it and died", write.title, write.attempt)
        status = REPEATED if self._made_again(write) else WRITTEN
        known = output_state(status, write.attempt, write.title, write.reads)
        state = {**known, **commit.to_state(), **write.addition(), **write.origin}
        rows = AddedRows.from_state(state, REPEATED)
        if rows is not None and not rows.told:
            self._remove(spark, name, rows)
        else:
            self._master.remember(name, state)

    def _made_again(self, write: UnfinishedWrite) -> bool:
        """Whether this attempt may write other rows than those of a complete write."""
        return write.repeated or at_another_moment(write.moment, self._master.moment)

    def committed_writes(self) -> set[str]:
        """Return the names of writes that are known to have been committed."""
        states = [state for state in self._master.graph.coordinators.values() if isinstance(state, dict)]
        return {commit.write for state in states if (commit := Commit.from_state(state)) is not None}


def _register_partitions(spark: Any, table: str) -> None:
    """Do what Spark does after creating a partitioned table."""
    if _is_partitioned(spark, table):
        spark.catalog.recoverPartitions(table)


def _is_partitioned(spark: Any, table: str) -> bool:
    return any(column.isPartition for column in spark.catalog.listColumns(table))
