"""Decide what to restart when a vertex fails: the failover strategies and their result. Pure.

A region lies between two materialised boundaries. Every vertex is materialised, so a region is one vertex. An
unreadable input adds the region that produces it, as in Flink, and there only the lost partitions are computed again.
``full`` restarts all vertices that the attempt has reached.

An action (a collect, a write) is not a vertex and is restarted as a whole: its inputs are stored, or are computed along
with it. ``full`` also gives up the shuffles that auto mode keeps, so the restart runs them again.

A finished vertex that is not deterministic cannot be restarted inside the application: other vertices are derived from
the incarnation that would be lost. That is a global failure, which the next attempt handles from the top.

Source: Flink's ``ExecutionFailureHandler``, ``FailureHandlingResult``, ``RestartPipelinedRegionFailoverStrategy`` and
``RestartAllFailoverStrategy``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from airflow_provider.core.events import SHUFFLE
from airflow_provider.core.failure import Cause, unrecoverable
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.restart_strategy import RestartMemory, RestartStrategy

ACTION = "action/"
"""Begins what stands for an action in the place of a vertex."""


@dataclass(frozen=True)
class FailureHandlingResult:
    """How to handle a failure.

    :ivar failed: the vertex or the action that failed
    :ivar error: its error in one line
    :ivar vertices_to_restart: upstream first; empty if nothing is restarted
    :ivar delay: seconds to wait before the restart
    :ivar refused: why nothing is restarted inside the application; empty text if something is
    :ivar unrecoverable: a later attempt cannot help either
    :ivar memory: the restart strategy's memory from now on
    """

    failed: str
    error: str
    vertices_to_restart: tuple[str, ...]
    delay: float
    refused: str
    unrecoverable: bool
    memory: RestartMemory

    @property
    def can_restart(self) -> bool:
        """Whether the application continues."""
        return not self.refused


def kept_shuffles(graph: ExecutionGraph, epoch: int) -> list[str]:
    """Return the shuffles that auto mode keeps and attempt *epoch* has reached."""
    return [
        identity
        for identity, vertex in graph.vertices.items()
        if vertex.initialized.rule == SHUFFLE and epoch in vertex.reached_by
    ]


def vertices_to_restart(
    graph: ExecutionGraph, failed: str, lost: Collection[str], strategy: str, reached: Iterable[str]
) -> tuple[str, ...]:
    """Return what has to run again, upstream first and the failed one last.

    :param lost: vertices with unreadable stored partitions
    :param strategy: ``region`` or ``full``
    :param reached: vertices that this attempt has reached, in that order
    """
    before = [identity for identity in reached if identity != failed and identity in graph.vertices]
    if strategy == "full":
        return (*before, failed)
    return (*(identity for identity in before if identity in lost), failed)


def handle_failure(
    graph: ExecutionGraph,
    failed: str,
    error: str,
    causes: Collection[Cause],
    *,
    lost: Collection[str],
    reached: Collection[str],
    failover_strategy: str,
    restart_strategy: RestartStrategy,
    memory: RestartMemory,
    now: float,
) -> FailureHandlingResult:
    """Decide how to handle a failure.

    :param error: the error in one line
    :param now: seconds since the Unix epoch
    """
    noted = restart_strategy.after_failure(memory, now)
    restarted = vertices_to_restart(graph, failed, lost, failover_strategy, reached)
    unrecoverable_cause = unrecoverable(causes)
    unknown = sorted(set(lost) - set(restarted))
    fixed = [v for v in restarted if v != failed and not graph.vertices[v].initialized.deterministic]
    if unrecoverable_cause is not None:
        refused = f"{unrecoverable_cause.condition or unrecoverable_cause.type} is an error that no restart can fix"
    elif unknown or fixed:
        which = ", ".join(unknown or (graph.vertices[v].initialized.name for v in fixed))
        refused = (
            f"{which} would have to be computed again, and what was derived from it too; that takes another attempt"
        )
    elif not restart_strategy.can_restart(noted):
        refused = f"the restart strategy allows no more restarts after {noted.failures} failures"
    else:
        refused = ""
    return FailureHandlingResult(
        failed=failed,
        error=error,
        vertices_to_restart=() if refused else restarted,
        delay=0.0 if refused else restart_strategy.delay(noted),
        refused=refused,
        unrecoverable=unrecoverable_cause is not None,
        memory=noted,
    )
