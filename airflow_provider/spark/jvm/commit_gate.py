"""Gate Spark's file writes: a write starts once its name is stored, and commits only while this attempt owns the job.

Spark draws a UUID for each write, names its files after it, and passes it to the write's commit protocol before
anything is written. The class ``CommitGate`` wraps that protocol, whichever it is, in the driver's JVM and asks twice:
before the write starts, so that its name can be stored, and before it commits. So whatever a killed driver leaves of
the write can always be told apart from what others have written. Executors get Spark's own protocol, and no setting
changes.

Tasks whose committer moves files into place at once may do so only while the lease lasts: they ask the driver's JVM,
where ``LeasedCommits`` wraps Spark's coordinator.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_provider.core.causes import one_line
from airflow_provider.spark.jvm.compiled import named_class
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.scala import sequence_type

log = logging.getLogger(__name__)

_BEGIN, _COMMIT, _ABORT, _LEASE = "begin", "commit", "abort", "lease"
_RESUME, _ANEW = "resume", "anew"
_NANO = 1e-9


class WriteSteps(Protocol):
    """Callbacks before each step of a write, in another thread. If one raises, the write fails."""

    def begins(self, name: str, execution: int | None) -> str:
        """Return the name of an earlier attempt's write that this one continues; empty if it starts anew.

        :param name: Spark's name of this write, which has left nothing yet
        :param execution: the number of the execution whose plan it is; ``None`` if that is not certain
        """

    def resumes(self, execution: int, *, pending: bool) -> object:
        """Called when a continued write is set up, before its tasks run.

        :param pending: whether its tasks' files stay in folders of their own until the job commits
        """

    def commits(self) -> object:
        """Called before all of it is moved into place."""

    def aborts(self) -> object:
        """Called before a failed write removes everything pending in the folder, whoever wrote it."""


@dataclass(frozen=True)
class _New:
    """The steps of a write that continues no earlier one."""

    began: Callable[[str], object]
    commits: Callable[[], object]

    def begins(self, name: str, execution: int | None) -> str:
        self.began(name)
        return ""

    def resumes(self, execution: int, *, pending: bool) -> None:
        """Never called."""

    def aborts(self) -> None:
        self.commits()


@dataclass
class Watched:
    """The progress of one write.

    :ivar commits: whether it has asked to commit, so that part of it may be in place
    """

    commits: bool = False


class CommitGate:
    """The gate of one application. It is open for all writes that are not watched."""

    def __init__(self, spark: Any, owned_for: Callable[[], float]) -> None:
        """Install the gate.

        :param owned_for: returns how many seconds the lease still lasts
        :raises Exception: this version of Spark has no place for it
        """
        self._context = spark._jsc.sc()
        self._thread = threading.local()
        self._owned_for = owned_for
        self._lease = named_class(spark, "LeasedCommits", ARGUMENTS=_arguments(spark))
        if not self._lease.open(self._context):
            raise LookupError("Spark has no coordinator of commits where it is expected")
        self._java = named_class(spark, "CommitGate", SEQ=sequence_type(spark))
        if not self._java.open():
            raise LookupError("Spark does not read the setting of the commit protocol as expected")

    @property
    def watches(self) -> bool:
        """Whether this thread runs a watched write."""
        return bool(getattr(self._thread, "watched", 0))

    def watching(
        self, location: str, began: Callable[[str], object], commits: Callable[[], object]
    ) -> AbstractContextManager[Watched]:
        """Watch a write as :meth:`following` does.

        :param began: gets Spark's name of the write, before the write leaves anything
        :param commits: called before it commits, or before it cleans up after a failure
        """
        return self.following(location, _New(began, commits))

    @contextmanager
    def following(self, location: str, steps: WriteSteps) -> Iterator[Watched]:
        """Watch the write to a folder that this thread makes inside, or all of its writes if *location* is empty.

        Another thread runs the steps. If one raises, the write fails with that error, which is also raised here.
        """
        watched, failures = Watched(), list[BaseException]()
        write = self._java.serve(location, self._context)

        def answer() -> None:
            try:
                while question := str(write.next()):
                    step, *about = question.split(" ")
                    if step == _LEASE:
                        self._tell_lease()
                        continue
                    watched.commits |= step == _COMMIT
                    try:
                        _take(steps, step, write, *about)
                    except BaseException as error:  # noqa: BLE001 - raised by the thread that writes
                        if step != _ABORT:  # the write has failed already
                            failures.append(error)
                        write.refuse(one_line(error))
                        return
                    if step == _BEGIN:  # its tasks may ask at once
                        self._tell_lease()
                    write.allow(question)
            except Exception as error:  # noqa: BLE001 - the JVM has gone, or this thread's connection to it
                with suppress(Exception):
                    write.refuse(one_line(error))

        thread = threading.Thread(target=answer, name="commit-gate", daemon=True)
        thread.start()
        self._thread.watched = getattr(self._thread, "watched", 0) + 1
        try:
            yield watched
        except Exception as error:
            if failures:
                raise failures[0] from error
            raise
        finally:
            self._thread.watched -= 1
            with suppress(Exception):  # the JVM has gone
                self._java.end(write)
            thread.join()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Inside the block, let all tasks commit only while the lease lasts: for writes that nothing else watches."""
        self._tell_lease()
        self._lease.count(1)
        try:
            with self.watching("", lambda _: None, lambda: None):
                yield
        finally:
            with suppress(Exception):  # the JVM has gone
                self._lease.count(-1)

    def _tell_lease(self) -> None:
        """Tell the JVM how long the lease lasts, on the JVM's own clock; a delay in between shortens it."""
        moment = int(self._lease.now())
        self._lease.lasts(moment + int(self._owned_for() / _NANO))


def _take(steps: WriteSteps, step: str, write: Any, name: str, execution: str) -> None:
    """Run one step of a write.

    :param write: the JVM's object for it
    :param execution: the number of its execution; empty if that is not certain
    """
    if step == _BEGIN:
        write.goOnAs(steps.begins(name, int(execution) if execution else None))
    elif step in (_RESUME, _ANEW):
        steps.resumes(int(execution), pending=step == _RESUME)
    elif step == _COMMIT:
        steps.commits()
    else:
        steps.aborts()


def _arguments(spark: Any) -> str:
    """Return what the constructor of Spark's coordinator of commits gets; 3.5.0 and 3.5.1 pass a ``SparkContext``."""
    coordinator = jvm_of(spark).java.lang.Class.forName("org.apache.spark.scheduler.OutputCommitCoordinator")
    (constructor,) = coordinator.getConstructors()
    return "conf, true, scala.Option.empty()" if constructor.getParameterCount() == 3 else "conf, true"


def commit_gate(spark: Any, owned_for: Callable[[], float]) -> CommitGate | None:
    """Return the gate of an application; ``None``, with a line in the log, if there can be none."""
    from py4j.clientserver import ClientServer

    if not isinstance(spark.sparkContext._gateway, ClientServer):
        log.info("Commits of files are not watched: threads of Python and of Java do not go in pairs here.")
        return None
    try:
        return CommitGate(spark, owned_for)
    except Exception as error:  # noqa: BLE001 - files are written as without it
        log.info("Commits of files are not watched: %s", one_line(error))
        return None
