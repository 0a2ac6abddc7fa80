"""Follow one job by polling its event store. Blocks while it looks, and holds no Airflow objects."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from airflow_provider.airflow.order import FAILED, FINISHED, LOST, SILENT, UNCLAIMED, Order, Outcome
from airflow_provider.airflow.progress import Progress
from airflow_provider.core.graph import JobState
from airflow_provider.core.job import JobId, is_another_deployment
from airflow_provider.storage.claims import Claim, Claims
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.liveness import Life, Liveness
from airflow_provider.storage.object_store import ObjectStore

PATIENCE = 900.0
"""Seconds for which a store may be unreadable before whoever follows a job is told."""
_PEEK_EVERY = 4
"""Quiet looks between two listings: at 15 s a look that is 0.02 requests a second, and news are a minute old."""
_KINDS = {str(JobState.FINISHED): FINISHED, str(JobState.FAILED): FAILED}


class JobWatch:
    """Watches the attempt that an order names, and its successor if there is one. A look that finds nothing new costs
    two requests.

    :param log: receives the job's progress
    """

    def __init__(
        self,
        store: ObjectStore,
        order: Order,
        log: logging.Logger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._order = order
        self._log = log
        self._clock = clock
        self._prefix = JobId.parse(order.job).prefix
        self._claims = Claims(store, self._prefix)
        self._since = clock()
        self._claim: Claim | None = None
        self._liveness: Liveness | None = None
        self._progress: Progress | None = None
        self._state = JobState.CREATED

    @property
    def epoch(self) -> int:
        """The attempt being followed; 0 while none has claimed the job."""
        return self._claim.epoch if self._claim is not None else 0

    def start_over(self) -> None:
        """Restart the driver's silence timer: while the store was unreadable, no change could have been seen."""
        self._liveness = None

    def look(self) -> Outcome | None:
        """Look once; return how the attempt ended, ``None`` while it runs.

        :raises StoreError: the store cannot be read, so the state is unknown
        """
        if self._claim is None and not self._find():
            if self._clock() - self._since < self._order.claim_within:
                return None
            return Outcome(UNCLAIMED, 0)
        life, word, beat = self._look()
        if (kind := _KINDS.get(word)) is not None:
            return Outcome(kind, self.epoch)
        if not life.over:
            return None
        newest = self._claims.newest()
        if newest is not None and newest.epoch > self.epoch and not newest.cancels and self._is_own(newest):
            self._log.info("Attempt %d has been replaced by attempt %d; following that.", self.epoch, newest.epoch)
            self._follow(newest)
            return None
        if life is not Life.STOPPED:
            return Outcome(SILENT, self.epoch, f"attempt {self.epoch}: its heartbeat has stopped", beat)
        return Outcome(LOST, self.epoch, f"attempt {self.epoch}: its last word was {word}")

    def _find(self) -> bool:
        """Find the attempt to follow; return whether there is one."""
        wanted = self._order.epoch or self._order.after + 1
        claim = self._claims.get(wanted)
        if claim is None or not self._is_own(claim):
            return False
        self._log.info("Following attempt %d, process %d on %s.", wanted, claim.pid, claim.host or "an unknown host")
        self._follow(claim)
        return True

    def _is_own(self, claim: Claim) -> bool:
        return not is_another_deployment(claim.deployment, self._order.deployment)

    def _follow(self, claim: Claim) -> None:
        self._claim = claim
        self._liveness = None
        events = JobEventLog(self._store, self._prefix)
        self._progress = Progress(events, self._log, after=claim.epoch - 1, peek_every=_PEEK_EVERY)

    def _look(self) -> tuple[Life, str, int]:
        """Return whether the driver is alive, the end state that it reported, and the number of its last heartbeat."""
        assert self._claim is not None  # noqa: S101 - for the type checker
        assert self._progress is not None  # noqa: S101
        if self._liveness is None:
            self._liveness = Liveness(self._store, self._prefix, self._claim, self._order.timeout, clock=self._clock)
        life = self._liveness.look()  # before the events, so that everything stored before its end is seen
        self._progress.read()
        state = self._progress.state(self._claim.epoch)
        return life, str(state) if state.terminal else self._liveness.word, self._liveness.beat.number
