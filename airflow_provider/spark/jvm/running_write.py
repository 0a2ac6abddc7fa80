"""Inspect a file write right before its tasks run: how its rows are split into tasks, and which of these compute.

The plan is the user's own, run by the user's own call. If an earlier attempt has committed some of its tasks, the node
that writes gets only the remaining rows: an RDD with as many partitions, of which the committed ones are empty. So the
others keep their numbers, by which Spark names their files and which functions may ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from airflow_provider.core.partitions import WHOLE
from airflow_provider.core.task_output import Cut
from airflow_provider.spark.jvm.compiled import compiled
from airflow_provider.spark.jvm.execution import local_properties
from airflow_provider.spark.jvm.layout import Layout, describe_layout, pin_reads
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.session_settings import active_session

_EXECUTION = "spark.sql.execution.id"


def count_written(spark: Any, execution: int) -> Callable[[], tuple[int, int]] | None:
    """Return what tells, when a running write has returned, how many rows and files its tasks have written; ``None`` if
    Spark does not.

    :param execution: Spark's number of the execution
    """
    look = compiled(spark, "RunningWrite", str)
    rows, files = (look.count(execution, of) for of in ("numOutputRows", "numFiles"))
    return None if rows is None or files is None else lambda: (int(rows.value()), int(files.value()))


class RunningWrite:
    """The node of a query that writes files; its shuffles have run.

    :param spark: the session
    :param execution: Spark's number of the execution
    :raises LookupError: it does not write files, or not by a plan
    """

    def __init__(self, spark: Any, execution: int) -> None:
        self._spark = spark
        self._execution = execution
        self._looks = compiled(spark, "RunningWrite", str)
        self._write = self._looks.find(execution)
        if self._write is None:
            raise LookupError("its plan does not say what each of its tasks writes")

    def cut(self, *, to_table: bool) -> Cut:
        """Return how its rows are split into tasks.

        :param to_table: whether the catalog may have to learn what each task has written
        """
        why = self._refused(to_table=to_table)
        return Cut(why=why) if why else self._cut_of(self._write.child())

    def plan_cut_as(self, cut: Cut) -> Any:
        """Return its plan, or another one of the same rows, split as *cut* says; ``None`` if there is none."""
        plan = self._write.child()
        if self._cut_of(plan).layout == cut.layout:
            return plan
        with self._in_its_thread():
            plan = pin_reads(self._spark, plan, [list(one) for one in cut.ranges])
        return plan if plan is not None and self._cut_of(plan).layout == cut.layout else None

    def leave_out(self, plan: Any, partitions: Collection[int]) -> int:
        """Make it compute all partitions of a plan except for some.

        :returns: the number of all partitions
        :raises LookupError: this version of Spark has no place for that, and everything is computed. After any other
            error the state is unknown
        """
        left = self._spark.sparkContext._gateway.new_array(jvm_of(self._spark).int, len(partitions))
        for place, index in enumerate(sorted(partitions)):
            left[place] = index
        with self._in_its_thread():
            answer = str(self._looks.leaveOut(self._write, plan, left))
        if not answer.isdecimal():
            raise LookupError(answer)
        return int(answer)

    def _cut_of(self, plan: Any) -> Cut:
        with self._in_its_thread():
            layout: Layout = describe_layout(self._spark, plan)
        identity = layout.identity(0)  # the number of partitions follows from the layout
        if identity == WHOLE:
            return Cut(why="; ".join(dict.fromkeys(layout.whole_only)))
        return Cut(identity, tuple(tuple(one) for one in layout.reads))

    def _refused(self, *, to_table: bool) -> str:
        write = self._write
        if write.bucketSpec().isDefined():
            return "it is bucketed"
        if not write.staticPartitions().isEmpty():
            return "it names the partition that it writes"
        if to_table and not write.partitionColumns().isEmpty():
            return "its table is partitioned"
        if self._looks.addsUpFloats(write.child()):
            return "floating-point numbers are added up below its last shuffle, and their last digits may vary"
        return ""

    @contextmanager
    def _in_its_thread(self) -> Iterator[None]:
        """Make this thread count as one of the execution, whose metrics Spark sends where it looks for files."""
        properties = {_EXECUTION: str(self._execution)}
        with active_session(self._spark), local_properties(self._spark.sparkContext, properties):
            yield
