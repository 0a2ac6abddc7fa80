"""What earlier attempts stored and this one may use: one listing, less what proves to be lost or damaged.

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

    :param reset: told of partitions that turn out damaged: vertex, indexes and the reason
    """

    def __init__(self, store: ObjectStore, prefix: str, reset: Callable[[str, tuple[int, ...], str], None]) -> None:
        self._store = store
        self._prefix = prefix
        self._reset = reset
        self._partitions = PartitionStore(store, prefix)
        self._found: dict[str, list[StoredPartition]] = {}
        self._given_up: list[StoredPartition] = []

    def find(self, graph: ExecutionGraph, epoch: int) -> None:
        """List the partition store, once; what a given-up run has stored is left out.

        :param epoch: this attempt; what tasks of earlier ones have written and no driver has come to is taken

        :raises StoreError: the store cannot be read
        """
        survivors = self._partitions.adopt(graph.base_epoch, epoch)
        self._given_up = [p for found in survivors.values() for p in found if p.epoch < graph.base_epoch]
        self._found = {vertex: [p for p in found if p.epoch >= graph.base_epoch] for vertex, found in survivors.items()}

    def sweep(self, epoch: int, unneeded: Iterable[str]) -> None:
        """Delete what earlier attempts than *epoch* left and nobody can use, and abort their unfinished uploads.

        Their drivers are gone and fenced, so nothing of this is at work; what executors that outlive them store later
        is swept when the job ends. A store that refuses costs only room.

        :param unneeded: vertices whose place others have taken, and those that are released
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
        """Return what the events call finished but the store does not hold with the recorded size: vertex → indexes."""
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
        """Return, by index, the partitions of a vertex that may be reused under a layout, which no event need know."""
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
        """Return the partition with a key, or whose content lies there; ``None`` if there is none."""
        written = WriteFolder.of_object(key)
        if written is None:
            return StoredPartition.from_key(key, 0)
        return next((each for each in self._found.get(written[0].vertex, ()) if each.content_key == key), None)

    def add(self, partition: StoredPartition) -> None:
        """A partition of this attempt is stored."""
        self._found.setdefault(partition.vertex, []).append(partition)

    def forget(self, identity: str, indexes: Collection[int] = ()) -> list[StoredPartition]:
        """Whatever is stored of partitions is not used any more; returns what that is. No indexes means all."""
        found = self._found.pop(identity, [])
        if indexes:
            self._found[identity] = [partition for partition in found if partition.index not in indexes]
        return [partition for partition in found if not indexes or partition.index in indexes]

    def discard(self, graph: ExecutionGraph, identity: str, damaged: list[StoredPartition]) -> None:
        """Never use damaged partitions again, neither here nor in a later attempt."""
        keys = {partition.key for partition in damaged}
        self._found[identity] = [p for p in self._found.get(identity, ()) if p.key not in keys]
        for partition in damaged:
            log.warning("The stored partition %s is damaged; it is computed again.", partition.key)
            self._partitions.mark_corrupt(partition)
        if identity in graph.vertices:
            self._reset(identity, tuple(p.index for p in damaged), "damaged: the checksum does not match")


def find_damaged(store: ObjectStore, prefix: str, partitions: Iterable[StoredPartition]) -> list[StoredPartition]:
    """Return those of *partitions* whose content does not match their checksum or seal; none for stores on S3.

    S3 guards its objects against decay, and what is read through Arrow is checked on the way in. A plain file system
    gives no such promise, and Spark's own reader checks pages but not footers. Reading a local file once is cheap
    against computing it, so files are checked whole.
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
