"""Follow the jobs that people look at: each is replayed once, then only new events are read, for all viewers."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from airflow_provider.airflow.recovery_connection import RecoveryConnection
from airflow_provider.core.errors import AccessDenied, JobAlreadyRunning, RecoveryError, StoreUnavailable
from airflow_provider.core.history import JobHistory
from airflow_provider.core.job import JobId
from airflow_provider.core.job_view import job_view
from airflow_provider.plugin.location import Location
from airflow_provider.storage.claims import Claim, Claims
from airflow_provider.storage.discarding import Discard, discard, discard_in_force
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.follower import JobFollower
from airflow_provider.storage.liveness import Life, Liveness
from airflow_provider.storage.object_store import ObjectStore

_PAUSE = 1.0
"""Least seconds between two looks at the same job."""
_PEEK_EVERY = 5
"""Looks that found nothing new, after which a listing checks whether a snapshot has replaced what would come next."""
MOST_JOBS = 32
"""That are kept in memory, and that are looked up for one DAG run."""
_FAILED_FOR = 15.0
"""Seconds for which a store that has failed is not asked again: a time-out takes longer than that."""
_AT_ONCE = 8
"""Looks that go on at the same time. Airflow's API server has forty threads for all that it does."""
_TURN = 2.0
"""Seconds that a look waits for its turn."""
_REST = 10
"""To build the view of a large job takes seconds, in which Airflow's API server does nothing else. It is built anew
after so many times as long.
"""
_LIFE = 600.0
"""Seconds after which a job is read anew, with a store of its own, because its connection may have changed."""


@dataclass(frozen=True)
class Seen:
    """The state of a job at one look.

    :ivar view: see :func:`airflow_provider.core.job_view.job_view`; ``None`` if nothing is recorded
    :ivar pulse: ``alive``, ``watching`` (not known yet), ``silent`` for the whole timeout, the driver's last word, or
        ``none``
    :ivar patience: seconds of silence after which the driver counts as lost; 0 without a driver
    :ivar application_id: of the newest attempt's Spark application; empty text without one
    :ivar ui_url: the address of the Spark UI that its driver reported; empty text once the attempt has ended
    :ivar claimed: newest claimed attempt, 0 if there is none; it may have recorded nothing yet
    """

    view: dict[str, Any] | None
    pulse: str
    claimed: int
    host: str
    discard: Discard | None
    patience: float = 0.0
    application_id: str = ""
    ui_url: str = ""


_PULSES = {Life.WATCHING: "watching", Life.ALIVE: "alive", Life.SILENT: "silent", Life.GONE: "silent"}


class WatchedJob:
    """One job, followed for all its viewers. Thread-safe."""

    def __init__(self, store: ObjectStore, job: JobId, timeout: float) -> None:
        self.store = store
        self.made_at = time.monotonic()
        self._job = job
        self._timeout = timeout
        self._lock = threading.Lock()
        self._claims = Claims(store, job.prefix)
        self._history = JobHistory()
        self._follower = JobFollower(
            JobEventLog(store, job.prefix),
            before=lambda event: self._history.observe(event, self._follower.graph),
            begin=lambda _: self._history.clear(),
            peek_every=_PEEK_EVERY,
        )
        self._liveness: Liveness | None = None
        self._viewed = -1
        self._rests_until = 0.0
        self._view: dict[str, Any] | None = None
        self._seen: Seen | None = None
        self._looked_at = 0.0
        self._failure: tuple[float, RecoveryError] | None = None

    def look(self, *, anew: bool = False) -> Seen:
        """Return the job's state; a state younger than a second is not read again.

        :param anew: look in any case, because something has just changed
        :raises RecoveryError: the store cannot be read, or could not a moment ago
        """
        with self._lock:
            now = time.monotonic()
            if self._failure is not None:
                raise self._failure[1]
            if self._seen is None or anew or now - self._looked_at >= _PAUSE:
                try:
                    self._seen = self._look(anew=anew)
                except RecoveryError as error:
                    self._failure = (time.monotonic(), error)
                    raise
                self._looked_at = time.monotonic()
            return self._seen

    def life(self, claim: Claim) -> Life:
        """Return what is known of the newest claim's driver."""
        with self._lock:
            return self._liveness_of(claim).look()

    def _liveness_of(self, claim: Claim) -> Liveness:
        if self._liveness is None or self._liveness.claim != claim:
            self._liveness = Liveness(self.store, self._job.prefix, claim, self._timeout)
        return self._liveness

    @property
    def over(self) -> bool:
        """Whether the job must be reopened: it has been open for long, or its store failed some time ago."""
        now = time.monotonic()
        failed = self._failure is not None and now - self._failure[0] >= _FAILED_FOR
        return failed or now - self.made_at >= _LIFE

    def _look(self, *, anew: bool) -> Seen:
        newest = self._claims.newest()
        liveness = self._liveness_of(newest) if newest is not None else None
        life = liveness.look() if liveness is not None else None
        attempt = self._follower.graph.newest
        recorded = attempt is not None and attempt.state.terminal
        self._follower.read(ended=life is Life.STOPPED and not recorded)
        graph = self._follower.graph
        began = time.monotonic()
        if self._viewed != self._follower.version and (anew or began >= self._rests_until):
            self._view = job_view(str(self._job), graph, self._history) if graph.attempts else None
            self._viewed = self._follower.version
            now = time.monotonic()
            self._rests_until = now + _REST * (now - began)
        attempt = graph.newest
        application_id = attempt.application_id if attempt is not None else ""
        ui_url = attempt.ui_url if attempt is not None and not attempt.state.terminal else ""
        if liveness is None or life is None:
            return Seen(self._view, "none", 0, "", None, application_id=application_id, ui_url=ui_url)
        epoch, host = liveness.claim.epoch, liveness.claim.host
        pulse = _PULSES.get(life, liveness.word)
        found = discard_in_force(self.store, self._job.prefix, graph, before=epoch + 1)
        return Seen(self._view, pulse, epoch, host, found, liveness.patience, application_id, ui_url)


class WatchedJobs:
    """The most recently viewed jobs."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[tuple[Location, str], WatchedJob] = OrderedDict()
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(_AT_ONCE)
        self._failures: dict[Location, tuple[float, RecoveryError]] = {}
        """Stores that do not answer, or not to us: since when, and what they said."""

    def look(self, location: Location, job: JobId, until: float | None = None) -> Seen:
        """Return a job's state. Callers wait for a slow store, but only a few at a time.

        :param until: the monotonic time until which it may wait for its turn
        :raises RecoveryError: the store cannot be opened or read, or could not a moment ago; or too many callers are
            waiting
        """
        with self._turn(location, until):
            return self.get(location, job).look()

    def look_at(self, jobs: Sequence[tuple[Location, JobId]]) -> list[Seen | RecoveryError]:
        """Return the state of each job, or why it cannot be read. All of them together wait for their turns no longer
        than one alone.
        """
        until = time.monotonic() + _TURN

        def seen(place: tuple[Location, JobId]) -> Seen | RecoveryError:
            try:
                return self.look(*place, until)
            except RecoveryError as error:
                return error

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(seen, jobs))

    def give_up(self, location: Location, job: JobId, by: str, attempt: int, *, delete: bool) -> tuple[Discard, int]:
        """Discard what a job has stored, and delete it if *delete*; return how many partitions were deleted.

        Does not wait to find out whether a driver is running, which would take as long as its claim allows.

        :param attempt: the newest attempt at the time of the decision
        :raises RecoveryError: see :func:`airflow_provider.storage.discarding.discard` and :meth:`look`
        """
        with self._turn(location):
            watched = self.get(location, job)
            newest = Claims(watched.store, job.prefix).newest()
            if newest is not None and newest.epoch != attempt:
                raise JobAlreadyRunning(
                    f"Attempt {newest.epoch} has begun since the page was loaded.", remedy="Look at it first."
                )
            given_up = discard(
                watched.store, job.prefix, by=by, timeout=location.timeout, delete=delete, life=watched.life
            )
            watched.look(anew=True)
            return given_up

    @contextmanager
    def _turn(self, location: Location, until: float | None = None) -> Iterator[None]:
        """Take a turn at a store; an error is also reported to callers that come soon after."""
        now = time.monotonic()
        with self._lock:
            self._failures = {
                place: failed for place, failed in self._failures.items() if now - failed[0] < _FAILED_FOR
            }
            if location in self._failures:
                raise self._failures[location][1]
        if not self._turns.acquire(timeout=_TURN if until is None else max(0.0, until - now)):
            raise RecoveryError("Too many look at event stores that answer slowly.", remedy="Look again in a moment.")
        try:
            yield
        except (StoreUnavailable, AccessDenied) as error:
            with self._lock:
                self._failures[location] = (time.monotonic(), error)
            raise
        finally:
            self._turns.release()

    def get(self, location: Location, job: JobId) -> WatchedJob:
        """Return a job; open it if nobody has looked at it lately.

        :raises RecoveryError: its store cannot be opened, for example because the connection is missing
        """
        key = (location, job.prefix)
        with self._lock:
            found = self._jobs.get(key)
            if found is not None and not found.over:
                self._jobs.move_to_end(key)
                return found
        opened = WatchedJob(open_location(location), job, location.timeout)
        with self._lock:
            self._jobs[key] = opened
            self._jobs.move_to_end(key)
            while len(self._jobs) > MOST_JOBS:
                self._jobs.popitem(last=False)
        return opened


def open_location(location: Location) -> ObjectStore:
    """Open the store that a try published, with the connection that it published, and no other.

    :raises RecoveryError: the connection is missing, invalid, or not sufficient to reach the store
    """
    name = location.recovery_conn_id
    if location.own_settings:
        # Settings are not read from an XCom: Airflow's API server would contact any address found there.
        raise RecoveryError(
            f"The task reaches its event store with its own {location.own_settings}, not with those of the connection "
            f"{name!r}, so the page cannot open it.",
            remedy="Put these settings into a connection, and name it as the task's recovery_conn_id.",
        )
    try:
        return RecoveryConnection(name, location.event_store).store
    except RecoveryError:
        raise
    except Exception as error:
        raise RecoveryError(
            f"The event store cannot be opened with the connection {name!r} ({type(error).__name__}).",
            remedy="Look into the API server's log.",
        ) from error
