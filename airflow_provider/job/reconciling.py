"""Reconcile the recorded graph with what the store holds, between the claim and the script.

Source: Flink's ``RECONCILING`` state (FLIP-383): replay the events, find survivors, reset what is lost, classify the
partitions. Knows no Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from airflow_provider.core.classify import Need, classify
from airflow_provider.core.faults import DURING_RECONCILIATION, fault_point
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.partition_tracker import PartitionTracker
from airflow_provider.job.survivors import Survivors

log = logging.getLogger(__name__)


def reconcile(
    graph: ExecutionGraph,
    epoch: int,
    survivors: Survivors,
    tracker: PartitionTracker,
    reset: Callable[[str, tuple[int, ...], str], None],
) -> None:
    """List the partition store; reset lost partitions, release superseded vertices, sweep useless objects.

    :param reset: records that partitions of a vertex are gone, with the reason; no indexes means all
    :raises RecoveryError: the store cannot be read, or a newer attempt owns the job
    """
    survivors.find(graph, epoch)
    for identity, indexes in survivors.lost(graph).items():
        reason = "lost: not in the store with the recorded size"
        log.warning("%s: partitions %s %s", graph.vertices[identity].initialized.name, _some(indexes), reason)
        reset(identity, indexes, reason)
    superseded = [identity for identity, need in classify(graph).items() if need is Need.RELEASE]
    for identity in superseded:
        if graph.vertices[identity].partitions:
            reset(identity, (), "released: another vertex has taken its place")
    # The driver that recorded a release may still be deleting, so nothing relies on released objects.
    released = [identity for identity, vertex in graph.vertices.items() if vertex.released]
    survivors.sweep(epoch, [*superseded, *released])
    for identity, vertex in graph.vertices.items():
        for index in vertex.partitions:
            tracker.adopt(identity, index)
    fault_point(DURING_RECONCILIATION)
    for identity, vertex in graph.vertices.items():
        told = vertex.initialized
        found = survivors.of(graph, identity, told.layout, told.parallelism, told.deterministic)
        log.info("  %s: %d of %d partitions survive", told.name, len(found), told.parallelism)


def _some(indexes: tuple[int, ...]) -> str:
    shown = ", ".join(str(index) for index in indexes[:10])
    return shown + (f" and {len(indexes) - 10} more" if len(indexes) > 10 else "")
