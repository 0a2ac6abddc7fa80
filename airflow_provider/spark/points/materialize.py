"""Compute the missing partitions of a vertex and store them, one by one.

The plan runs as it is, and Spark's own writer stores its rows. If that cannot reach the store, or does not support a
type, one function on top of the plan writes a partition and reports it. The driver records each partition as its task
ends, so whenever a crash comes, everything stored is found again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from airflow_provider.core.causes import one_line
from airflow_provider.core.errors import Fenced, RecoveryError
from airflow_provider.core.events import MOST_PARTITIONS, VertexInitialized
from airflow_provider.core.executions import ExecutionState, ExecutionVersion
from airflow_provider.core.partitions import WHOLE, StoredPartition, WriteFolder
from airflow_provider.core.vertex_token import vertex_of
from airflow_provider.spark.jvm.carriers import to_carriers
from airflow_provider.spark.jvm.execution import PreparedJob, cut_for, job_properties, tries_of_a_task
from airflow_provider.spark.jvm.layout import CUTTING_SETTINGS
from airflow_provider.spark.jvm.partition_write import failed_to_write
from airflow_provider.spark.jvm.queries import schema_of
from airflow_provider.spark.jvm.session_settings import all_settings, settings_set
from airflow_provider.spark.jvm.task_times import purpose_property
from airflow_provider.spark.points.cut import Cut
from airflow_provider.spark.points.manifests import Delivering
from airflow_provider.spark.points.native_write import NativeWrite
from airflow_provider.spark.points.partition_io import (
    LAYOUT_PROPERTY,
    MANIFEST_SCHEMA,
    PARALLELISM_PROPERTY,
    TRIES_PROPERTY,
    partition_writer,
)
from airflow_provider.spark.points.reading import location
from airflow_provider.spark.types import UnstorableType, refusal

if TYPE_CHECKING:
    from pyspark.accumulators import AccumulatorParam
    from pyspark.sql import DataFrame

    from airflow_provider.job.job_master import JobMaster
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.identity.recovery_point import RecoveryPoint

log = logging.getLogger(__name__)

_PROGRESS_INTERVAL = 5.0
"""Least seconds between two progress lines."""


class NotStored(Exception):
    """The store refused partitions; the DataFrame must be computed the ordinary way."""


@dataclass(frozen=True)
class Materialized:
    """A stored vertex.

    :ivar partitions: by index
    :ivar storing_seconds: task time spent on encoding and storing what was computed now
    """

    partitions: dict[int, StoredPartition]
    storing_seconds: float


@dataclass
class _Collector:
    """Takes the tasks' reports from Spark's accumulator thread; a report may come twice."""

    master: JobMaster
    title: str
    reporting: Callable[[], AbstractContextManager[bool]]
    parallelism: int = 0
    stored: dict[int, StoredPartition] = field(default_factory=dict)
    error: str = ""
    on_error: Any = None
    seconds: float = 0.0
    storing: float = 0.0
    _last_line: float = 0.0

    def fail(self, error: Exception | str) -> None:
        """Cancel the job: the store has refused a partition."""
        if not self.error:
            self.error = one_line(error) if isinstance(error, Exception) else error
            self.on_error()

    def take(
        self, key: str, size: int, error: str, seconds: float = 0.0, storing: float = 0.0, again: bool = False
    ) -> None:
        """Take a task's report that it has stored an object, or why it has not."""
        if error:
            self.fail(error)
        elif (partition := StoredPartition.from_key(key, size)) is not None:
            self.stored_now(partition, seconds, again, storing)

    def stored_now(self, partition: StoredPartition, seconds: float, again: bool, storing: float = 0.0) -> None:
        """Record a partition that a task or Spark's own writer has stored."""
        if partition.index in self.stored:
            if self.stored[partition.index].key != partition.key:
                self.master.partition_replaced(partition)
            return
        try:
            with self.reporting() as counts:
                if not counts:
                    self.master.partition_replaced(partition)
                    return
                self.master.partition_finished(partition, again=again)
        except Fenced:
            return  # this driver is being stopped; an error here would only fill its log with Spark's stack traces
        self.stored[partition.index] = partition
        self.seconds += seconds
        self.storing += storing
        now = time.monotonic()
        if now - self._last_line >= _PROGRESS_INTERVAL or len(self.stored) == self.parallelism:
            self._last_line = now
            log.info("%s: %d of %d partitions stored", self.title, len(self.stored), self.parallelism)


def tag_of(execution: ExecutionVersion) -> str:
    """Return the tag of an execution's Spark jobs, by which they are cancelled."""
    return f"spark-recovery-{execution.vertex}-{execution.number}"


def materialize(
    context: RecoveryContext, point: RecoveryPoint, execution: ExecutionVersion, because: tuple[str, ...] = ()
) -> Materialized:
    """Store the vertex; what survived and still fits is not computed again.

    :param execution: its results are ignored once a restart has cancelled it
    :param because: why the vertex is not the one that was stored earlier
    :raises NotStored: the store failed; the job itself is fine
    :raises IllegalMove: a restart cancels it
    """
    master, spark = context.master, point.df.sparkSession
    collector = _Collector(master, point.title, lambda: context.executions.reporting(execution))
    tag = tag_of(execution)
    context.executions.move(execution, ExecutionState.DEPLOYING)
    collector.on_error = lambda: spark.sparkContext.cancelJobsWithTag(tag)
    description = f"checkpoint {point.name}"
    known = master.vertex(point.vertex)
    recorded = Cut.from_spec(known.initialized.layout_spec) if known and known.initialized.deterministic else None
    settings = settings_set(spark, all_settings(spark), *CUTTING_SETTINGS)
    frame = _on_carriers(point)
    writing = frame if point.natively else _through_arrow(context, point, frame, collector)
    writing, parallelism = cut_for(writing, recorded.leaf_parallelism if recorded else 0)
    counted = purpose_property(point.vertex)
    with job_properties(spark.sparkContext, counted, description=f"{description}: upstream stages", tag=tag):
        job = PreparedJob(writing)
    if recorded is not None and recorded.settings == settings:
        job.pin(recorded.reads)
    cut = Cut(parallelism, settings, job.layout.reads)
    context.executions.move(execution, ExecutionState.RUNNING)
    if job.parallelism > MOST_PARTITIONS:
        raise NotStored(f"{job.parallelism:,} partitions are more than {MOST_PARTITIONS:,}")
    missing = _initialize(context, point, job, collector, because, cut)
    if missing:
        layout = _layout(point, job)
        through_arrow = {
            LAYOUT_PROPERTY: layout,
            PARALLELISM_PROPERTY: str(job.parallelism),
            TRIES_PROPERTY: str(tries_of_a_task(spark.sparkContext)),
        }
        properties = {**counted, **({} if point.natively else through_arrow)}
        with job_properties(spark.sparkContext, properties, description=description, tag=tag):
            if point.natively:
                folder = WriteFolder(point.vertex, layout, job.parallelism, master.epoch, execution.number)
                _write(context, frame, folder, job, missing, collector)
            else:
                _run(job, missing, collector)
    lost = [index for index in range(job.parallelism) if index not in collector.stored]
    if lost:
        raise NotStored(collector.error or f"no task reported partitions {lost[:10]}")
    return Materialized(collector.stored, collector.storing)


def _stored_upstream(master: JobMaster, point: RecoveryPoint) -> tuple[str, ...]:
    """Return the vertices that *point* reads, without those that could not be stored: it computes them, too."""
    reads = ((upstream, master.vertex(upstream)) for upstream in map(vertex_of, point.fingerprint.upstream))
    return tuple(upstream for upstream, vertex in reads if vertex is not None and vertex.has_finished)


def _run(job: PreparedJob, missing: list[int], collector: _Collector) -> None:
    try:
        rows = job.run(missing)
    except Exception as error:
        if collector.error:
            raise NotStored(collector.error) from error
        raise
    for row in rows:
        collector.take(row.key, row.bytes, row.error)


def _write(
    context: RecoveryContext,
    frame: DataFrame,
    folder: WriteFolder,
    job: PreparedJob,
    missing: list[int],
    collector: _Collector,
) -> None:
    try:
        NativeWrite(context, frame, folder, collector.stored_now, collector.fail).run(job, missing)
    except Exception as error:
        if collector.error or isinstance(error, RecoveryError) or failed_to_write(error):
            raise NotStored(collector.error or one_line(error)) from error
        raise


def _on_carriers(point: RecoveryPoint) -> DataFrame:
    try:
        return to_carriers(point.df)
    except UnstorableType as error:  # a user-defined type whose forms in Python and in the JVM differ
        raise NotStored(refusal(schema_of(point.df))) from error


def _through_arrow(
    context: RecoveryContext, point: RecoveryPoint, frame: DataFrame, collector: _Collector
) -> DataFrame:
    """Return the DataFrame that stores the rows of *frame* when it runs."""
    spark = frame.sparkSession
    reports: list[Any] = []
    accumulator = spark.sparkContext.accumulator(
        reports, cast("AccumulatorParam[list[Any]]", Delivering(collector.take))
    )

    def report(key: str, size: int, error: str, seconds: float, storing: float, again: bool) -> None:
        accumulator.add([(key, size, error, seconds, storing, again)])

    write = partition_writer(location(context), point.vertex, context.master.epoch, _schema(frame), report)
    return frame.mapInArrow(write, MANIFEST_SCHEMA)


def _schema(frame: DataFrame) -> bytes:
    """Return the Arrow schema of a frame, serialised."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if frame.sparkSession.version < "4.2":  # earlier versions always take UTC
        return bytes(to_arrow_schema(frame.schema).serialize().to_pybytes())
    return bytes(to_arrow_schema(frame.schema, timezone="UTC").serialize().to_pybytes())


def _layout(point: RecoveryPoint, job: PreparedJob) -> str:
    return WHOLE if point.not_deterministic else job.layout.identity(job.parallelism)


def _initialize(
    context: RecoveryContext,
    point: RecoveryPoint,
    job: PreparedJob,
    collector: _Collector,
    because: tuple[str, ...],
    cut: Cut,
) -> list[int]:
    """Record the vertex and what of it survived; return the indexes to compute."""
    master = context.master
    layout = _layout(point, job)
    whole = [*point.not_deterministic, *job.layout.whole_only]
    if whole:
        log.info("%s can only be kept whole: %s", point.title, "; ".join(dict.fromkeys(whole)))
    survivors = master.survivors_of(point.vertex, layout, job.parallelism, deterministic=not whole)
    again = _reset_others(master, point, layout, survivors, cut)
    master.vertex_initialized(
        VertexInitialized(
            epoch=master.epoch,
            at=time.time(),
            vertex=point.vertex,
            name=point.name,
            fingerprint=point.fingerprint.digest,
            parallelism=job.parallelism,
            layout=layout,
            deterministic=not whole,
            schema=point.df.schema.json(),
            upstream=_stored_upstream(master, point),
            parts=point.fingerprint.parts,
            layout_spec=cut.to_spec(),
            because=(*because, *again),
        )
    )
    collector.parallelism = job.parallelism
    for partition in survivors.values():
        master.partition_finished(partition)
        collector.stored[partition.index] = partition
    missing = [index for index in range(job.parallelism) if index not in survivors]
    log.info(
        "%s: %d partitions, %d reused, %d to compute",
        point.title,
        job.parallelism,
        len(survivors),
        len(missing),
    )
    return missing


def _reset_others(
    master: JobMaster, point: RecoveryPoint, layout: str, survivors: dict[int, StoredPartition], cut: Cut
) -> tuple[str, ...]:
    """Record that partitions which earlier attempts finished are computed again; return the reasons."""
    known = master.vertex(point.vertex)
    if known is None:
        return ()
    kept = {partition.key for partition in survivors.values()}
    again = tuple(index for index, record in known.partitions.items() if record.key not in kept)
    if not again:
        return ()
    if known.initialized.layout == layout:
        reason = "an incomplete vertex that is not deterministic cannot be kept in part"
    else:
        changed = cut.changes_since(Cut.from_spec(known.initialized.layout_spec))
        reason = f"its rows are cut differently now{f' ({changed})' if changed else ''}"
    log.warning("%s: %d stored partitions are not reused: %s", point.title, len(again), reason)
    master.partitions_reset(point.vertex, again, reason)
    return (reason,)
