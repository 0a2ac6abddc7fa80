"""The worker's view of a job: judge the last attempt, follow a living driver, acknowledge the end."""

from __future__ import annotations

import contextlib
import enum
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from airflow_provider.airflow.job_watch import PATIENCE
from airflow_provider.airflow.progress import Progress
from airflow_provider.core.errors import JobAlreadyRunning, StoreError
from airflow_provider.core.graph import ExecutionGraph, JobState
from airflow_provider.core.job import JobId, is_another_run
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.core.report import JobReport, build_report
from airflow_provider.core.takeover import LastAttempt
from airflow_provider.storage.cancelling import cancel
from airflow_provider.storage.claims import Claim, Claims
from airflow_provider.storage.discarding import take_notice
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.inspection import look_at_last
from airflow_provider.storage.liveness import Life, Liveness, wait_for_end
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.partition_store import PartitionStore

_POLL = 2.0
"""Seconds between two looks at a job that is followed."""
_LAST_LOOK = 30.0
"""Most seconds to wait for the last progress of a job that has ended."""


class Ending(enum.Enum):
    """How a followed driver ended."""

    FINISHED = "finished"
    FAILED = "failed"
    LOST = "lost"


class JobSupervisor:
    """Supervises one job from Airflow's side; never starts anything.

    :param log: the task's log
    :ivar run: distinguishes the DAG run from others of the same name; empty text if unknown
    :ivar try_number: of the task's try
    """

    def __init__(
        self,
        store: ObjectStore,
        job: JobId,
        options: RecoveryOptions,
        log: logging.Logger,
        run: str = "",
        try_number: int = 0,
    ) -> None:
        self._store = store
        self._job = job
        self._prefix = job.prefix
        self._options = options
        self._log = log
        self.run = run
        self.try_number = try_number
        self._claims = Claims(store, self._prefix)
        self._events = JobEventLog(store, self._prefix)
        self._told: set[str] = set()
        self._progress: Progress | None = None
        self.last_beat = -1
        """Number of the last heartbeat of the attempt that was found lost; -1 if none was."""

    @property
    def job(self) -> str:
        """The job's id, as text."""
        return str(self._job)

    def last_attempt(self, lost: int = 0) -> LastAttempt | None:
        """Return the state of the newest attempt; ``None`` if there is none. Watches its heartbeat if it recorded no
        end.

        :param lost: newest epoch known to be lost, which is not watched again
        :raises JobOfAnotherDeployment: the job belongs to another deployment
        :raises JobAlreadyRunning: a driver of another DAG run of the same name is running
        :raises StoreError: the store cannot be read
        """
        claim = self._claims.newest()
        if claim is None:
            return None
        self._claims.require_own(range(1, claim.epoch + 1), self._options.deployment)
        last = look_at_last(
            self._store, self._prefix, claim, self.replay(), lives=lambda: claim.epoch > lost and self._lives(claim)
        )
        driver = next(self._claims.drivers_before(claim.epoch), None) if claim.cancels else claim
        if driver is None or not is_another_run(self.run, driver.run):
            return last
        if last.alive:
            raise JobAlreadyRunning(
                f"Job {self._job} in {self._store.uri} is at work for another DAG run of the same name: attempt "
                f"{claim.epoch} on {claim.host or 'an unknown host'}.",
                remedy="Most likely another Airflow deployment has a DAG and a run of these names, and uses the same "
                "event store. Give each deployment an event store of its own, another prefix for example.",
            )
        return replace(last, another_run=True)

    def _lives(self, claim: Claim) -> bool:
        if claim.cancels:
            self._wait_for_cancelled(claim.epoch)
            return False
        who = f"Attempt {claim.epoch} (process {claim.pid} on {claim.host or 'an unknown host'})"
        liveness = self._liveness(claim)
        life = liveness.look()
        if life is Life.WATCHING:
            self._log.info(
                "%s did not say how it ended; watching its heartbeat for up to %g s.", who, liveness.patience
            )
            life = liveness.wait()
        if life is Life.GONE:
            self._log.info("%s is gone.", who)
        if life in (Life.GONE, Life.SILENT):
            liveness.end_what_is_left(self._log)
        if life.over:
            self.last_beat = liveness.beat.number
        return not life.over

    def _liveness(self, claim: Claim) -> Liveness:
        return Liveness(self._store, self._prefix, claim, self._options.previous_worker_recovery_timeout)

    def _wait_for_cancelled(self, epoch: int) -> None:
        """Wait until the drivers that *epoch* has fenced have stopped; each notices at its next heartbeat."""
        newest = self.replay().newest
        began = max(newest.epoch, 1) if newest is not None else 1
        drivers = [self._liveness(claim) for claim in self._claims.drivers_before(epoch, down_to=began)]
        if drivers:
            self._log.info("Attempt %d was cancelled; making sure that its driver has ended.", drivers[0].claim.epoch)
            wait_for_end(drivers, self._log)

    def fence(self, claim: Claim) -> None:
        """Fence a driver that cannot be reached from here: it notices at its next heartbeat, and ends."""
        try:
            if cancel(self._store, self._prefix, claim.epoch) is not None:
                self._log.info("Attempt %d is fenced: it ends at its next heartbeat.", claim.epoch)
        except StoreError as error:
            self._log.warning("Attempt %d could not be fenced: %s", claim.epoch, error)

    def replay(self) -> ExecutionGraph:
        """Return the job's execution graph, replayed from its events."""
        graph = self._events.replay().graph
        for problem in graph.problems:
            if problem not in self._told:
                self._told.add(problem)
                self._log.warning("Job event store: %s", problem)
        return graph

    def series(self, epoch: int) -> str:
        """Return the series that an attempt shares with its automatic retries; empty text if unknown."""
        attempt = self.replay().attempts.get(epoch)
        return attempt.series if attempt is not None else ""

    def claim(self, epoch: int) -> Claim | None:
        """Return the claim of an attempt."""
        return self._claims.get(epoch)

    def follow(self, claim: Claim, cancelled: Callable[[], bool]) -> Ending:
        """Log the progress of a living driver until it ends or is lost.

        :param cancelled: checked between two looks; if true, the driver counts as lost
        :raises StoreError: the store could not be read for long; the driver goes on
        """
        progress = self._progress = Progress(self._events, self._log, after=claim.epoch - 1)
        liveness, read = self._liveness(claim), time.monotonic()
        failed = False
        while not cancelled():
            try:
                life = liveness.look()  # before the events, so that everything stored before its end is seen
                progress.read()
            except StoreError as error:
                if time.monotonic() - read > PATIENCE:
                    raise
                if not failed:
                    self._log.warning("The job cannot be followed, trying again: %s", error)
                failed, liveness = True, self._liveness(claim)  # no change could have been seen
                time.sleep(_POLL)
                continue
            failed, read = False, time.monotonic()
            state = progress.state(claim.epoch)
            if state.terminal or life.over:
                if life in (Life.SILENT, Life.GONE) and not state.terminal:
                    liveness.end_what_is_left(self._log)
                self.last_beat = liveness.beat.number
                return _ending(str(state) if state.terminal else liveness.word)
            time.sleep(_POLL)
        return Ending.LOST

    def application_id(self, epoch: int) -> str:
        """Return Spark's application id of a followed attempt, if it was read already; sends no request."""
        return self._progress.application_id(epoch) if self._progress is not None else ""

    @contextlib.contextmanager
    def narrating(self, after: int) -> Iterator[None]:
        """Log the progress of attempts after *after* while the block runs, in a thread whose errors do no harm."""
        over = threading.Event()
        thread = threading.Thread(target=self._narrate, args=(after, over), name="job-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(_LAST_LOOK)

    def _narrate(self, after: int, over: threading.Event) -> None:
        progress = Progress(self._events, self._log, after)
        warned, last = False, False
        while not last:
            last = over.wait(_POLL)
            try:
                progress.read()
            except Exception as error:  # noqa: BLE001 - it only logs; the job must not suffer from it
                if not warned:
                    self._log.warning("Cannot read the progress of the job: %s", error)
                warned = True

    def report(self) -> JobReport:
        """Return the current report of the job."""
        return build_report(str(self._job), self.replay())

    def kept(self) -> list[str]:
        """Return what the next try will find, vertex by vertex: what is stored, which may be more than was recorded.

        :raises StoreError: the store cannot be read
        """
        survivors = PartitionStore(self._store, self._prefix).survivors()
        lines = []
        for identity, vertex in self.replay().vertices.items():
            told = vertex.initialized
            stored = {p.index for p in survivors.get(identity, []) if p.layout == told.layout}
            if stored:
                lines.append(f"{told.name} {len(stored)} of {told.parallelism}")
        return lines

    def recorded(self, report: JobReport) -> bool:
        """Whether *report* is about the success of the newest attempt, not of an earlier one."""
        newest = self._claims.newest()
        return (
            newest is not None
            and bool(report.attempts)
            and (report.attempts[-1].epoch, report.state) == (newest.epoch, JobState.FINISHED)
        )

    def acknowledge(self, report: JobReport) -> None:
        """Acknowledge the job's success and release its partitions; a failing store causes only a warning."""
        take_notice(self._store, self._prefix, report, self._log, try_number=self.try_number)


def _ending(word: str) -> Ending:
    return {"FINISHED": Ending.FINISHED, "FAILED": Ending.FAILED}.get(word, Ending.LOST)
