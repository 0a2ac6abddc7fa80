"""The report of a job, for the task log, XCom and ``spark-recovery inspect``. Plain values, ready for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from airflow_provider.core.committed_output import doubts
from airflow_provider.core.events import VertexSkipped
from airflow_provider.core.graph import ExecutionGraph, JobState, Vertex
from airflow_provider.core.overhead import overhead_of, overhead_text
from airflow_provider.core.partition_record import Tally
from airflow_provider.core.quantities import aligned, count_text
from airflow_provider.core.savings import (
    NO_WORK,
    RetrySavings,
    Work,
    kept_text,
    not_reusable,
    other_text,
    retry_savings,
    reusable,
    savings_text,
    work_so_far,
)
from airflow_provider.core.unfinished_write import writes_going_on

RETURNED = "function/returned"
"""Coordinator that keeps what a task function has returned: the attempt, and the value as JSON."""

MOST_NAMES = 8
"""Names of what was skipped for one reason that a text lists."""
LOST = "LOST"
"""State of an attempt that did not say how it ended and has a successor."""


@dataclass(frozen=True)
class VertexReport:
    """One vertex as the newest attempt left it.

    :ivar reused: partitions reused from earlier attempts
    :ivar computed: partitions computed by the newest attempt
    :ivar missing: partitions not stored
    :ivar reached: whether the newest attempt reached it
    :ivar rows: of the stored partitions; ``None`` if unknown
    :ivar bytes: stored bytes of all partitions
    :ivar task_seconds_saved: task time that computing the reused partitions had taken
    :ivar task_seconds: task time that the computed partitions took
    :ivar storing_seconds: the part of it that went into encoding and storing them
    :ivar rule: ``shuffle`` for a shuffle that auto mode keeps; empty text for a ``checkpoint`` of the script
    :ivar because: why the newest attempt computed what an earlier one had stored under this name, one phrase each
    :ivar would_reuse: partitions that a retry would reuse now
    :ivar would_save: task time that this would save
    :ivar work: task time spent on it so far, if known, and how much of that a retry would keep
    :ivar released: its partitions were deleted while the job ran, because everything that reads it is committed
    """

    name: str
    fingerprint: str
    partitions: int
    reused: int
    computed: int
    missing: int
    reached: bool
    finished: bool
    rows: int | None
    bytes: int
    task_seconds: float
    task_seconds_saved: float
    storing_seconds: float = 0.0
    rule: str = ""
    because: list[str] = field(default_factory=list)
    would_reuse: int = 0
    would_save: float = 0.0
    released: bool = False
    work: Work = NO_WORK


@dataclass(frozen=True)
class AttemptReport:
    """One attempt; times are seconds since the Unix epoch, ``None`` for an end that was never recorded.

    The fields except ``state`` are those of :class:`airflow_provider.core.graph.Attempt`.

    :ivar unrecoverable: it failed in a way that a retry cannot fix
    :ivar restarts: how often something was restarted inside the application
    :ivar store_retries: requests to the event store that its driver had to repeat; 0 if the attempt never recorded its
        end
    """

    epoch: int
    state: str
    started_at: float
    ended_at: float | None
    application_id: str
    host: str
    fresh: bool
    reason: str
    error: str
    abandoned: bool = False
    unrecoverable: bool = False
    restarts: int = 0
    store_retries: int = 0


@dataclass(frozen=True)
class SkippedReport:
    """Something that the newest attempt did not keep, why, and how often."""

    name: str
    reason: str
    times: int = 1


@dataclass(frozen=True)
class JobReport:
    """The whole job; sums are over the vertices that the newest attempt reached.

    :ivar restarts: how often recovery was abandoned and the job started from scratch
    :ivar doubts: one sentence for each write whose rows may be there twice, or be missing
    :ivar going_on: one sentence for each write of the newest attempt that continued one of a killed attempt
    :ivar bytes_held: stored bytes of all partitions now, or when the newest attempt ended
    :ivar most_bytes_held: the highest value of ``bytes_held`` at any time
    :ivar overhead: what recovery cost the newest attempt, see :func:`airflow_provider.core.overhead.overhead_of`
    :ivar retry: what a retry would save now
    :ivar returned: ``{"value": …}``, the result of a task function in the newest attempt, if that succeeded
    """

    job: str
    state: str
    attempts: list[AttemptReport]
    vertices: list[VertexReport]
    skipped: list[SkippedReport]
    problems: list[str]
    partitions_reused: int
    partitions_computed: int
    bytes_reused: int
    task_seconds_saved: float
    restarts: int = 0
    retry: RetrySavings = field(default_factory=RetrySavings)
    returned: dict[str, Any] | None = None
    doubts: list[str] = field(default_factory=list)
    going_on: list[str] = field(default_factory=list)
    bytes_held: int = 0
    most_bytes_held: int = 0
    overhead: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dictionaries and lists, ready for JSON and XCom."""
        return asdict(self)


def build_report(job: str, graph: ExecutionGraph) -> JobReport:
    """Return the report of *job* from its replayed graph."""
    newest = graph.newest
    epoch = newest.epoch if newest else 0
    because = not_reusable(graph)
    work = work_so_far(graph, because)
    all_tallies = {identity: vertex.tally(epoch) for identity, vertex in graph.vertices.items()}
    vertices = [
        _vertex_report(
            vertex, epoch, all_tallies[identity], *reusable(identity, vertex, because), work.get(identity, NO_WORK)
        )
        for identity, vertex in graph.vertices.items()
    ]
    tallies = [all_tallies[identity] for identity, vertex in graph.vertices.items() if epoch in vertex.reached_by]
    return JobReport(
        job=job,
        state=str(newest.state) if newest else "NONE",
        attempts=[
            AttemptReport(
                **{item.name: getattr(attempt, item.name) for item in fields(AttemptReport) if item.name != "state"},
                state=str(attempt.state) if attempt.state.terminal or attempt is newest else LOST,
            )
            for _, attempt in sorted(graph.attempts.items())
        ],
        vertices=vertices,
        skipped=skipped(newest.skipped) if newest else [],
        problems=list(graph.problems),
        partitions_reused=sum(tally.reused for tally in tallies),
        partitions_computed=sum(vertex.computed for vertex in vertices),
        bytes_reused=sum(tally.bytes_reused for tally in tallies),
        task_seconds_saved=round(sum(tally.seconds_saved for tally in tallies), 3),
        restarts=sum(attempt.abandoned for attempt in graph.attempts.values()),
        retry=retry_savings(graph, because, work),
        returned=_returned(graph),
        doubts=doubts(graph.coordinators),
        going_on=writes_going_on(graph.coordinators, epoch),
        bytes_held=graph.held,
        most_bytes_held=graph.most_held,
        overhead=overhead_of(graph.coordinators, epoch),
    )


def skipped(events: Iterable[VertexSkipped]) -> list[SkippedReport]:
    """Return what was skipped, each name and reason once, in order of first appearance."""
    times = Counter((event.name, event.reason) for event in events)
    return [SkippedReport(name, reason, number) for (name, reason), number in times.items()]


def skipped_texts(skips: Iterable[SkippedReport]) -> list[str]:
    """Return one phrase for each reason why something was skipped."""
    names: dict[str, list[str]] = {}
    for skip in skips:
        times = f" ({skip.times:,} times)" if skip.times > 1 else ""
        names.setdefault(skip.reason, []).append(f"{skip.name}{times}")
    return [
        f"skipped {', '.join(named[:MOST_NAMES])}"
        f"{f' and {len(named) - MOST_NAMES:,} more' if len(named) > MOST_NAMES else ''}, because {reason}"
        for reason, named in names.items()
    ]


def _returned(graph: ExecutionGraph) -> dict[str, Any] | None:
    """Return a task function's result. The result of an attempt that failed afterwards, or was lost, does not count:
    the next one may return another.
    """
    kept, newest = graph.coordinators.get(RETURNED), graph.newest
    if kept is None or newest is None or (newest.state, newest.epoch) != (JobState.FINISHED, kept["attempt"]):
        return None
    return {"value": kept["value"]}


def _vertex_report(
    vertex: Vertex, epoch: int, tally: Tally, would_reuse: int, would_save: float, work: Work
) -> VertexReport:
    return VertexReport(
        name=vertex.initialized.name,
        fingerprint=vertex.initialized.fingerprint,
        partitions=vertex.initialized.parallelism,
        reused=tally.reused,
        computed=tally.computed,
        missing=0 if vertex.released else len(vertex.missing),
        reached=epoch in vertex.reached_by,
        finished=vertex.finished,
        rows=vertex.rows,
        bytes=vertex.bytes,
        task_seconds=tally.seconds,
        task_seconds_saved=tally.seconds_saved,
        storing_seconds=vertex.storing_seconds.get(epoch, 0.0),
        rule=vertex.initialized.rule,
        because=list(vertex.initialized.because) if vertex.initialized.epoch == epoch else [],
        would_reuse=would_reuse,
        would_save=round(would_save, 3),
        released=vertex.released,
        work=work,
    )


def _name_and_fate(vertex: VertexReport) -> str:
    return vertex.name + (" (released)" if vertex.released else "" if vertex.reached else " (not reached)")


def format_report(report: JobReport) -> str:
    """Return the report as a few lines of text with an aligned table."""
    columns: dict[str, Callable[[VertexReport], str]] = {
        "recovery point": _name_and_fate,
        "partitions": lambda vertex: f"{vertex.partitions:,}",
        "reused": lambda vertex: f"{vertex.reused:,}",
        "computed": lambda vertex: f"{vertex.computed:,}",
        "missing": lambda vertex: f"{vertex.missing:,}",
        "rows": lambda vertex: count_text(vertex.rows),
        "MiB": lambda vertex: f"{vertex.bytes / 2**20:,.1f}",
        "task s": lambda vertex: f"{vertex.task_seconds:,.1f}",
        "storing": lambda vertex: f"{vertex.storing_seconds:,.1f}",
        "task s saved": lambda vertex: f"{vertex.task_seconds_saved:,.1f}",
        **(
            {"retry keeps": lambda vertex: kept_text(vertex.work)}
            if report.retry.work
            else {"retry saves": lambda vertex: f"{vertex.would_save:,.1f}"}
        ),
    }
    rows = [[cell(vertex) for cell in columns.values()] for vertex in report.vertices]
    newest = report.attempts[-1].epoch if report.attempts else 0
    lines = [f"Job {report.job}: {report.state} in attempt {newest}"]
    for attempt in report.attempts:
        note = attempt.error or attempt.reason
        times = "once" if attempt.restarts == 1 else f"{attempt.restarts} times"
        again = f", restarted {times} inside the application" if attempt.restarts else ""
        lines.append(f"  attempt {attempt.epoch}: {attempt.state}{again}{f' ({note})' if note else ''}")
    if rows:
        lines += [f"  {line}" for line in aligned([[*columns], *rows])]
    lines += [
        f"  {vertex.name} computed again: {'; '.join(vertex.because)}" for vertex in report.vertices if vertex.because
    ]
    lines += [f"  {phrase}" for phrase in skipped_texts(report.skipped)]
    if report.restarts:
        lines.append(f"  starts from scratch because recovery had to be abandoned: {report.restarts}")
    lines += [f"  {sentence}" for sentence in report.going_on]
    lines += [f"  warning: {doubt}" for doubt in report.doubts]
    lines += [f"  note: {problem}" for problem in report.problems]
    if report.most_bytes_held:
        held, most = (f"{size / 2**20:,.1f} MiB" for size in (report.bytes_held, report.most_bytes_held))
        ended = report.state in (JobState.FINISHED, JobState.FAILED)
        lines.append(f"{'Held' if ended else 'Holds'} {held} {'at its end' if ended else 'now'}, {most} at the most.")
    if report.overhead:
        lines.append(overhead_text(report.overhead))
    lines.append(
        f"Reused {report.partitions_reused:,} partitions ({report.bytes_reused / 2**20:,.1f} MiB), "
        f"computed {report.partitions_computed:,}; saved {report.task_seconds_saved:,.1f} s of task time."
    )
    if report.state != JobState.FINISHED and (report.vertices or report.retry.work):
        lines += [f"  {other_text(other)}" for other in report.retry.others]
        lines.append(savings_text(report.retry, report.state))
    return "\n".join(lines)
