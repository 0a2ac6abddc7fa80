"""Explain a job's recovery, attempt by attempt: what was kept, put back and skipped, and why. Pure.

Built from the replayed graph, so it shows the present state: partitions given up since do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider.core.events import SHUFFLE
from airflow_provider.core.graph import Attempt, ExecutionGraph, Vertex
from airflow_provider.core.report import LOST, SkippedReport, skipped
from airflow_provider.core.savings import (
    NO_WORK,
    RetrySavings,
    Work,
    not_reusable,
    retry_savings,
    reusable,
    work_so_far,
)


@dataclass(frozen=True)
class Amount:
    """A number of partitions (and how many of these are map outputs), their stored bytes and their task time."""

    partitions: int = 0
    map_outputs: int = 0
    bytes: int = 0
    task_seconds: float = 0.0


@dataclass(frozen=True)
class ExplainedAttempt:
    """One attempt.

    :ivar note: why it began as it did, or its error; may be empty
    :ivar put_back: what it reused from earlier attempts
    :ivar kept: what it stored itself
    :ivar skipped: what it did not keep, and why
    """

    epoch: int
    state: str
    note: str
    put_back: Amount
    kept: Amount
    skipped: list[SkippedReport]


@dataclass(frozen=True)
class ExplainedPoint:
    """One recovery point: a kept shuffle, or one that the script names.

    :ivar shuffle: its partitions are the outputs of a shuffle's map tasks
    :ivar upstream: identities of the recovery points that it reads
    :ivar stored: number of stored partitions
    :ivar put_back: those of them that the newest attempt reused from earlier ones
    :ivar computed: those of them that the newest attempt computed
    :ivar rows: of the stored partitions; ``None`` if unknown
    :ivar task_seconds: task time that the stored partitions took
    :ivar would_reuse: partitions that a retry would reuse now
    :ivar would_save: task time that this would save
    :ivar work: task time spent on it so far, if known, and how much of that a retry would keep
    :ivar notes: further remarks, one phrase each
    """

    vertex: str
    name: str
    shuffle: bool
    upstream: list[str]
    partitions: int
    stored: int
    put_back: int
    computed: int
    rows: int | None
    bytes: int
    task_seconds: float
    would_reuse: int
    would_save: float
    work: Work
    notes: list[str]


@dataclass(frozen=True)
class Explanation:
    """The whole job.

    :ivar points: in the order in which they were first reached
    :ivar retry: what a retry would save now
    :ivar problems: what of the job's events cannot be read
    """

    job: str
    state: str
    attempts: list[ExplainedAttempt]
    points: list[ExplainedPoint]
    retry: RetrySavings
    problems: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return plain dictionaries and lists, ready for JSON."""
        return asdict(self)


def explain_job(job: str, graph: ExecutionGraph, discarded: str = "") -> Explanation:
    """Return the explanation of *job* from its replayed graph.

    :param discarded: why the next attempt reuses nothing, if the job was discarded
    """
    newest = graph.newest
    epoch = newest.epoch if newest else 0
    because, hidden = not_reusable(graph, discarded), _hidden(graph, epoch)
    work = work_so_far(graph, because, discarded)
    return Explanation(
        job=job,
        state=str(newest.state) if newest else "NONE",
        attempts=[_attempt(graph, attempt, attempt is newest) for _, attempt in sorted(graph.attempts.items())],
        points=[
            _point(identity, vertex, epoch, because, hidden.get(identity, ""), work.get(identity, NO_WORK))
            for identity, vertex in graph.vertices.items()
        ],
        retry=retry_savings(graph, because, work, discarded),
        problems=list(graph.problems),
    )


def _attempt(graph: ExecutionGraph, attempt: Attempt, is_newest: bool) -> ExplainedAttempt:
    put_back, kept = Amount(), Amount()
    for vertex in graph.vertices.values():
        own = [record for record in vertex.partitions.values() if record.attempt == attempt.epoch]
        size, seconds = sum(record.bytes for record in own), sum(record.duration for record in own)
        kept = _plus(kept, vertex, len(own), size, seconds)
        if attempt.epoch in vertex.reached_by:
            tally = vertex.tally(attempt.epoch)
            put_back = _plus(put_back, vertex, tally.reused, tally.bytes_reused, tally.seconds_saved)
    return ExplainedAttempt(
        epoch=attempt.epoch,
        state=str(attempt.state) if attempt.state.terminal or is_newest else LOST,
        note=attempt.error or attempt.reason,
        put_back=put_back,
        kept=kept,
        skipped=skipped(attempt.skipped),
    )


def _plus(amount: Amount, vertex: Vertex, partitions: int, size: int, seconds: float) -> Amount:
    return Amount(
        partitions=amount.partitions + partitions,
        map_outputs=amount.map_outputs + (partitions if _is_shuffle(vertex) else 0),
        bytes=amount.bytes + size,
        task_seconds=round(amount.task_seconds + seconds, 3),
    )


def _point(
    identity: str, vertex: Vertex, epoch: int, because: Mapping[str, str], hidden: str, work: Work
) -> ExplainedPoint:
    told, records, reached = vertex.initialized, list(vertex.partitions.values()), epoch in vertex.reached_by
    would_reuse, would_save = reusable(identity, vertex, because)
    computed = sum(record.attempt == epoch for record in records)
    return ExplainedPoint(
        vertex=identity,
        name=told.name,
        shuffle=_is_shuffle(vertex),
        upstream=list(told.upstream),
        partitions=told.parallelism,
        stored=len(records),
        put_back=len(records) - computed if reached else 0,
        computed=computed,
        rows=vertex.rows,
        bytes=vertex.bytes,
        task_seconds=round(sum(record.duration for record in records), 3),
        would_reuse=would_reuse,
        would_save=round(would_save, 3),
        work=work,
        notes=[
            *([f"computed again because {reason}" for reason in told.because] if told.epoch == epoch else []),
            *([] if reached else [f"not needed in attempt {epoch}: {hidden} was put back whole"] if hidden else []),
            *([] if reached or hidden else [f"not reached by attempt {epoch}"]),
            *([f"a retry reuses nothing of it, because {because[identity]}"] if identity in because else []),
        ],
    )


def _hidden(graph: ExecutionGraph, epoch: int) -> dict[str, str]:
    """Return the vertices that the newest attempt did not need to reach, with the name of the finished vertex above
    each.
    """
    hidden: dict[str, str] = {}
    pending = [
        (upstream, vertex.initialized.name)
        for vertex in graph.vertices.values()
        if epoch in vertex.reached_by and vertex.finished
        for upstream in vertex.initialized.upstream
    ]
    while pending:
        identity, name = pending.pop()
        vertex = graph.vertices.get(identity)
        if vertex is not None and epoch not in vertex.reached_by and identity not in hidden:
            hidden[identity] = name
            pending += [(upstream, name) for upstream in vertex.initialized.upstream]
    return hidden


def _is_shuffle(vertex: Vertex) -> bool:
    return vertex.initialized.rule == SHUFFLE
