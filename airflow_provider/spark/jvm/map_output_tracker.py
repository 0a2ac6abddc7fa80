"""Spark's map output tracker: which task's output is where.

The scheduler asks it before it runs a stage (``DAGScheduler`` registers a shuffle only if the tracker does not know it
yet, and runs the tasks whose outputs it does not find), and reducers ask it for their blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider.spark.jvm.compiled import compiled
from airflow_provider.spark.jvm.exchanges import kind
from airflow_provider.spark.jvm.executors import shuffle_servers
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.reflection import of_environment
from airflow_provider.spark.jvm.scala import items

_CHECKSUMS_SINCE = (4, 1)
"""From this version of Spark on, a map status has a checksum of the task's rows."""


@dataclass(frozen=True)
class MapStatus:
    """One map output that the tracker knows.

    :ivar index: of the map task, 0 … number of map tasks - 1
    :ivar task: Spark's map id, which names the files
    :ivar executor: the id of the executor that wrote them; it may have gone if a shuffle service serves them
    :ivar host: of that executor
    :ivar checksum: Spark's checksum of the rows; 0 if Spark computes none
    """

    index: int
    task: int
    executor: str
    host: str
    checksum: int

    @property
    def writer(self) -> tuple[str, str]:
        """Id and host of the executor."""
        return self.executor, self.host


class MapOutputTracker:
    """The tracker of one application."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._tracker = of_environment(spark, "mapOutputTracker", "org.apache.spark.MapOutputTracker")
        self._look = compiled(spark, "ShuffleLook", str)
        self._checksums = tuple(int(part) for part in spark.version.split(".")[:2]) >= _CHECKSUMS_SINCE

    def shuffles(self) -> dict[int, int]:
        """Return the number of available map outputs by shuffle, for all started shuffles that are not forgotten."""
        lines = str(self._look.shuffles(self._tracker)).splitlines()
        return {int(number): int(available) for number, available in map(str.split, lines)}

    def own_time(self) -> float:
        """Return the CPU seconds of the JVM thread that answers this one."""
        return int(self._look.ownTime()) / 1e9

    def statuses(self, shuffle: int) -> Iterator[MapStatus]:
        """Yield the available map outputs of *shuffle*."""
        for line in str(self._look.outputs(self._tracker, shuffle)).splitlines():
            index, task, checksum, host, executor = line.split(" ", 4)
            yield MapStatus(int(index), int(task), executor, host, int(checksum))

    def tasks(self, shuffle: int) -> dict[int, int]:
        """Return the map ids that the tracker knows now, by index."""
        return {status.index: status.task for status in self.statuses(shuffle)}

    def places(self) -> dict[str, Any]:
        """Return, by executor, the location of map outputs in its directories."""
        return shuffle_servers(self._spark)

    def register_shuffle(self, shuffle: int, maps: int, reducers: int) -> None:
        """Register a shuffle before the scheduler does."""
        self._tracker.registerShuffle(shuffle, maps, reducers)

    def register(self, shuffle: int, index: int, task: int, place: Any, sizes: Sequence[int], checksum: int) -> None:
        """Register a map output.

        :param place: what serves its files, see :meth:`places`
        :param sizes: bytes for each reducer
        """
        jvm = jvm_of(self._spark)
        array = self._spark.sparkContext._gateway.new_array(jvm.long, len(sizes))
        packed = struct.pack(f">{len(sizes)}q", *sizes)
        jvm.java.nio.ByteBuffer.wrap(packed).asLongBuffer().get(array)
        checksums = (checksum,) if self._checksums else ()
        status = jvm.org.apache.spark.scheduler.MapStatus.apply(place, array, task, *checksums)
        self._tracker.registerMapOutput(shuffle, index, status)

    def statistics(self, dependency: Any) -> Any:
        """Return Spark's ``MapOutputStatistics`` of a complete shuffle."""
        return self._tracker.getStatistics(dependency)


def not_sparks_own_files(spark: Any) -> str:
    """Return why another application cannot read this one's shuffle files; empty if it can."""
    conf = spark._jsc.sc().conf()
    if conf.get("spark.shuffle.manager", "sort") not in {"sort", "tungsten-sort"}:
        return "another shuffle manager is in use"
    for name, what in {
        "spark.io.encryption.enabled": "shuffle files are encrypted with a key of this application",
        "spark.shuffle.push.enabled": "shuffle files are merged by another service",
        "spark.shuffle.useOldFetchProtocol": "shuffle files have the names of Spark 2",
    }.items():
        if conf.getBoolean(name, False):
            return what
    return "" if conf.get("spark.shuffle.sort.io.plugin.class", "") == "" else "a plugin keeps shuffle files elsewhere"


def shuffles_below(rdd: Any) -> dict[int, Any]:
    """Return the shuffles that the tasks of an RDD read: Spark's shuffle id → ``ShuffleDependency``."""
    pending, seen, found = [rdd], {int(rdd.id())}, dict[int, Any]()
    while pending:
        for dependency in items(pending.pop().dependencies()):
            if "ShuffleDependency" in kind(dependency):
                found[int(dependency.shuffleId())] = dependency
            elif (number := int(dependency.rdd().id())) not in seen:
                seen.add(number)
                pending.append(dependency.rdd())
    return found
