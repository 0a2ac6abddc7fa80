"""What the next try does about the last one: attach, resume, succeed at once, or start afresh. A pure decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from airflow_provider.core.graph import JobState


@dataclass(frozen=True)
class LastAttempt:
    """What is known of the newest attempt before a new one is started.

    :ivar state: its last recorded state; :attr:`JobState.CREATED` if it claimed the job and recorded nothing
    :ivar alive: whether its heartbeat moved while it was watched; meaningless once the state is terminal
    :ivar acknowledged: whether somebody took notice of its success
    :ivar discarded: why nothing of it may be reused, if somebody has decided so; empty text otherwise
    :ivar another_run: it was made for another DAG run of the same name, which lets nothing of it be believed
    :ivar cancelled: somebody has ended the job's driver; the epoch is that of the cancellation
    :ivar series: the word that it shares with its automatic retries; empty text if that is not known
    """

    epoch: int
    state: JobState
    alive: bool = False
    acknowledged: bool = False
    discarded: str = ""
    cancelled: bool = False
    another_run: bool = False
    series: str = ""


@dataclass(frozen=True)
class Attach:
    """A driver is at work: follow it and take over its result."""

    epoch: int


@dataclass(frozen=True)
class Succeed:
    """The job ended well, but nobody took notice: take notice now, run nothing."""

    epoch: int


@dataclass(frozen=True)
class Resume:
    """Start a driver that goes on from what attempt ``epoch`` left."""

    epoch: int
    reason: str


@dataclass(frozen=True)
class StartAfresh:
    """Start a driver that reuses nothing."""

    reason: str


Decision: TypeAlias = Attach | Succeed | Resume | StartAfresh


def only_retried(since: str, series: str | None) -> bool:
    """Whether a try certainly is an automatic retry of an attempt, so that nobody has asked for new data in between.

    :param since: the attempt's series
    :param series: the try's, empty text if that is not known; ``None`` if it is somebody's who only goes on by hand
    """
    return series is None or since == series != ""


def decide(last: LastAttempt | None, resume: str, series: str | None = None) -> Decision:
    """Return what to do (DESIGN, "Attach or take over").

    A living driver is attached to even with ``resume="never"``: two drivers of one job must never run, and ending
    somebody's application is not ours to do unasked.

    A success that nobody saw is one of the inputs as they were. Who has cleared the task since may have changed them.

    :param last: the newest attempt, ``None`` if there was none
    :param resume: the option of that name
    :param series: see :func:`only_retried`
    """
    if last is None:
        return StartAfresh("first attempt")
    if not last.state.terminal and last.alive:
        return Attach(last.epoch)
    if last.another_run:
        return StartAfresh(f"attempt {last.epoch} was made for another DAG run of the same name")
    if resume == "never":
        return StartAfresh("resume is set to 'never'")
    if last.discarded:
        return StartAfresh(last.discarded)
    if last.state is JobState.FINISHED:
        if last.acknowledged:
            return StartAfresh(f"attempt {last.epoch} succeeded and its task was cleared")
        if only_retried(last.series, series):
            return Succeed(last.epoch)
        known = "its task was cleared" if last.series and series else "its task may have been cleared"
        return Resume(last.epoch, f"attempt {last.epoch} succeeded unseen, and {known} since")
    if last.state is JobState.FAILED:
        return Resume(last.epoch, f"attempt {last.epoch} failed")
    if last.cancelled:
        return Resume(last.epoch, f"attempt {last.epoch - 1} was ended when its task was marked or cleared")
    return Resume(last.epoch, f"attempt {last.epoch} was lost: its heartbeat has stopped")
