"""Compute what a retry would reuse now, and which share of the work so far it would keep. Pure.

A stored partition saves the task time that it took, even if a fully stored recovery point above it hides it, because
its tasks do not run then either. The point that hides it saves more: the time of tasks whose outputs were never stored.
So does a committed output. The share of the work includes that, if the driver has recorded its tasks' times
(:mod:`airflow_provider.core.task_time`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from airflow_provider.core.classify import Need, classify
from airflow_provider.core.events import CACHED, CHECKPOINT, SHUFFLE, STEP
from airflow_provider.core.graph import ExecutionGraph, JobState, Vertex
from airflow_provider.core.quantities import seconds_text
from airflow_provider.core.task_time import AGAIN, ANY, TaskTime, Use, recorded, together
from airflow_provider.core.unfinished_write import is_written

SUPERSEDED = "another recovery point of its name has taken its place"
RELEASED = "all that reads it is committed"
NOT_WHOLE = "it is not deterministic, and not all of it is stored"
_MOST_OTHERS = 20
_EACH_ATTEMPT = "what each attempt runs again, or nothing has read yet"


@dataclass(frozen=True)
class Work:
    """Work so far, in seconds of task time.

    :ivar spent: by all attempts, without work that attempts before the newest one lost
    :ivar kept: the part that a retry would not spend again
    """

    spent: float = 0.0
    kept: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(round(self.spent + other.spent, 3), round(self.kept + other.kept, 3))


NO_WORK = Work()


@dataclass(frozen=True)
class OtherWork(Work):
    """Work that is not for a recovery point.

    :ivar title: an output, a step, or a name for the rest
    """

    title: str = ""


@dataclass(frozen=True)
class RetrySavings:
    """What a retry would reuse now, over all recovery points that are neither superseded nor released.

    :ivar partitions: number of partitions, stored or not
    :ivar map_outputs: number of these that are map outputs of shuffles
    :ivar reusable: number that a retry would reuse
    :ivar bytes: their stored bytes
    :ivar task_seconds: their task time
    :ivar nothing_because: why a retry reuses nothing, whatever is stored; empty text if it can reuse something
    :ivar work: all work so far; ``None`` if unknown
    :ivar others: the work for other things, the largest first
    """

    partitions: int = 0
    map_outputs: int = 0
    reusable: int = 0
    bytes: int = 0
    task_seconds: float = 0.0
    nothing_because: str = ""
    work: Work | None = None
    others: list[OtherWork] = field(default_factory=list)


def not_reusable(graph: ExecutionGraph, discarded: str = "") -> Mapping[str, str]:
    """Return, for each vertex that a retry would not reuse whatever is stored, the reason.

    :param discarded: why a retry reuses nothing of the job, if it was discarded; the events do not say so
    """
    found = {}
    afresh = _afresh(graph, discarded)
    for identity, need in classify(graph).items():
        told = graph.vertices[identity].initialized
        if need is Need.RELEASE:
            found[identity] = SUPERSEDED
        elif graph.vertices[identity].released:
            found[identity] = RELEASED
        elif afresh:
            found[identity] = afresh
        elif not told.deterministic and not graph.vertices[identity].finished:
            found[identity] = NOT_WHOLE
    return found


def reusable(identity: str, vertex: Vertex, because: Mapping[str, str]) -> tuple[int, float]:
    """Return how many partitions of a vertex a retry would reuse, and their task time.

    :param because: the result of :func:`not_reusable` for the graph
    """
    if identity in because:
        return 0, 0.0
    return len(vertex.partitions), sum(partition.duration for partition in vertex.partitions.values())


def work_so_far(graph: ExecutionGraph, because: Mapping[str, str], discarded: str = "") -> dict[str, Work]:
    """Return the work so far by purpose: vertices, outputs and steps by their coordinators, and
    :data:`~airflow_provider.core.task_time.ANY` for the rest. Empty if the newest attempt has not recorded its times.
    :data:`~airflow_provider.core.task_time.ANY` for the rest. Empty if the newest attempt has not said what it spent.

    Work counts as kept if its result is stored, or if only stored, committed or kept results need it.

    The parameters are those of :func:`not_reusable` and its result.
    """
    attempt, used = recorded(graph.coordinators)
    if used is None or graph.newest is None or attempt != graph.newest.epoch:
        return {}
    work: dict[str, Work] = defaultdict(Work)
    for use, done in _work(graph, used, because, discarded).items():
        work[_name(use)] += done
    return dict(work)


def taken_over(graph: ExecutionGraph) -> TaskTime | None:
    """Return the recorded task time of earlier attempts that the newest one keeps as it begins; ``None`` if the last of
    them did not know it.
    """
    attempt, used = recorded(graph.coordinators)
    if used is None:
        return None if attempt else {}
    work = _work(graph, used, not_reusable(graph))
    return {use: done.kept for use, done in work.items() if done.kept}


def _work(graph: ExecutionGraph, used: TaskTime, because: Mapping[str, str], discarded: str = "") -> dict[Use, Work]:
    """Return the work by use, without work for superseded recovery points."""
    stored = {
        name: sum(each.duration for each in vertex.partitions.values()) for name, vertex in graph.vertices.items()
    }
    # Stored partitions are recorded at once, spent time only from time to time.
    took = together([*used.items(), *((Use(name), 0.0) for name in stored)])
    spent = {
        use: max(seconds, stored.get(use.computes, 0.0))
        for use, seconds in took.items()
        if not _superseded(use, because)
    }
    whole = set[str]() if _afresh(graph, discarded) else _whole(graph, spent, because)
    work = {
        use: Work(seconds, seconds)
        if use.computes in whole or _only_for(use, whole)
        else Work(seconds, 0.0 if use.computes in because else stored.get(use.computes, 0.0))
        for use, seconds in spent.items()
    }
    for use in [use for use in work if _fills(graph, use)]:
        _take_from_others(work, use, spent[use] - took[use])
    return work


def _fills(graph: ExecutionGraph, use: Use) -> bool:
    """Whether it is what has filled a cached DataFrame."""
    vertex = graph.vertices.get(use.computes)
    return vertex is not None and vertex.initialized.rule == SHUFFLE and vertex.initialized.name.startswith(CACHED)


def _take_from_others(work: dict[Use, Work], filling: Use, seconds: float) -> None:
    """Count the time in which a cached DataFrame was filled once: it is a part of what the tasks that read it took.

    :param seconds: of this attempt
    """
    own, left = work[filling], seconds
    for use, done in sorted(work.items(), key=lambda pair: pair[1].kept - pair[1].spent):
        if use != filling and left > 0:
            taken = min(left, done.spent - done.kept)
            work[use] = Work(done.spent - taken, done.kept)
            left -= taken
    work[filling] = Work(own.spent - left, max(0.0, own.kept - left))


def _whole(graph: ExecutionGraph, uses: Iterable[Use], because: Mapping[str, str]) -> set[str]:
    """Return what would not run again: it is stored, released, committed or kept, or only such results need it."""
    whole = {
        name for name, vertex in graph.vertices.items() if vertex.released or (vertex.complete and name not in because)
    }
    whole |= {
        name
        for name, state in graph.coordinators.items()
        if is_written(state) or (name.startswith((STEP, CHECKPOINT)) and AGAIN not in state)
    }
    computing, before = [use for use in uses if use.computes], -1
    while before < len(whole):
        before = len(whole)
        whole.update(use.computes for use in computing if _only_for(use, whole))
    return whole


def _only_for(use: Use, names: set[str]) -> bool:
    return bool(use.needed_by) and names.issuperset(use.needed_by)


def _superseded(use: Use, because: Mapping[str, str]) -> bool:
    names = [use.computes] if use.computes else use.needed_by
    return bool(names) and all(because.get(name) == SUPERSEDED for name in names)


def _name(use: Use) -> str:
    """Return the name under which a use is shown: work that several need belongs to none of them."""
    return use.computes or (use.needed_by[0] if len(use.needed_by) == 1 else ANY)


def retry_savings(
    graph: ExecutionGraph, because: Mapping[str, str], work: Mapping[str, Work], discarded: str = ""
) -> RetrySavings:
    """Return what a retry of the job would reuse now; the parameters are as in the functions above."""
    partitions = map_outputs = found = size = 0
    seconds = 0.0
    for identity, vertex in graph.vertices.items():
        if because.get(identity) in (SUPERSEDED, RELEASED):
            continue
        partitions += vertex.initialized.parallelism
        map_outputs += vertex.initialized.parallelism if vertex.initialized.rule == SHUFFLE else 0
        own, saved = reusable(identity, vertex, because)
        found, seconds = found + own, seconds + saved
        size += vertex.bytes if own else 0
    all_of_it = sum(work.values(), NO_WORK)
    return RetrySavings(
        partitions=partitions,
        map_outputs=map_outputs,
        reusable=found,
        bytes=size,
        task_seconds=round(seconds, 3),
        nothing_because=_afresh(graph, discarded),
        work=all_of_it if all_of_it.spent else None,
        others=_others(graph, work),
    )


def _others(graph: ExecutionGraph, work: Mapping[str, Work]) -> list[OtherWork]:
    titles = {name: _title(graph, name) for name in work if name not in graph.vertices}
    found = [OtherWork(work[name].spent, work[name].kept, title) for name, title in titles.items()]
    return sorted(found, key=lambda each: -each.spent)[:_MOST_OTHERS]


def _title(graph: ExecutionGraph, name: str) -> str:
    if name == ANY:
        return _EACH_ATTEMPT
    state = graph.coordinators.get(name)
    title = state.get("title") if isinstance(state, dict) else None
    return f"output {title}" if title else name


def savings_text(savings: RetrySavings, state: str) -> str:
    """Return one sentence about what a retry would save now.

    :param state: the state of the newest attempt
    """
    unit = noun(savings.map_outputs, savings.partitions)
    about = f"{savings.reusable:,} of {savings.partitions:,} {unit}"
    if state == JobState.FINISHED:
        stored = f"{about} were stored" if savings.partitions else "nothing was kept"
        return f"The job has finished, so there is nothing to retry; when it ended, {stored}."
    if savings.nothing_because:
        return f"A retry would reuse nothing, because {savings.nothing_because}."
    if savings.work is not None:
        stored = f"; {about} are stored" if savings.partitions else ""
        return f"A retry now would keep {share_text(savings.work)}{stored}."
    if not savings.partitions:
        return "Nothing is kept: a retry would run the whole job."
    if not savings.reusable:
        return f"A retry would reuse none of {savings.partitions:,} {unit} and save nothing."
    saved = seconds_text(savings.task_seconds)
    return f"A retry would reuse {about} and save about {saved} of task time."


def kept_text(work: Work) -> str:
    """Return the kept part of some work as a table cell: ``12 s of 40 s``."""
    return f"{seconds_text(work.kept)} of {seconds_text(work.spent)}"


def other_text(other: OtherWork) -> str:
    """Return the work as one line."""
    return f"{other.title}: {kept_text(other)} of task time kept"


def share_text(work: Work) -> str:
    """Return the share of work as a phrase: ``87 % of the work so far: 5 h 12 min of 6 h 00 min of task time``."""
    return f"{percent(work)} % of the work so far: {kept_text(work)} of task time"


def percent(work: Work) -> int:
    """Return the kept percentage, rounded down, so that only work kept in full has 100."""
    return int(100 * work.kept / work.spent) if work.spent else 0


def noun(map_outputs: int, partitions: int) -> str:
    """Return the noun for this number of partitions, some of which are map outputs of shuffles."""
    if map_outputs == 0:
        return "partition" if partitions == 1 else "partitions"
    if map_outputs == partitions:
        return "map output" if partitions == 1 else "map outputs"
    return "map outputs and partitions"


def _afresh(graph: ExecutionGraph, discarded: str) -> str:
    if discarded:
        return discarded
    return graph.must_start_afresh(graph.newest.epoch + 1) if graph.newest is not None else ""
