"""The steps of one recorded write, which does not repeat tasks that an earlier attempt has committed.

Its name is stored before it starts. A retry's write may continue where an earlier attempt's was killed. It then has the
same identity, and gets that write's name from Spark's commit protocol, so that the files of both belong to one write.
The partitions of the surviving tasks are certain: before it wrote anything, the earlier attempt recorded the name and
how the rows were split, and each file bears that name and its partition. The user's own plan runs; its tasks for those
partitions find no rows. Before the job commits, the earlier tasks' folders are moved to those of its own.
"""

from __future__ import annotations

import functools
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider.core.causes import one_line
from airflow_provider.core.committed_output import listing_digest, totals
from airflow_provider.core.faults import AFTER_COMMIT_MARKED, AFTER_TASK_GIVEN, AFTER_TASKS_LEFT_OUT, fault_point
from airflow_provider.core.task_output import Cut
from airflow_provider.core.unfinished_write import UnfinishedWrite
from airflow_provider.spark.jvm.kept_output import KeptOutput, can_keep
from airflow_provider.spark.jvm.pending_output import PendingOutput
from airflow_provider.spark.jvm.running_write import RunningWrite, count_written

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from airflow_provider.job.job_master import JobMaster
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.jvm.commit_gate import Watched
    from airflow_provider.spark.sinks.tries import Tries

log = logging.getLogger(__name__)


def begin_write(context: RecoveryContext, tries: Tries, stack: ExitStack) -> Watched | None:
    """Record that a write is about to start, and watch it until *stack* is left; ``None`` if that is impossible."""
    master, spark, sink, number = context.master, tries.spark, tries.sink, tries.output.number
    location = sink.place.locate()
    creates = not location
    location = location or sink.place.new()
    if not location:  # a table whose location only Spark knows
        master.remember(sink.coordinator, sink.state("BEGUN", master.epoch))
        return None
    gate = context.commit_gate(spark)
    write = UnfinishedWrite(
        title=sink.title,
        attempt=master.epoch,
        number=number,
        location=location,
        existed=PendingOutput(spark, location, number).exists(),
        before=listing_digest(tries.before or ()),
        mode=sink.mode,
        table=sink.place.table,
        creates=creates,
        repeated=bool(sink.repeated),
        of_a_batch=sink.of_a_batch,
        reads=sink.reads,
        failed=tries.failed,
        moment=sink.moment,
        told=sink.told,
        origin=sink.origin(),
        replaces=totals(tries.before or (), tries.output.committed_writes()) if sink.overwrites else {},
    )
    earlier = UnfinishedWrite.from_state(master.coordinator(sink.coordinator))
    if earlier is not None and not (earlier.kept and earlier.attempt == master.epoch and not tries.failed):
        earlier = None
    if earlier is not None and (gate is None or earlier.location != location):
        KeptOutput(spark, earlier.location, earlier.writes[0]).discard()
        earlier = None
    if gate is None:
        master.remember(sink.coordinator, write.to_state())
        return None
    if earlier is None:  # else the existing record stays valid
        master.note(sink.coordinator, write.to_state())
    return stack.enter_context(gate.following(location, BegunWrite(master, tries, write, earlier)))


class BegunWrite:
    """The steps of a write, see :class:`.commit_gate.WriteSteps`.

    :param tries: of which this is the last one
    :param write: what is known of it before it starts
    :param earlier: the write of earlier attempts whose tasks are kept; ``None`` if none are
    """

    def __init__(
        self, master: JobMaster, tries: Tries, write: UnfinishedWrite, earlier: UnfinishedWrite | None
    ) -> None:
        self._master = master
        self._tries = tries
        self._spark: Any = tries.spark
        self._sink = tries.sink
        self._write = write
        self._earlier = earlier
        self._kept: KeptOutput | None = None
        self._tasks: dict[int, str] = {}

    def begins(self, name: str, execution: int | None) -> str:
        """Store its name and its cut; return the name of the earlier write that it continues."""
        earlier, self._earlier = self._earlier, None
        self._tries.count = None if execution is None or earlier is not None else self._counting(execution)
        if earlier is not None:
            (known,) = earlier.writes
            self._kept = KeptOutput(self._spark, earlier.location, known)
            if execution is not None:
                self._remember(replace(self._write.known_as(known, earlier.cut), kept=True))
                return known
            self._discard("its plan is not known")
        cut = Cut() if execution is None else self._cut(execution)
        self._remember(self._write.known_as(name, cut))
        return ""

    def resumes(self, execution: int, *, pending: bool) -> None:
        """Leave out the kept tasks; if that is impossible, all of it is written.

        :raises Exception: it is unknown whether they are left out
        """
        assert self._kept is not None  # noqa: S101 - only a write that goes on is asked
        why = self._leave_out(execution, self._kept) if pending else "its committer moves files when tasks end"
        if why:
            cut = self._cut(execution) if self._discard(why) else Cut(why="what was kept could not be removed")
            self._write = replace(self._write, cut=cut, kept=False)
            self._master.remember_first(self._sink.coordinator, self._write.to_state())
        else:
            fault_point(AFTER_TASKS_LEFT_OUT)

    def commits(self) -> None:
        """Make sure that this attempt owns the job, and add the earlier tasks to the commit.

        :raises Fenced: it does not
        :raises OwnershipUnconfirmed: it cannot find out
        """
        if self._write.cut.layout:
            self._mark()
            fault_point(AFTER_COMMIT_MARKED)
        self._master.check_now()
        if self._kept is not None and self._tasks:
            tasks, self._tasks = self._tasks, {}
            self._kept.give(tasks, self._write.number, functools.partial(fault_point, AFTER_TASK_GIVEN))
            self._kept.discard()

    def aborts(self) -> None:
        """Make sure that this attempt owns the job, before pending files of all writers are removed."""
        self._master.check_now()

    def _mark(self) -> None:
        """Mark that the job has started to commit: a retry then keeps none of its tasks, which may have lost files."""
        try:
            (name,) = self._write.writes
            KeptOutput(self._spark, self._write.location, name).mark_commit(self._write.number)
        except Exception as error:  # noqa: BLE001 - then the retry is told in the event store
            log.info("sink %s: a retry will keep none of its tasks, because %s", self._sink.title, one_line(error))
            self._write = replace(self._write, cut=Cut(why="its job may have begun to commit"))
            self._master.remember_first(self._sink.coordinator, self._write.to_state())

    def _leave_out(self, execution: int, kept: KeptOutput) -> str:
        """Leave out the kept tasks; return why that is impossible, empty if it is done."""
        try:
            tasks, running = kept.tasks(), RunningWrite(self._spark, execution)
            plan = running.plan_cut_as(self._write.cut) if tasks else None
        except Exception as error:  # noqa: BLE001 - whatever it is, all of it is written
            return one_line(error)
        if plan is None:
            return "its rows are now divided among tasks differently" if tasks else "they are gone"
        try:
            partitions = running.leave_out(plan, tasks)
        except LookupError as error:
            return str(error)
        self._tasks = tasks
        self._write = replace(self._write, tasks=partitions, left_out=len(tasks))
        self._master.note(self._sink.coordinator, self._write.to_state())
        log.info(
            "sink %s: %d of its %d tasks were committed by earlier attempts and are kept, %d are written",
            self._sink.title,
            len(tasks),
            partitions,
            partitions - len(tasks),
        )
        return ""

    def _discard(self, why: str) -> bool:
        """Remove what is kept, because of *why*; return whether that worked."""
        log.info("sink %s: the tasks that were kept are written again: %s", self._sink.title, why)
        try:
            if self._kept is not None:
                self._kept.discard()
        except Exception as error:  # noqa: BLE001 - nobody looks for it any more
            log.info("sink %s: the tasks that were kept cannot be removed: %s", self._sink.title, one_line(error))
            return False
        return True

    def _counting(self, execution: int) -> Callable[[], tuple[int, int]] | None:
        try:
            return count_written(self._spark, execution)
        except Exception:  # noqa: BLE001 - then it counts as one that has written rows
            return None

    def _cut(self, execution: int) -> Cut:
        if self._write.repeated or self._write.of_a_batch:
            return Cut()
        if self._sink.chosen:
            return Cut(why=self._sink.chosen)
        try:
            if not can_keep(self._spark, self._write.location):
                return Cut(why="its file system does not move folders in one step")
            return RunningWrite(self._spark, execution).cut(to_table=bool(self._write.table))
        except Exception as error:  # noqa: BLE001 - a retry then writes all of it
            return Cut(why=one_line(error))

    def _remember(self, write: UnfinishedWrite) -> None:
        self._write = write
        if self._sink.overwrites and not write.kept:  # a retry replaces it, whatever its name is
            self._master.remember(self._sink.coordinator, write.to_state())
        else:
            self._master.remember_first(self._sink.coordinator, write.to_state())
