"""The recovery context of one driver: the runner sets it; nothing else does.

Without it ``checkpoint`` returns its DataFrame unchanged, so a script runs the same in a notebook or a test.
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
    """What auto mode does when something is restarted inside the application."""

    def failed(self, execution: Any) -> None:
        """A query of this thread has failed and is about to run again.

        :param execution: its ``QueryExecution``; ``None`` if it is not known
        """

    def give_up(self, vertices: Collection[str]) -> None:
        """Stop putting back these shuffles, which were kept until now."""

    def restoring(self) -> AbstractContextManager[None]:
        """Let the query that this thread runs inside start from what this attempt has kept so far, too."""


@dataclass
class RecoveryContext:
    """The state that all recovery in one driver shares.

    :ivar draws: random draws that the script left to Spark
    :ivar run_marks: values that mark the rows of this attempt
    :ivar names: fingerprints seen under the name of each step, in order
    :ivar called: vertex → its name in this attempt, for vertices that it has reached and those hidden by them
    :ivar done: vertex → its partitions, for vertices that this attempt has reached
    :ivar executions: the state and version of each vertex's execution
    :ivar purposes: what the queries of the script's threads are for
    :ivar cached: fingerprint of a frame that calls functions, and what it was cached for → how often the script has
        cached it; ``None`` once that is unknown
    :ivar given_out: vertices that a retry reads whatever is committed, because an action has returned rows of them
    :ivar rounds: of the thread that releases what is no longer needed
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
        """The version that the job's options give to all sources without one; empty if they give none."""
        return self.master.request.options.source_version

    def state_read(self, what: Collection[str]) -> str:
        """Return a token for the state of what functions read; Airflow's own retries have the same one.

        :param what: what they read, in words; logged once if an earlier attempt may have read another state
        """
        master = self.master
        with self.lock:
            new = [each for each in what if each not in self._read]
            self._read.update(new)
        first = min(master.graph.attempts)
        if new and first < master.epoch and not (master.request.by_hand or master.only_retried_since(first)):
            log.info(
                "Python functions read files or services by themselves (%s), which may have changed: this attempt may "
                "not be an automatic retry of the earlier ones. Everything made of them is computed again. If they do "
                "not change, set the option source_version, from the first attempt on.",
                ", ".join(new),
            )
        return master.moment

    @property
    def application(self) -> ApplicationState:
        """The state of the script's current Spark application."""
        return self._application.state()

    def commit_gate(self, spark: Any) -> CommitGate | None:
        """Return the gate before the commits of this application's file writes; ``None`` if there can be none."""
        gates = self.application.gates
        with self.lock:
            if not gates:
                gates.append(commit_gate(spark, self.master.owned_for))
            return gates[0]

    def notes(self) -> Stages:
        """Return the stages that record what DataFrames do not show, and each look at rows and each write."""
        return {**notes(lambda: self.application, self.draws, self.run_marks), **dict.fromkeys(_LOOKS, self._look)}

    def _look(self, call: Call, proceed: Proceed) -> Any:
        if call.kind is not Kind.SQL or not _is_query(call.argument(0, "sqlQuery")):
            self.application.looks += 1
        return proceed()

    def purpose(self, cached: int | None = None) -> str | None:
        """Return the purpose of this thread's queries, or of a cached frame. A cached frame has one of its own, because
        several outputs may read it, of which a retry leaves some out. ``None`` if the frame is unknown.

        :param cached: the number of the frame's plan
        """
        return self.purposes.own if cached is None else self.application.cached.get(cached)

    def unique_name(self, name: str, fingerprint: str) -> str:
        """Return *name*, or ``name#2`` and so on if this attempt has used it for something else."""
        with self.lock:
            seen = self.names.setdefault(name, [])
            if fingerprint not in seen:
                seen.append(fingerprint)
            position = seen.index(fingerprint)
        return numbered(name, position + 1)

    def identify(self, name: str, fingerprint: str) -> tuple[str, str]:
        """Return a vertex's name in this attempt, and its identity.

        Several vertices may share a name; a number tells them apart for people. The number is not part of the identity:
        a complete vertex hides those below it, so the next attempt may reach others first. A vertex of an earlier
        attempt keeps its number if possible.
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
        """Return the current incarnation of each vertex; this attempt must have reached them."""
        return {each: incarnation(stored.key for stored in self.done[each].values()) for each in tuple(vertices)}

    def hide(self, vertex: str) -> None:
        """Reserve the names of the vertices below a complete one, which this attempt does not visit."""
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
    """Return the name of the *position*-th of several things with the same name, counted from 1."""
    return name if position == 1 else f"{name}#{position}"


_active: RecoveryContext | None = None


def active() -> RecoveryContext | None:
    """Return this driver's context, if it has one."""
    return _active


def recording() -> RecoveryContext | None:
    """Return this driver's context, if it has one and recovery is enabled."""
    return _active if _active is not None and _active.master.request.options.enabled else None


def require_name(function: str, name: object) -> None:
    """Refuse an empty name.

    :raises ConfigurationError: it is no text, or an empty one
    """
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(f"{function}() got the name {name!r}.", remedy="Give it a name that is not empty.")


@contextmanager
def recovering(context: RecoveryContext) -> Iterator[None]:
    """Make *context* the active one inside the block."""
    global _active
    _active = context
    try:
        yield
    finally:
        _active = None
