"""Decide what the next try does about the last attempt: attach, resume, succeed at once, or start afresh. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from airflow_provider.core.graph import JobState


@dataclass(frozen=True)
class LastAttempt:
    """The newest attempt as it is known before a new one starts.

    :ivar state: its last recorded state; :attr:`JobState.CREATED` if it claimed the job but recorded nothing
    :ivar alive: whether its heartbeat changed while it was watched; meaningless if the state is terminal
    :ivar acknowledged: number of the Airflow try that acknowledged its success, 0 if unknown; ``None`` if none did
    :ivar discarded: why nothing of it may be reused, if it was discarded; empty text otherwise
    :ivar another_run: it belongs to another DAG run of the same name, so nothing of it counts
    :ivar cancelled: the job's driver was cancelled; the epoch is that of the cancellation
    :ivar series: shared with its automatic retries; empty text if unknown
    """

    epoch: int
    state: JobState
    alive: bool = False
    acknowledged: int | None = None
    discarded: str = ""
    cancelled: bool = False
    another_run: bool = False
    series: str = ""


@dataclass(frozen=True)
class Attach:
    """A driver is running: follow it and take over its result."""

    epoch: int


@dataclass(frozen=True)
class Succeed:
    """The job succeeded, and nobody has asked for it again: acknowledge it, run nothing."""

    epoch: int


@dataclass(frozen=True)
class Resume:
    """Start a driver that continues from what attempt ``epoch`` left."""

    epoch: int
    reason: str


@dataclass(frozen=True)
class StartAfresh:
    """Start a driver that reuses nothing."""

    reason: str


Decision: TypeAlias = Attach | Succeed | Resume | StartAfresh


def only_retried(since: str, series: str | None) -> bool:
    """Whether a try is certainly an automatic retry of an attempt, so that nobody asked for new data in between.

    :param since: the attempt's series
    :param series: the try's series; empty text if unknown; ``None`` for a person who resumes by hand
    """
    return series is None or since == series != ""


def decide(last: LastAttempt | None, resume: str, series: str | None = None, try_number: int = 0) -> Decision:
    """Return what to do (DESIGN, "Attach or take over").

    A living driver is followed even with ``resume="never"``: two drivers of one job must never run, and recovery does
    not end a user's application unasked.

    An unacknowledged success was computed from the inputs of that time. A person who has cleared the task since may
    have changed them.

    An acknowledged one means that the task is green, and was cleared. But the acknowledging try may have failed
    afterwards, for example because the value could not go to XCom: then Airflow retries it, in the same series.

    :param last: the newest attempt, ``None`` if there was none
    :param resume: the option of that name
    :param series: see :func:`only_retried`
    :param try_number: of the Airflow try; 0 without Airflow
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
        retried = only_retried(last.series, series)
        if last.acknowledged is not None and not (retried and 0 < last.acknowledged < try_number):
            return StartAfresh(f"attempt {last.epoch} succeeded and its task was cleared")
        if retried:
            return Succeed(last.epoch)
        known = "its task was cleared" if last.series and series else "its task may have been cleared"
        return Resume(last.epoch, f"attempt {last.epoch} succeeded unseen, and {known} since")
    if last.state is JobState.FAILED:
        return Resume(last.epoch, f"attempt {last.epoch} failed")
    if last.cancelled:
        return Resume(last.epoch, f"attempt {last.epoch - 1} was ended when its task was marked or cleared")
    return Resume(last.epoch, f"attempt {last.epoch} was lost: its heartbeat has stopped")
