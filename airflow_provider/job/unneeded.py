"""Delete unneeded objects of a running job: they wait here until they may be deleted.

The store must first confirm all events so far, so that the next attempt knows why the objects are gone and what
replaced them. They are deleted only while this attempt certainly owns the job: a fenced driver deletes nothing. Knows
no Spark.
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
    """Objects that tasks of a vertex may have stored without reporting them.

    :ivar kept: keys of the recorded objects
    :ivar task: the newest task that stored one of them; later tasks may still be running
    """

    vertex: str
    kept: frozenset[str]
    task: int


class Unneeded:
    """Objects of one attempt that are to be deleted, some of them only when their vertex is stored. Thread-safe; one
    thread deletes.

    :param partitions: the job's partition store
    :param record: the attempt's record
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
        """Delete these partitions."""
        with self._lock:
            self._waiting += partitions

    def replace(self, vertex: str, partitions: Iterable[StoredPartition]) -> None:
        """Delete these partitions once their vertex is stored, because other objects replace them."""
        with self._lock:
            self._replaced[vertex] += partitions

    def ran_again(self, vertex: str) -> None:
        """Note that a task of a vertex has run before and may have stored something without reporting it."""
        with self._lock:
            self._ran_again.add(vertex)

    def stored(self, vertex: str, kept: Collection[str]) -> None:
        """Note that a vertex is stored: replaced objects, and others that repeated tasks stored, can be deleted.

        :param kept: keys of its recorded objects
        """
        told = [partition for key in kept if (partition := StoredPartition.from_key(key, 0)) is not None]
        newest = max((partition.task for partition in told if partition.epoch == self._record.epoch), default=0)
        with self._lock:
            self._waiting += [each for each in self._replaced.pop(vertex, ()) if each.key not in kept]
            if vertex in self._ran_again:
                self._ran_again.discard(vertex)
                self._beside.append(_Beside(vertex, frozenset(kept), newest))

    def delete(self, owned: float) -> None:
        """Delete what may be deleted now. If the store refuses, this only costs space until the next call.

        :param owned: seconds for which this attempt certainly owns the job
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
