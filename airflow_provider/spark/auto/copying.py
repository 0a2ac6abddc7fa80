"""Copy map outputs into the store, each on an executor that has its files or can read them."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider.core.errors import RecoveryError
from airflow_provider.core.partitions import StoredPartition
from airflow_provider.spark.jvm.executors import on_executors
from airflow_provider.spark.points.partition_io import Place
from airflow_provider.spark.points.reading import location
from airflow_provider.spark.shuffles.map_output import MapOutput, Written, store_map_output

if TYPE_CHECKING:
    from airflow_provider.spark.auto.cost import CopyingCost
    from airflow_provider.spark.auto.shuffle_vertex import ShuffleVertex
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.jvm.left_files import Readers
    from airflow_provider.spark.jvm.map_output_tracker import MapOutputTracker, MapStatus
    from airflow_provider.spark.jvm.stage_metrics import StageMetricsReader
    from airflow_provider.spark.local_dirs import LocalDirs
    from airflow_provider.spark.points.partition_io import StoreLocation

log = logging.getLogger(__name__)

_BACK_OFF = 10.0
"""Seconds without copying after the store has refused something."""
_REFUSED = -1
"""Takes the place of a size if the store refused the output."""
_Work = tuple[Place, MapOutput, Written, "LocalDirs | None"]
"""A map output's name in the store, the output, Spark's counts of it, and its directories if it lies elsewhere."""

_Answer = tuple[int, str, int, float]
"""Index of a map output, key, bytes, and the seconds that storing it took."""


@dataclass
class Tools:
    """The tools that all kept shuffles of an application share.

    :ivar cores: of a local master; ``None`` on a cluster
    :ivar links: whether the store is a folder, so that a copy may be a hard link
    :ivar waited: seconds that the pause between looks does not grow with: waiting for executors takes nothing of this
        machine, and copying cached DataFrames is weighed by itself
    :ivar make_room: makes room for a number of bytes of a vertex, given the task seconds that each byte saves; returns
        whether they fit
    """

    tracker: MapOutputTracker
    readers: Readers
    metrics: StageMetricsReader
    cost: CopyingCost
    cores: int | None
    links: bool
    make_room: Callable[[ShuffleVertex, int, float], bool]
    waited: float = field(default=0.0, init=False)
    _again: float = field(default=0.0, init=False)

    @property
    def backing_off(self) -> bool:
        """Whether copying pauses after a refusal."""
        return time.monotonic() < self._again

    def back_off(self) -> None:
        """Pause copying after a refusal."""
        self._again = time.monotonic() + _BACK_OFF

    def copy(
        self,
        context: RecoveryContext,
        spark: Any,
        vertex: ShuffleVertex,
        written: Sequence[tuple[MapStatus, Written]],
        seconds: float,
    ) -> list[int]:
        """Copy those map outputs of a vertex that an executor can read; return the indexes of incomplete ones.

        If the store refuses something, copying pauses for a while.

        :param seconds: task time of one of its tasks
        """
        readers = self.readers.of({status.writer for status, _ in written})
        written = [(status, counts) for status, counts in written if status.writer in readers]
        if not written:
            return []
        vertex.record()
        place, missed = location(context), list[int]()
        work: dict[tuple[str, str], list[_Work]] = defaultdict(list)
        for status, counts in written:
            named = Place(vertex.vertex, vertex.layout, status.index, vertex.maps, context.master.epoch, status.task)
            reader, output = readers[status.writer], MapOutput(vertex.number, status.task)
            work[reader.executor].append((named, output, counts, reader.left))

        def store(dirs: LocalDirs, wanted: Sequence[_Work]) -> list[_Answer]:
            return _store_here(place, dirs, wanted, seconds)

        statuses, began = {status.index: status for status, _ in written}, time.monotonic()
        answers = on_executors(spark, work, store)
        if self.cores is None:
            self.waited += time.monotonic() - began
        for executor, (index, key, stored, took) in answers:
            partition = StoredPartition.from_key(key, stored)
            if partition is not None:
                vertex.take(partition, statuses[index].task)
                self.cost.copied(partition.bytes, took)
            elif stored == _REFUSED:
                self.back_off()
            elif executor == readers[statuses[index].writer].executor[0]:
                missed.append(index)  # else its own executor had no free core, and another one was asked
        return missed


def _store_here(place: StoreLocation, dirs: LocalDirs, wanted: Sequence[_Work], seconds: float) -> list[_Answer]:
    """Store map outputs of this executor, or of a lost executor on the same machine.

    The key is empty if the files are not here or incomplete; the size is :data:`_REFUSED` if the store refuses them.
    """
    store, done = place.open(), list[_Answer]()
    for number, (named, output, written, left) in enumerate(wanted):
        began = time.monotonic()
        try:
            partition = store_map_output(store, dirs, output, named, written, seconds, left)
        except (RecoveryError, OSError) as error:
            log.warning("Map outputs are not stored now; they are tried again later: %s", error)
            return [*done, *((refused.index, "", _REFUSED, 0.0) for refused, *_ in wanted[number:])]
        took = time.monotonic() - began
        if partition is None:
            done.append((named.index, "", 0, took))
        else:
            done.append((named.index, partition.key, partition.object_bytes, took))
    return done
