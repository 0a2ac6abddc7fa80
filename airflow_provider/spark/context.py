"""The recovery context: set by the runner, absent everywhere else.

Without it ``checkpoint`` hands its DataFrame back unchanged, so that a script runs the same in a notebook or a test.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.executions import Executions
from airflow_provider.core.partitions import incarnation
from airflow_provider.core.rounds import Rounds
from airflow_provider.core.vertex_token import vertex_identity
from airflow_provider.spark.application import ApplicationState, CurrentApplication
from airflow_provider.spark.calls import WRITES, Call, Kind, Proceed
from airflow_provider.spark.identity.known import Draws, RunMarks
from airflow_provider.spark.identity.notes import notes
from airflow_provider.spark.jvm.commit_gate import CommitGate, commit_gate
from airflow_provider.spark.jvm.occurrences import Occurrences
from airflow_provider.spark.jvm.purposes import Purposes
from airflow_provider.storage.state_files import StateFiles

if TYPE_CHECKING:
    from airflow_provider.core.partitions import StoredPartition
    from airflow_provider.job.job_master import JobMaster
    from airflow_provider.spark.calls import Stages

log = logging.getLogger(__name__)


class KeptShuffles(Protocol):
    """What auto mode does where something is restarted inside the application."""

    def failed(self, execution: Any) -> None:
        """A query of this thread has failed, and is about to run again.

        :param execution: its ``QueryExecution``; ``None`` if it is not known
        """

    def give_up(self, vertices: Collection[str]) -> None:
        """Put none of these shuffles back any more that were kept until now."""

    def restoring(self) -> AbstractContextManager[None]:
        """Let the query that this thread runs inside begin with what this attempt has kept until now, too."""


@dataclass
class RecoveryContext:
    """What the checkpoints of one driver share.

    :ivar draws: draws that the script left to Spark
    :ivar run_marks: values that mark the rows of this attempt
    :ivar names: fingerprints seen under the name of each step, in order
    :ivar called: vertex → how this attempt calls it, for what it has come to and for what is hidden by that
    :ivar done: vertex → its partitions, for vertices that this attempt has already come to
    :ivar executions: the state and version of each vertex's execution
    :ivar purposes: what the queries of the script's threads are for
    :ivar cached: fingerprint of a frame that calls functions, and what it was cached for → how often the script has
        cached it; ``None`` if that is not known any more
    :ivar given_out: vertices that a retry reads whatever is committed, because an action has given rows of them
    :ivar rounds: of the thread that lets go what is needed no more
    :ivar failing_over: held by the thread that handles a failure
    :ivar shuffles: what auto mode keeps; ``None`` without it
    :ivar hadoop_root: the event store's root as Hadoop's file systems write it
    """

    master: JobMaster
    hadoop_root: str
    draws: Draws = field(default_factory=Draws)
    run_marks: RunMarks = field(default_factory=RunMarks)
    names: dict[str, list[str]] = field(default_factory=dict)
    called: dict[str, str] = field(default_factory=dict)
    done: dict[str, dict[int, StoredPartition]] = field(default_factory=dict)
    executions: Executions = field(default_factory=Executions)
    purposes: Purposes = field(default_factory=Purposes)
    cached: Counter[tuple[str, str]] | None = field(default_factory=Counter)
    given_out: set[str] = field(default_factory=set)
    rounds: Rounds = field(default_factory=Rounds)
    failing_over: Any = field(default_factory=threading.RLock)
    shuffles: KeptShuffles | None = None
    lock: Any = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._application = CurrentApplication()
        self._read = set[str]()
        self.occurrences = Occurrences(self.purposes)
        self.state_files = StateFiles(self.master.store, self.master.prefix)

    @property
    def source_version(self) -> str:
        """The version that the job's options give for all sources that tell none; empty text if they give none."""
        return self.master.request.options.source_version

    def state_read(self, what: Collection[str]) -> str:
        """Return the word that automatic retries of each other have in common, for the state of what functions read.

        :param what: they read; for people, who are told once if an earlier attempt may have read another state
        """
        master = self.master
        with self.lock:
            new = [each for each in what if each not in self._read]
            self._read.update(new)
        first = min(master.graph.attempts)
        if new and first < master.epoch and not (master.request.by_hand or master.only_retried_since(first)):
            log.info(
                "Python functions read something by themselves (%s). This attempt is not certain to be Airflow's own "
                "retry of those before it, so that may have changed: what they made of it is computed again. If it "
                "stays the same, say so by the option source_version, from the first attempt on.",
                ", ".join(new),
            )
        return master.moment

    @property
    def application(self) -> ApplicationState:
        """What is known of the Spark application that the script has now."""
        return self._application.state()

    def commit_gate(self, spark: Any) -> CommitGate | None:
        """Return the gate before the commits of this application's file writes; ``None`` if there can be none."""
        gates = self.application.gates
        with self.lock:
            if not gates:
                gates.append(commit_gate(spark, self.master.owned_for))
            return gates[0]

    def notes(self) -> Stages:
        """Note what the script's DataFrames do not tell, and that the script looks at rows, or writes some."""
        return {**notes(lambda: self.application, self.draws, self.run_marks), **dict.fromkeys(_LOOKS, self._look)}

    def _look(self, call: Call, proceed: Proceed) -> Any:
        if call.kind is not Kind.SQL or not _is_query(call.argument(0, "sqlQuery")):
            self.application.looks += 1
        return proceed()

    def purpose(self, cached: int | None = None) -> str | None:
        """Return what a query of this thread is for, or what stands for a cached frame: it may be read for several
        outputs, of which a retry leaves some out. ``None`` if nobody knows the frame.

        :param cached: the number of its plan
        """
        return self.purposes.own if cached is None else self.application.cached.get(cached)

    def unique_name(self, name: str, fingerprint: str) -> str:
        """Return *name*, or ``name#2`` and so on where it was already used for something else in this attempt."""
        with self.lock:
            seen = self.names.setdefault(name, [])
            if fingerprint not in seen:
                seen.append(fingerprint)
            position = seen.index(fingerprint)
        return numbered(name, position + 1)

    def identify(self, name: str, fingerprint: str) -> tuple[str, str]:
        """Return what the vertex of a name and a fingerprint is called in this attempt, and its identity.

        Several that differ may have one name; people tell them apart by a number. It is no part of the identity: what
        is complete hides what is below it, so the next attempt may come to others first. A vertex that an earlier
        attempt has left keeps its number if it can.
        """
        vertex = vertex_identity(name, fingerprint)
        known = self.master.vertex(vertex)
        with self.lock:
            if vertex not in self.called:
                taken = set(self.called.values())
                wanted = known.initialized.name if known is not None else name
                free = (numbered(name, position) for position in itertools.count(1))
                self.called[vertex] = next(each for each in itertools.chain([wanted], free) if each not in taken)
            return self.called[vertex], vertex

    def incarnations(self, vertices: Collection[str]) -> dict[str, str]:
        """Return what each of some vertices is made of now that this attempt has come to."""
        return {each: incarnation(stored.key for stored in self.done[each].values()) for each in tuple(vertices)}

    def hide(self, vertex: str) -> None:
        """Take the names of what a complete vertex was made of, which this attempt does not look at."""
        pending = [vertex]
        while pending:
            known = self.master.vertex(pending.pop())
            for upstream in known.initialized.upstream if known is not None else ():
                hidden = self.master.vertex(upstream)
                if hidden is not None and upstream not in self.called:
                    self.called[upstream] = hidden.initialized.name
                    pending.append(upstream)


_LOOKS = {*WRITES, Kind.QUERY, Kind.COUNT, Kind.TO_RDD, Kind.CACHE, Kind.SQL}


def _is_query(text: object) -> bool:
    return isinstance(text, str) and text.lstrip().lower().startswith("select")


def numbered(name: str, position: int) -> str:
    """Return how the *position*-th of several like-named things is called, counted from 1."""
    return name if position == 1 else f"{name}#{position}"


_active: RecoveryContext | None = None


def active() -> RecoveryContext | None:
    """Return the context of this driver, if it has one."""
    return _active


def recording() -> RecoveryContext | None:
    """Return the context of this driver, if it has one and recovery is enabled."""
    return _active if _active is not None and _active.master.request.options.enabled else None


def require_name(function: str, name: object) -> None:
    """Refuse a name that names nothing.

    :raises ConfigurationError: it is no text, or an empty one
    """
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(f"{function}() got the name {name!r}.", remedy="Give it a name that is not empty.")


@contextmanager
def recovering(context: RecoveryContext) -> Iterator[None]:
    """Let the checkpoints inside use *context*."""
    global _active
    _active = context
    try:
        yield
    finally:
        _active = None
