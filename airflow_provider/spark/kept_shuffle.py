"""A shuffle whose files are kept: what it is, and what survived of it.

Its fingerprint is that of the rows which it was made for, as the optimizer left them, and of all that decides what its
files look like; the rest of the plan, and of the script, may change.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider.recovery.digest import digest
from airflow_provider.recovery.errors import CorruptObject, ObjectNotFound
from airflow_provider.recovery.events import VertexInitialized
from airflow_provider.spark.auto.cost import SHUFFLE_PRICE
from airflow_provider.spark.auto.rules import Rule
from airflow_provider.spark.cut import Cut
from airflow_provider.spark.fingerprint import fingerprint
from airflow_provider.spark.jvm.execution import leaf_parallelism
from airflow_provider.spark.jvm.executors import executors, on_executors
from airflow_provider.spark.jvm.layout import CUTTING_SETTINGS
from airflow_provider.spark.jvm.optimized import at_a_glance
from airflow_provider.spark.jvm.settings import settings_set
from airflow_provider.spark.map_output import restore_map_output
from airflow_provider.spark.reading import location
from airflow_provider.spark.recovery_point import vertex_identity

if TYPE_CHECKING:
    from airflow_provider.recovery.partitions import StoredPartition
    from airflow_provider.spark.auto.cost import CostModel
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.fingerprint import Fingerprint, Known
    from airflow_provider.spark.jvm.map_stage import MapStage
    from airflow_provider.spark.map_output import LocalDirs, MapOutput, Restored
    from airflow_provider.spark.partition_io import StoreLocation

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Keepable:
    """A shuffle whose files are worth keeping.

    :ivar name: for people: by what it shuffles
    """

    stage: MapStage
    name: str
    identity: Fingerprint

    @property
    def vertex(self) -> str:
        """Its identity."""
        return vertex_identity(self.name, self.identity.digest)


def keepable(
    known: Known, model: CostModel, stages: Sequence[MapStage], unstored: Mapping[int, float] | None = None
) -> list[Keepable]:
    """Return which of a plan's shuffles are dear enough to be kept, and can be; of several alike one.

    Looks at all of them before any is prepared, which may run subqueries that several share.

    :param unstored: RDD id → seconds that what it goes on from took
    """
    found: dict[str, Keepable] = {}
    for stage in stages:
        frame = stage.frame
        node = at_a_glance(frame)
        if node is None:
            continue
        behind = sum(unstored.get(rdd, 0.0) for rdd in stage.rdds()) if unstored else 0.0
        if model.too_cheap(model.computing(node) + behind, SHUFFLE_PRICE):
            continue
        identity = fingerprint(frame, known)
        if identity.opaque or identity.not_deterministic:
            continue
        identity = replace(identity, digest=digest(identity.digest, *stage.written(), "map outputs"))
        name = f"{Rule.SHUFFLE}({stage.label})" if stage.label else str(Rule.SHUFFLE)
        found.setdefault(identity.digest, Keepable(stage, name, identity))  # adaptive execution, too, runs one of those
    return list(found.values())


class KeptShuffle:
    """A shuffle as a vertex; its partitions are the outputs of its map tasks.

    :ivar stage: its map tasks
    :ivar name: of the vertex
    :ivar vertex: its identity
    :ivar layout: what each map task covers; empty before :meth:`prepare`
    :ivar stored: indexes of the map tasks whose outputs are in the store
    :ivar restored: how many of them were there before
    :ivar seconds: task time that computing what is in the store has taken
    :ivar sealed: whether all of it is in the store
    """

    def __init__(self, context: RecoveryContext, spark: Any, found: Keepable) -> None:
        self._context = context
        self._spark = spark
        self._identity = found.identity
        self._recorded = False
        self.stage = found.stage
        self.name, self.vertex = context.identify(found.name, found.identity.digest)
        self.stored: set[int] = set()
        self.restored = 0
        self.seconds = 0.0
        self.sealed = False
        self.layout = ""
        known = context.master.vertex(self.vertex)
        self._parallelism = Cut.from_spec(known.initialized.layout_spec).leaf_parallelism if known else 0

    def prepare(self) -> bool:
        """Learn what its map tasks cover, once they are planned; ``False`` if they cannot be kept one by one."""
        with leaf_parallelism(self._spark, self._parallelism) as parallelism:
            layout = self.stage.prepare(self._context.unstored.cuts)
        self._cut = Cut(parallelism, settings_set(self._spark, *CUTTING_SETTINGS), [])
        self.layout = layout.identity(self.stage.maps)
        return bool(self.stage.maps) and not layout.whole_only

    def resume(self) -> None:
        """Put back what survived of it, and let the plan use it."""
        master, maps = self._context.master, self.stage.maps
        survivors = master.survivors_of(self.vertex, self.layout, maps, deterministic=True)
        there = self._put_back(list(survivors.values()))
        known = master.vertex(self.vertex)
        again = tuple(index for index in known.partitions if index not in there) if known is not None else ()
        if again:
            master.partitions_reset(self.vertex, again, "its map outputs cannot be used any more")
        if there:
            self.record()
            for index in there:
                self.take(survivors[index])
            self.restored = len(there)
            log.info(
                "recovery point %r: %d map tasks, %d reused, %d to compute",
                self.name,
                maps,
                len(there),
                maps - len(there),
            )
        if len(there) == maps:
            master.vertex_reused(self.vertex)
            self.sealed = (known is not None and known.finished) or master.vertex_finished(self.vertex)
        self.stage.take_place()

    @property
    def is_there(self) -> bool:
        """Whether the outputs of all its map tasks are on the executors."""
        return self.stage.finished == self.stage.maps

    def go_on(self, stage: MapStage) -> None:
        """Let another plan of this application, of which *stage* is a part, use what has run for an earlier one."""
        stage.runs_with(self.stage)
        self.stage = stage
        self.stage.take_place()

    def record(self) -> None:
        """Let the next attempt know the vertex, before anything of it is stored."""
        if self._recorded:
            return
        self._context.master.vertex_initialized(
            VertexInitialized(
                epoch=self._context.master.epoch,
                at=time.time(),
                vertex=self.vertex,
                name=self.name,
                fingerprint=self._identity.digest,
                parallelism=self.stage.maps,
                layout=self.layout,
                deterministic=True,
                schema=self.stage.frame.schema.json(),
                parts=self._identity.parts,
                layout_spec=self._cut.to_spec(),
                rule=str(Rule.SHUFFLE),
            )
        )
        self._recorded = True

    def take(self, partition: StoredPartition) -> None:
        """A map output is in the store."""
        self._context.master.partition_finished(partition)
        self.stored.add(partition.index)
        self.seconds += partition.millis / 1000

    def _put_back(self, survivors: list[StoredPartition]) -> set[int]:
        """Put map outputs into the executors' directories, and tell Spark of them; return the indexes of those."""
        if not survivors:
            return set()
        places, place = executors(self._spark), location(self._context)
        work: dict[tuple[str, str], list[tuple[StoredPartition, MapOutput]]] = defaultdict(list)
        for number, partition in enumerate(survivors):
            work[places[number % len(places)]].append((partition, self.stage.restored_as(partition.index)))

        def restore(dirs: LocalDirs, wanted: Sequence[tuple[StoredPartition, MapOutput]]) -> list[tuple[int, Restored]]:
            return _restore(place, dirs, wanted)

        answers = on_executors(self._spark, work, restore)
        self.stage.register({index: (executor, output) for executor, (index, output) in answers})
        return {index for _, (index, _) in answers}


def _restore(
    place: StoreLocation, dirs: LocalDirs, wanted: Sequence[tuple[StoredPartition, MapOutput]]
) -> list[tuple[int, Restored]]:
    """Put map outputs back on this executor; leaves out what is damaged or cannot be had, which is computed again."""
    store, done = place.open(), []
    for partition, output in wanted:
        try:
            done.append((partition.index, restore_map_output(store, dirs, partition, output)))
        except (CorruptObject, ObjectNotFound) as error:
            log.warning("%s", error)
    return done
