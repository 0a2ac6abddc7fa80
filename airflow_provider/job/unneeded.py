"""The one way in which objects of a running job go: what nothing needs any more waits here until it may be deleted.

First the store confirms all that was recorded so far, so that whoever comes next knows why they are gone, and of what
has taken their place. They are deleted only while this attempt certainly owns the job: a fenced driver deletes nothing.
Knows no Spark.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from airflow_provider.core.errors import RecoveryError
from airflow_provider.core.partitions import StoredPartition
from airflow_provider.job.recording import JobRecord
from airflow_provider.storage.partition_store import PartitionStore

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Beside:
    """What tasks of a vertex may have stored without saying so.

    :ivar kept: keys of what is recorded
    :ivar task: the newest of the tasks that have stored them; what comes later may be at work
    """

    vertex: str
    kept: frozenset[str]
    task: int


class Unneeded:
    """Objects of one attempt that are to be deleted, some of them when their vertex is stored. Threads may share it;
    one of them deletes.

    :param partitions: of the job
    :param record: of the attempt
    """

    def __init__(self, partitions: PartitionStore, record: JobRecord) -> None:
        self._partitions = partitions
        self._record = record
        self._lock = threading.Lock()
        self._waiting: list[StoredPartition] = []
        self._beside: list[_Beside] = []
        self._replaced: dict[str, list[StoredPartition]] = defaultdict(list)
        """By vertex, what was stored for a partition that has, or will have, another object."""
        self._ran_again: set[str] = set()

    def add(self, partitions: Iterable[StoredPartition]) -> None:
        """Nothing needs these any more."""
        with self._lock:
            self._waiting += partitions

    def replace(self, vertex: str, partitions: Iterable[StoredPartition]) -> None:
        """Other objects count for these partitions, or will: these are not needed when the vertex is stored."""
        with self._lock:
            self._replaced[vertex] += partitions

    def ran_again(self, vertex: str) -> None:
        """A task of a vertex has run before, and may have stored something without saying so."""
        with self._lock:
            self._ran_again.add(vertex)

    def stored(self, vertex: str, kept: Collection[str]) -> None:
        """A vertex is stored: what was replaced is not needed, nor what else tasks have stored that ran again.

        :param kept: keys of what is recorded of it
        """
        told = [partition for key in kept if (partition := StoredPartition.from_key(key, 0)) is not None]
        newest = max((partition.task for partition in told if partition.epoch == self._record.epoch), default=0)
        with self._lock:
            self._waiting += [each for each in self._replaced.pop(vertex, ()) if each.key not in kept]
            if vertex in self._ran_again:
                self._ran_again.discard(vertex)
                self._beside.append(_Beside(vertex, frozenset(kept), newest))

    def delete(self, owned: float) -> None:
        """Delete what waits here, if it may be; a store that refuses costs only room, until the next time.

        :param owned: for how many seconds this attempt certainly owns the job
        :raises Fenced: a newer attempt owns it
        """
        with self._lock:
            if not self._waiting and not self._beside:
                return
            partitions, self._waiting = self._waiting, []
            beside, self._beside = self._beside, []
        deleted = False
        try:
            if owned > 0 and self._record.flush():
                self._partitions.delete(partitions)
                for one in beside:
                    self._partitions.release_beside(one.vertex, one.kept, self._record.epoch, one.task)
                deleted = True
        except RecoveryError as error:
            self._record.check()
            log.debug("What is not needed any more could not be deleted: %s", error)
        finally:
            if not deleted:
                with self._lock:
                    self._waiting, self._beside = [*partitions, *self._waiting], [*beside, *self._beside]
