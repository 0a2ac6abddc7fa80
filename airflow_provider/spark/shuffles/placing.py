"""Put stored map outputs into the local directories of executors.

One executor with all of them would serve all reducers, and would take everything with it when it goes. So this waits
for the executors that the application has asked for, and Spark's scheduler spreads the outputs over those that are
there or come meanwhile. What finds no room on one of them is tried on the others.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider.core.errors import CorruptObject, ObjectNotFound
from airflow_provider.spark.jvm.executors import executors, on_any_executors, on_executors, wait_for_executors
from airflow_provider.spark.shuffles.map_output import MapOutput, restore_map_output

if TYPE_CHECKING:
    from airflow_provider.core.partitions import StoredPartition
    from airflow_provider.spark.local_dirs import LocalDirs
    from airflow_provider.spark.points.partition_io import StoreLocation
    from airflow_provider.spark.shuffles.map_output import Restored

log = logging.getLogger(__name__)

Wanted = tuple["StoredPartition", MapOutput]
"""A stored partition, and the map output that it is to become."""

_PART = 64 * 2**20
"""Bytes that one task puts back: executors that come later take over what is left."""


def lay_into_executors(
    spark: Any, store: StoreLocation, wanted: Sequence[Wanted], budget: float
) -> dict[int, tuple[tuple[str, str], Restored]]:
    """Put map outputs back; return, by index, each restored one with the id and host of its executor.

    Leaves out what is damaged, gone from the store, or finds no room: it is computed again.

    :param budget: seconds of waiting for one second of computing that is saved
    """

    def put_back(dirs: LocalDirs, own: Sequence[Wanted]) -> list[tuple[int, Restored | None]]:
        return _restore_here(store, dirs, own)

    saved = sum(partition.millis for partition, _ in wanted) / 1000
    size = sum(partition.bytes for partition, _ in wanted)
    parts = max(wait_for_executors(spark, saved * budget), size // _PART)
    answers = on_any_executors(spark, _shares(wanted, parts), put_back)
    places = executors(spark)  # without executors lost meanwhile, and their files
    full = {executor for executor, (_, output) in answers if output is None}
    if full and (others := [place for place in places if place[0] not in full]):
        refused = {index for _, (index, output) in answers if output is None}
        log.info("%d map outputs found no room on %d executors; trying the others", len(refused), len(full))
        again = [pair for pair in wanted if pair[0].index in refused]
        answers += on_executors(spark, dict(zip(others, _shares(again, len(others)), strict=False)), put_back)
    hosts = dict(places)
    return {
        index: ((executor, hosts[executor]), output)
        for executor, (index, output) in answers
        if output is not None and executor in hosts
    }


def _shares(wanted: Sequence[Wanted], parts: int) -> list[Sequence[Wanted]]:
    """Return at most *parts* parts of about equal bytes."""
    largest_first = sorted(wanted, key=lambda pair: -pair[0].bytes)
    return [largest_first[part::parts] for part in range(min(parts, len(wanted)))]


def _restore_here(store: StoreLocation, dirs: LocalDirs, wanted: Sequence[Wanted]) -> list[tuple[int, Restored | None]]:
    """Put map outputs back on this executor; ``None`` for those that its disk does not take.

    Leaves out what is damaged, or gone.
    """
    opened, done = store.open(), list[tuple[int, "Restored | None"]]()
    for partition, output in wanted:
        try:
            done.append((partition.index, restore_map_output(opened, dirs, partition, output)))
        except (CorruptObject, ObjectNotFound) as error:
            log.warning("%s", error)
        except OSError as error:
            log.warning("%s", error)
            done.append((partition.index, None))
    return done
