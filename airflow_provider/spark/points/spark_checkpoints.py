"""Spark's own ``df.checkpoint()`` in a retry: read the files of an earlier attempt instead of computing the rows again.

Spark writes such files itself and leaves them behind; an attempt only records which plan they belong to. A loop that
checkpoints each round goes on where it was. The script may use the frame beside its checkpoint, too, so rows must be
the same in each attempt, or chosen anew by each query of Spark. What functions read by themselves counts as it does
for recovery points.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider.core.causes import one_line
from airflow_provider.core.committed_output import listing_digest
from airflow_provider.core.digest import digest
from airflow_provider.core.errors import RecoveryError
from airflow_provider.core.events import CHECKPOINT
from airflow_provider.core.faults import AFTER_CHECKPOINT_RECORDED, AFTER_SPARK_CHECKPOINT, fault_point
from airflow_provider.core.unfinished_write import ON_THIS_MACHINE, WRITTEN, output_state
from airflow_provider.core.vertex_token import vertex_of
from airflow_provider.spark.calls import Call, Kind, Proceed, Stages
from airflow_provider.spark.identity.fingerprint import fingerprint, settled_once
from airflow_provider.spark.identity.known import DrawsOfOnePlan
from airflow_provider.spark.jvm.checkpoint_files import (
    are_kept,
    are_on_this_machine,
    checkpoint_files,
    folder_behind,
    read_instead,
    written_as,
)
from airflow_provider.spark.jvm.determinism import spreads
from airflow_provider.spark.jvm.execution import micro_batch
from airflow_provider.spark.jvm.queries import is_classic
from airflow_provider.spark.points.filled_caches import FilledCaches
from airflow_provider.spark.points.releasing import given_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider.spark.context import RecoveryContext

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_FOLDER, _LISTING = "folder", "listing"
"""What is remembered of a checkpoint: its folder, and a digest of the files in it."""


@dataclass(frozen=True)
class _Checkpoint:
    """One call of ``df.checkpoint()``.

    :ivar identity: of its plan, and of how its rows are written
    :ivar name: of its record
    :ivar title: its name in the log
    :ivar reads: the recovery points that it reads
    """

    identity: str
    name: str
    title: str
    reads: tuple[str, ...]


class SparkCheckpoints:
    """Reads the checkpoints of earlier attempts, and records those of this one."""

    def __init__(self, context: RecoveryContext) -> None:
        self._context = context
        self._caches = FilledCaches(context)
        self._lock = threading.Lock()
        self._calls = 0
        self._said: set[str] = set()
        self._occurrences: Counter[str] = Counter()

    def stages(self) -> Stages:
        """Return the stage for the script's calls, if the job's options ask for auto mode."""
        options = self._context.master.request.options
        auto = options.enabled and options.recovery_points == "auto"
        return {Kind.CHECKPOINT: self._checkpoint} if auto else {}

    def _checkpoint(self, call: Call, proceed: Proceed) -> Any:
        df = call.owner
        if call.name != "checkpoint" or not call.eager or not is_classic(df):
            return self._made(call, proceed)
        checkpoint = self._guarded(lambda: self._identified(df))
        if checkpoint is None:
            return self._made(call, proceed)
        kept = self._guarded(lambda: self._kept(df, checkpoint))
        if kept is not None:
            self._caches.fill(lambda: df, checkpoint.name)
            return kept
        try:
            with self._context.purposes.serving(checkpoint.name):
                made = proceed()
        except Exception:
            with self._lock:  # scripts retry by themselves: their next call of this kind is the same one
                self._occurrences[checkpoint.identity] -= 1
            raise
        fault_point(AFTER_SPARK_CHECKPOINT)
        self._guarded(lambda: self._record(made, checkpoint))
        fault_point(AFTER_CHECKPOINT_RECORDED)
        return made

    def _made(self, call: Call, proceed: Proceed) -> Any:
        """Make a checkpoint that each attempt makes."""
        given_out(self._context, call.owner)
        return proceed()

    def _guarded(self, do: Callable[[], _T]) -> _T | None:
        """Return the result of *do*, ``None`` if it fails: then the checkpoint is made as it always is."""
        try:
            return do()
        except RecoveryError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is wrong, Spark's own call comes out as without this
            log.info("Cannot find out whether df.checkpoint() was made already: %s", one_line(error))
            return None

    def _identified(self, df: DataFrame) -> _Checkpoint | None:
        """Return what a frame's checkpoint is; ``None`` if each attempt makes it."""
        spark: Any = df.sparkSession
        self._context.master.check()
        with self._lock:
            self._calls += 1
            title = f"df.checkpoint() {self._calls}"
        if df.isStreaming or micro_batch(spark) or not are_kept(spark):
            return None
        plan = fingerprint(df, self._context, draws=DrawsOfOnePlan(self._context.draws))
        varying = tuple(reason for reason in plan.not_deterministic if not spreads(reason))
        certain = () if settled_once(df, self._context, varying) else varying
        if reason := "; ".join(dict.fromkeys((*plan.opaque, *certain))):
            if reason not in self._said:
                self._said.add(reason)
                log.info("%s is made by each attempt: %s", title, reason)
            return None
        identity = digest("checkpoint", plan.digest, written_as(spark), self._context.purposes.own)
        with self._lock:
            self._occurrences[identity] += 1
            occurrence = self._occurrences[identity]
        name = f"{CHECKPOINT}{digest(identity, str(occurrence))[:32]}"
        return _Checkpoint(identity, name, title, tuple(map(vertex_of, plan.upstream)))

    def _kept(self, df: DataFrame, checkpoint: _Checkpoint) -> DataFrame | None:
        """Return a frame over the files of an earlier attempt; ``None`` if they are not there as they were."""
        known = self._context.master.coordinator(checkpoint.name)
        if known is None:
            return None
        folder = str(known.get(_FOLDER))
        files = checkpoint_files(df.sparkSession, folder)
        kept = files and known.get(_LISTING) == listing_digest(files)
        read = read_instead(df, folder) if kept else None
        if read is None:
            log.info("%s: the files that attempt %s wrote cannot be used", checkpoint.title, known.get("attempt"))
            return None
        log.info(
            "%s: already written by attempt %s, its %d partitions are read",
            checkpoint.title,
            known.get("attempt"),
            len(files),
        )
        return read

    def _record(self, made: DataFrame, checkpoint: _Checkpoint) -> None:
        """Record the files that Spark has written."""
        spark, folder = made.sparkSession, folder_behind(made)
        files = checkpoint_files(spark, folder)
        if files:
            status = ON_THIS_MACHINE if are_on_this_machine(spark) else WRITTEN  # then what is below is not needed
            state = output_state(status, self._context.master.epoch, checkpoint.title, checkpoint.reads)
            self._context.master.remember(checkpoint.name, {**state, _FOLDER: folder, _LISTING: listing_digest(files)})
