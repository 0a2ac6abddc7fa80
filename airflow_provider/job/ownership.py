"""Own a job for one attempt: claim it, send heartbeats, and check whether it may still write. Knows no Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from airflow_provider.core.errors import Fenced, RecoveryError, StoreError
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.overhead import Overhead
from airflow_provider.core.run_request import RunRequest
from airflow_provider.job.recording import JobRecord
from airflow_provider.storage.claims import Claim, Claims
from airflow_provider.storage.heartbeat import Heartbeat
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.processes import Process

log = logging.getLogger(__name__)


class OwnedJob:
    """A job that a driver claims and owns until another driver claims it.

    :param request: what to run
    :param store: the object store that the request names
    :param on_fenced: called once, from any thread, with the epoch that took over; should end the process
    :param jvm: the driver's JVM, if there is one
    """

    def __init__(
        self,
        request: RunRequest,
        store: ObjectStore,
        on_fenced: Callable[[int], None],
        jvm: Callable[[], Process | None],
    ) -> None:
        self.request = request
        self.store = store
        self.prefix = request.job.prefix
        self._record = JobRecord(request, store, on_fenced)
        self._jvm = jvm
        self._heartbeat: Heartbeat | None = None
        self._waited_for = 0
        """The outage that a write has waited for to its patience's end."""

    @property
    def graph(self) -> ExecutionGraph:
        """The job's execution graph."""
        return self._record.graph

    @property
    def overhead(self) -> Overhead:
        """The overhead of this attempt so far."""
        return self._record.overhead

    @property
    def epoch(self) -> int:
        """The number of this attempt."""
        return self._record.epoch

    def keep_secret(self, conf: Mapping[str, str]) -> None:
        """Keep the secrets in Spark's properties out of all records from now on."""
        self._record.keep_secret(conf)

    def _claim(self) -> Claim:
        """Claim the next attempt at the job, and start its heartbeat.

        :raises RecoveryError: the store is unusable, or the job belongs to another deployment
        """
        options = self.request.options
        claim = Claims(self.store, self.prefix).claim(options.lease, self.request.run, options.deployment)
        self._record.epoch = claim.epoch
        log.info("Attempt %d of job %s: CREATED. Event store: %s", claim.epoch, self.request.job, self.store.uri)
        self._heartbeat = Heartbeat(
            self.store,
            self.prefix,
            claim,
            options.lease.interval,
            self._record.fence,
            patience=options.ownership_timeout,
            jvm=self._jvm,
        )
        self._heartbeat.start()
        return claim

    @property
    def usable(self) -> bool:
        """Whether the store records events; if it does not, the job runs without recovery."""
        return self._record.usable

    def check(self) -> None:
        """Raise :class:`Fenced` if a newer attempt is known to own the job."""
        self._record.check()

    def check_now(self) -> None:
        """Make sure that this attempt owns the job before something is committed outside the store.

        Costs at most one small request per heartbeat interval while the lease lasts; after that it waits for the store.
        If events still wait to be stored, it also waits for them, once per outage, so that a retry knows of everything
        that this attempt writes.

        :raises Fenced: a newer attempt owns the job
        :raises OwnershipUnconfirmed: the store did not say so within ``ownership_timeout``
        """
        self.check()
        if self._heartbeat is not None:
            self._ask(self._heartbeat.confirm)
        outage = self._record.outage
        if outage and outage != self._waited_for and not self._record.flush(self.request.options.ownership_timeout):
            self._waited_for = outage

    def owned_for(self) -> float:
        """Return for how many seconds this attempt certainly owns the job; zero or less if that is not certain now."""
        return self._heartbeat.left if self._heartbeat is not None else 0.0

    def check_after(self) -> None:
        """If the lease ran out during a write, check whether a newer attempt has begun meanwhile. Asks the store once;
        no answer means no finding.

        :raises Fenced: a newer attempt owns the job
        """
        self.check()
        if self._heartbeat is not None and self._heartbeat.lapsed:
            with suppress(StoreError):
                self._ask(self._heartbeat.check)

    def _ask(self, whose_job: Callable[[], None]) -> None:
        """Check who owns the job, and record it if a newer attempt does."""
        try:
            whose_job()
        except Fenced as error:
            self._record.fence(int(str(error.ids["newer"])))
            raise

    def stop_heartbeat(self, state: str) -> None:
        """Write the last heartbeat of a driver that stops in *state*; never raises."""
        if self._heartbeat is not None:
            try:
                self._heartbeat.stop(state)
            except RecoveryError as error:
                log.warning("The last heartbeat could not be written: %s", error)
