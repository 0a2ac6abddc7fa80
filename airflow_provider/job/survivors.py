"""Find the stored partitions of earlier attempts that this one may use: one listing, minus lost and damaged ones.

Knows no Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor

from airflow_provider.core.errors import RecoveryError
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.partitions import StoredPartition, WriteFolder, choose
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.partition_store import PartitionStore, file_checksum
from airflow_provider.storage.sealing import SealedStore

log = logging.getLogger(__name__)


class Survivors:
    """The stored partitions of earlier attempts, by vertex.

    :param reset: called for damaged partitions with vertex, indexes and reason
    """

    def __init__(self, store: ObjectStore, prefix: str, reset: Callable[[str, tuple[int, ...], str], None]) -> None:
        self._store = store
        self._prefix = prefix
        self._reset = reset
        self._partitions = PartitionStore(store, prefix)
        self._found: dict[str, list[StoredPartition]] = {}
        self._given_up: list[StoredPartition] = []

    def find(self, graph: ExecutionGraph, epoch: int) -> None:
        """List the partition store once; leave out what a given-up run stored.

        :param epoch: this attempt; adopts files that tasks of earlier attempts wrote and no driver has recorded

        :raises StoreError: the store cannot be read
        """
        survivors = self._partitions.adopt(graph.base_epoch, epoch)
        self._given_up = [p for found in survivors.values() for p in found if p.epoch < graph.base_epoch]
        self._found = {vertex: [p for p in found if p.epoch >= graph.base_epoch] for vertex, found in survivors.items()}

    def sweep(self, epoch: int, unneeded: Iterable[str]) -> None:
        """Delete the useless objects of attempts before *epoch*, and abort their unfinished uploads.

        Their drivers are gone and fenced, so nothing uses these objects; what executors that outlive them store later
        is swept when the job ends. If the store refuses, this only costs space.

        :param unneeded: superseded and released vertices
        """
        useless = [*self._given_up, *(p for vertex in unneeded for p in self._found.pop(vertex, ()))]
        self._given_up = []
        try:
            self._partitions.delete(useless)
            aborted = self._partitions.abort_uploads(epoch - 1)
        except RecoveryError as error:
            log.warning("What earlier attempts left could not be swept: %s", error)
            return
        if useless or aborted:
            log.info("Swept %d useless partitions and %d unfinished uploads.", len(useless), aborted)

    def lost(self, graph: ExecutionGraph) -> dict[str, tuple[int, ...]]:
        """Return recorded partitions that the store does not hold with the recorded size: vertex → indexes."""
        lost = {}
        for identity, vertex in graph.vertices.items():
            present = {p.key: p.bytes for p in self._found.get(identity, ())}
            indexes = tuple(i for i, record in vertex.partitions.items() if present.get(record.key) != record.bytes)
            if indexes:
                lost[identity] = indexes
        return lost

    def of(
        self, graph: ExecutionGraph, identity: str, layout: str, parallelism: int, deterministic: bool
    ) -> dict[int, StoredPartition]:
        """Return, by index, the partitions of a vertex that may be reused under a layout, even an unrecorded one."""
        vertex = graph.vertices.get(identity)
        if not deterministic and not (vertex and vertex.finished):
            return {}
        while True:
            chosen = choose(
                self._found.get(identity, ()),
                layout=layout,
                parallelism=parallelism,
                recorded={i: record.key for i, record in vertex.partitions.items()} if vertex else {},
                deterministic=deterministic,
            )
            damaged = find_damaged(self._store, self._prefix, chosen.values())
            if not damaged:
                return chosen
            self.discard(graph, identity, damaged)

    def named(self, key: str) -> StoredPartition | None:
        """Return the partition with this key, or whose content has this key; ``None`` if there is none."""
        written = WriteFolder.of_object(key)
        if written is None:
            return StoredPartition.from_key(key, 0)
        return next((each for each in self._found.get(written[0].vertex, ()) if each.content_key == key), None)

    def add(self, partition: StoredPartition) -> None:
        """Add a stored partition of this attempt."""
        self._found.setdefault(partition.vertex, []).append(partition)

    def forget(self, identity: str, indexes: Collection[int] = ()) -> list[StoredPartition]:
        """Stop using stored partitions and return them. No indexes means all."""
        found = self._found.pop(identity, [])
        if indexes:
            self._found[identity] = [partition for partition in found if partition.index not in indexes]
        return [partition for partition in found if not indexes or partition.index in indexes]

    def discard(self, graph: ExecutionGraph, identity: str, damaged: list[StoredPartition]) -> None:
        """Discard damaged partitions, for this attempt and all later ones."""
        keys = {partition.key for partition in damaged}
        self._found[identity] = [p for p in self._found.get(identity, ()) if p.key not in keys]
        for partition in damaged:
            log.warning("The stored partition %s is damaged; it is computed again.", partition.key)
            self._partitions.mark_corrupt(partition)
        if identity in graph.vertices:
            self._reset(identity, tuple(p.index for p in damaged), "damaged: the checksum does not match")


def find_damaged(store: ObjectStore, prefix: str, partitions: Iterable[StoredPartition]) -> list[StoredPartition]:
    """Return those of *partitions* whose content does not match their checksum or seal; none for stores on S3.

    S3 protects its objects against bit rot, and reads through Arrow are checked. A plain file system gives no such
    guarantee, and Spark's own reader checks pages but not footers. Reading a local file once is cheap compared with
    computing it, so files are checked whole.
    """
    plain = store.plain if isinstance(store, SealedStore) else store
    if not isinstance(plain, FileObjectStore):
        return []
    checked = list(partitions)

    def is_sound(partition: StoredPartition) -> bool:
        key = f"{prefix}/{partition.key}"
        path = plain.path_of(key)
        try:
            if isinstance(store, SealedStore):
                return store.is_sealed(key, path)
            return file_checksum(path) == partition.checksum
        except OSError:
            return False

    with ThreadPoolExecutor(max_workers=4) as pool:
        sound = pool.map(is_sound, checked)
        return [partition for partition, good in zip(checked, sound, strict=True) if not good]
