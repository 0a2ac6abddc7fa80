"""Partitions of cached DataFrames in the driver's block manager: with a local master, all of them are there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from airflow_provider.spark.jvm.compiled import compiled
from airflow_provider.spark.jvm.exchanges import ADAPTIVE, CACHED_SCAN, is_filled, kind
from airflow_provider.spark.jvm.executors import block_manager
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.reflection import private_field
from airflow_provider.spark.jvm.scala import companion, has_member, items, to_seq

_BATCHES = "DefaultCachedBatchSerializer"
"""Spark's own; another one (``spark.sql.cache.serializer``) makes batches of another kind."""


def cached_rdd(relation: Any) -> Any:
    """Return the RDD that holds a cached DataFrame; ``None`` if nothing has asked for its rows yet.

    :param relation: an ``InMemoryRelation``
    """
    return private_field(relation.cacheBuilder(), "_cachedColumnBuffers")


def has_sparks_batches(relation: Any) -> bool:
    """Whether a cached DataFrame is held in Spark's own form."""
    return kind(relation.cacheBuilder().serializer()) == _BATCHES


def is_observed(plan: Any) -> bool:
    """Whether rows of a plan are observed, here or in a cached DataFrame below: Spark looks at them as they pass."""
    if kind(plan) == ADAPTIVE:
        return is_observed(plan.initialPlan())
    if kind(plan) == CACHED_SCAN:
        return is_observed(plan.relation().cachedPlan())
    return kind(plan) == "CollectMetricsExec" or any(map(is_observed, items(plan.children())))


@dataclass(frozen=True)
class Held:
    """A partition in the block manager.

    :ivar size: its bytes
    :ivar written: whether they are there as Spark writes them, so that nothing has to be computed for a copy
    """

    size: int
    written: bool


class Unreadable(Exception):
    """A file does not hold the batches of a partition, whatever its checksum says."""


class CachedBatches:
    """Copies partitions of cached DataFrames out of the block manager of this JVM, and puts them back.

    :param codec: for partitions that Spark has not written itself
    :ivar directory: one of Spark's local directories, for files on their way
    """

    def __init__(self, spark: Any, codec: str = "none") -> None:
        self._codec = codec
        self._blocks = block_manager(spark)
        self.directory = str(self._blocks.diskBlockManager().localDirsString()[0])
        self._look = compiled(spark, "CachedBatches", str)
        self._sparks = str(self._look.codec(self._blocks))

    def look(self, held: Any) -> str | None:
        """Return what is there of a frame, for :func:`partitions_in`; empty if nothing has asked for its rows yet,
        ``None`` if the script has dropped it.

        :param held: weak reference to its ``InMemoryRelation``
        """
        found = self._look.look(self._blocks, held, self._sparks)
        return None if found is None else str(found)

    def write(self, rdd: Any, index: int, path: str) -> tuple[str, int, float] | None:
        """Copy a partition into a file, by a link if Spark has written it to disk; ``None`` if it is not there now.

        :returns: the codec with which it is compressed, the file's CRC-32, and the seconds of CPU that this took
        """
        answer = str(self._look.write(self._blocks, rdd, index, path, self._sparks, self._codec)).split()
        if not answer:
            return None
        codec, checksum, nanos = answer
        return codec, int(checksum), int(nanos) / 1e9

    def put(self, relation: Any, rdd: Any, index: int, path: str, codec: str) -> bool:
        """Put a partition back; return whether the block manager had room for it.

        :raises Unreadable: the file holds something else
        """
        why = self._look.put(self._blocks, relation, rdd, index, path, codec)
        if why:
            raise Unreadable(str(why))
        return why is not None


def partitions_in(look: str) -> tuple[int, dict[int, Held]]:
    """Return the id of a frame's RDD, and its partitions that are there, by index."""
    rdd, *lines = look.splitlines()
    found = (line.split() for line in lines)
    return int(rdd), {int(index): Held(int(size), written == "true") for index, size, written in found}


def scan_of(spark: Any, relation: Any) -> Any:
    """Return a plan that would read all of a cached DataFrame. It never runs."""
    jvm = jvm_of(spark)
    columnar = jvm.org.apache.spark.sql.execution.columnar
    return columnar.InMemoryTableScanExec(relation.output(), to_seq(jvm, []), relation)


def reader_of(spark: Any, relation: Any) -> Any:
    """Return a shuffle that would do so, into one reducer. It never runs, either."""
    sql = jvm_of(spark).org.apache.spark.sql
    exchange = companion(sql.execution.exchange, "ShuffleExchangeExec")
    single = companion(sql.catalyst.plans.physical, "SinglePartition")
    defaults = []
    for place in itertools.count(3):
        name = f"apply$default${place}"
        if not has_member(exchange, name):
            break
        defaults.append(getattr(exchange, name)())
    return exchange.apply(single, scan_of(spark, relation), *defaults)


def frames_below(plan: Any) -> Iterator[Any]:
    """Yield the cached DataFrames that a plan reads and that are not filled, each as an ``InMemoryRelation``."""
    if kind(plan) == ADAPTIVE:
        yield from frames_below(plan.initialPlan())
    elif kind(plan) == CACHED_SCAN:
        if not is_filled(plan.relation()):
            yield plan.relation()
            yield from frames_below(plan.relation().cachedPlan())
    else:
        for child in items(plan.children()):
            yield from frames_below(child)
