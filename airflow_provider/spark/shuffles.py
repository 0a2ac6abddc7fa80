"""Keep the shuffle files of an action, task by task.

Shuffle files die with the application, and with them hours of scanning, filtering and joining. Here a shuffle is a
vertex, too, as any result of a task is one to Flink: its partitions are the outputs of its map tasks. While the tasks
run, a thread copies what the finished ones have written into the partition store, at a pace that the budget allows. A
retry puts back what survived, and Spark runs the other tasks only. Nothing is computed otherwise than without recovery,
so what is not stored in time costs nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider.recovery.causes import one_line
from airflow_provider.recovery.errors import Fenced, RecoveryError
from airflow_provider.recovery.partitions import StoredPartition
from airflow_provider.spark.jvm.executors import on_executors
from airflow_provider.spark.jvm.map_stage import map_stages, plan_together
from airflow_provider.spark.kept_shuffle import KeptShuffle, keepable
from airflow_provider.spark.map_output import RowWidth, store_map_output
from airflow_provider.spark.partition_io import Place
from airflow_provider.spark.reading import location

if TYPE_CHECKING:
    from airflow_provider.spark.auto.cost import CostModel
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.map_output import LocalDirs, MapOutput
    from airflow_provider.spark.partition_io import StoreLocation
    from airflow_provider.spark.recovery_point import RecoveryPoint

log = logging.getLogger(__name__)

_POLL = 0.5
"""Least seconds between two looks at what has been written."""
_TRIES = 3
"""How often a map output is looked for on its executor before it is left alone."""


@contextmanager
def kept_shuffles(context: RecoveryContext, point: RecoveryPoint, df: Any) -> Iterator[float]:
    """Keep the shuffle files of *df*'s plan while it runs inside, and begin with those that survived.

    Only for what auto mode has placed. Whatever goes wrong here, the plan runs as it would have.

    :param df: the DataFrame that computes and stores *point*; its plan has not run
    :returns: wall seconds that computing what survived had taken
    :raises Fenced: a newer attempt owns the job
    """
    shuffles = _resumed(context, point.price.model, df) if point.price is not None else []
    if point.price is None or not shuffles:
        yield 0.0
        return
    keeper = _Keeper(context, point.price.model, df.sparkSession, shuffles)
    saved = sum(kept.seconds for kept in shuffles) / max(1, point.price.model.cores)
    keeper.start()
    try:
        yield saved
    except Exception as error:
        # What the shuffles hold is all that is left of the work.
        keeper.stop(store=not isinstance(error, Fenced))
        raise
    except BaseException:
        keeper.stop(store=False)
        raise
    keeper.stop(store=False)


def _resumed(context: RecoveryContext, model: CostModel, df: Any) -> list[KeptShuffle]:
    """Let *df*'s plan use shuffles that are kept; none where that is not possible, or does not pay."""
    shuffles: list[KeptShuffle] = []
    try:
        stages = []
        for stage in map_stages(df):
            live = context.live.find(stage)
            if live is None:
                stages.append(stage)
            elif live not in shuffles:
                live.go_on(stage)
                shuffles.append(live)
        new = {found.stage: found for found in keepable(context, model, stages, context.unstored.seconds)}
        for stage in plan_together(df.sparkSession, list(new)):
            kept = KeptShuffle(context, df.sparkSession, new[stage])
            if kept.prepare():
                kept.resume()
                shuffles.append(kept)
                context.live.hold(kept)
    except Fenced:
        raise
    except Exception as error:  # noqa: BLE001 - the plan runs as it would have
        log.warning("Shuffle files are not kept: %s", one_line(error))
        context.master.vertex_skipped("shuffle", one_line(error))
    return shuffles


class _Copying:
    """What has been copied of one shuffle.

    :ivar misses: map task → how often its output was looked for in vain
    :ivar seen: when an output was last seen to be new
    :ivar seconds: task time that storing took
    :ivar bytes: what was stored
    """

    def __init__(self, kept: KeptShuffle) -> None:
        self.kept = kept
        self.misses: dict[int, int] = defaultdict(int)
        self.seen = time.monotonic()
        self.seconds = 0.0
        self.bytes = 0

    def new(self) -> list[tuple[int, str, str, MapOutput]]:
        """Return index, executor, host and name of what has been written and is not stored yet."""
        if self.kept.sealed or self.kept.stage.finished <= len(self.kept.stored):
            return []
        left_alone = {index for index, misses in self.misses.items() if misses >= _TRIES}
        return list(self.kept.stage.outputs(self.kept.stored | left_alone))


class _Keeper:
    """Copies map outputs into the store while the application computes."""

    def __init__(self, context: RecoveryContext, model: CostModel, spark: Any, shuffles: list[KeptShuffle]) -> None:
        self._context = context
        self._model = model
        self._spark = spark
        self._copying = [_Copying(kept) for kept in shuffles]
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keep-shuffles", daemon=True)

    def start(self) -> None:
        """Begin to copy."""
        self._thread.start()

    def stop(self, *, store: bool) -> None:
        """End copying.

        :param store: look once more at what has been written
        """
        self._ended.set()
        self._thread.join()
        if store:
            self._look()
        for copying in self._copying:
            if copying.bytes:
                log.info(
                    "recovery point %r: %d of %d map outputs stored (%.1f MiB in %.1f s)",
                    copying.kept.name,
                    len(copying.kept.stored),
                    copying.kept.stage.maps,
                    copying.bytes / 2**20,
                    copying.seconds,
                )

    def _run(self) -> None:
        wait = _POLL
        while not self._ended.wait(wait):
            began = time.monotonic()
            if not self._look():
                return
            wait = max(_POLL, 2 * (time.monotonic() - began))

    def _look(self) -> bool:
        """Store what is new and affordable; ``False`` if there is nothing left to do."""
        try:
            for copying in self._copying:
                self._store_new(copying)
        except Exception as error:  # noqa: BLE001 - a thread's error helps nobody, and the plan needs none of this
            log.warning("Shuffle files are no longer kept: %s", one_line(error))
            return False
        return self._context.master.usable and not all(copying.kept.sealed for copying in self._copying)

    def _store_new(self, copying: _Copying) -> None:
        """Store what is new of one shuffle, as far as the budget goes."""
        stage, new = copying.kept.stage, copying.new()
        if not new:
            return
        rows, size, files = stage.written_so_far()
        now = time.monotonic()
        affordable = self._model.affordable(
            files / max(1, stage.finished - copying.kept.restored),
            seconds=now - self._began,
            copied=sum(each.bytes for each in self._copying),
            spent=sum(each.seconds for each in self._copying),
        )
        if not affordable:
            return
        # Tasks do not tell when they began; so much time has passed for so many of them, on so many cores.
        seconds = (now - copying.seen) * min(self._model.cores, len(new)) / len(new)
        copying.seen = now
        self._store(copying, new[:affordable], RowWidth.of(rows, size, files), seconds)

    def _store(
        self, copying: _Copying, new: list[tuple[int, str, str, MapOutput]], width: RowWidth, seconds: float
    ) -> None:
        context, kept, place = self._context, copying.kept, location(self._context)
        work: dict[tuple[str, str], list[tuple[Place, MapOutput]]] = defaultdict(list)
        for index, executor, host, output in new:
            named = Place(kept.vertex, kept.layout, index, kept.stage.maps, context.master.epoch, output.task)
            work[executor, host].append((named, output))

        def store(dirs: LocalDirs, wanted: Sequence[tuple[Place, MapOutput]]) -> list[tuple[int, str, int, float]]:
            return _store_here(place, dirs, wanted, width, seconds)

        kept.record()
        for _, (index, key, size, took) in on_executors(self._spark, work, store):
            copying.seconds += took
            partition = StoredPartition.from_key(key, size)
            if partition is None:
                copying.misses[index] += 1
                continue
            copying.bytes += size
            kept.take(partition)
        if len(kept.stored) == kept.stage.maps:
            kept.sealed = context.master.vertex_finished(kept.vertex, 0.0, copying.seconds)


def _store_here(
    place: StoreLocation, dirs: LocalDirs, wanted: Sequence[tuple[Place, MapOutput]], width: RowWidth, seconds: float
) -> list[tuple[int, str, int, float]]:
    """Store map outputs of this executor; return index, key, bytes and seconds of each, without a key if it failed."""
    store, done = place.open(), []
    for named, output in wanted:
        began = time.monotonic()
        try:
            partition = store_map_output(store, dirs, output, named, width, seconds)
        except (RecoveryError, OSError) as error:
            log.warning("A map output is not stored: %s", error)
            partition = None
        key, size = (partition.key, partition.bytes) if partition is not None else ("", 0)
        done.append((named.index, key, size, time.monotonic() - began))
    return done
