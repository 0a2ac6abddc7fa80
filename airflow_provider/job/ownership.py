"""One attempt's hold on its job: its claim, its signs of life, and whether it may still write. Knows no Spark."""

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
    """A job that a driver claims, and keeps as long as nobody else does.

    :param request: what to run
    :param store: the object store that it names
    :param on_fenced: called once, from any thread, with the epoch that took over; should end the process
    :param jvm: the driver's JVM, as far as there is one
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
        """Everything known of the job."""
        return self._record.graph

    @property
    def overhead(self) -> Overhead:
        """What recovery has cost this attempt so far."""
        return self._record.overhead

    @property
    def epoch(self) -> int:
        """The number of this attempt."""
        return self._record.epoch

    def keep_secret(self, conf: Mapping[str, str]) -> None:
        """Leave the secrets among Spark's properties out of all that is recorded from now on."""
        self._record.keep_secret(conf)

    def _claim(self) -> Claim:
        """Claim the next attempt at the job, and begin to beat for it.

        :raises RecoveryError: the store cannot be used, or the job is another deployment's
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
        """Whether the store records; while it does not, the job goes on without recovery."""
        return self._record.usable

    def check(self) -> None:
        """Raise :class:`Fenced` if a newer attempt is known to own the job."""
        self._record.check()

    def check_now(self) -> None:
        """Make sure that this attempt owns the job, before something is committed outside of the store.

        Costs no request while the lease lasts; after that it waits for the store. What was to be recorded before is
        waited for in any case, once in an outage, so that a retry knows of all that this attempt writes.

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
        """Return for how many seconds this attempt certainly owns the job; not positive if that is not certain now."""
        return self._heartbeat.left if self._heartbeat is not None else 0.0

    def check_after(self) -> None:
        """Find out, if the lease ran out while something was written, whether a newer attempt has begun meanwhile. Asks
        the store once; that it does not answer says nothing.

        :raises Fenced: a newer attempt owns the job
        """
        self.check()
        if self._heartbeat is not None and self._heartbeat.lapsed:
            with suppress(StoreError):
                self._ask(self._heartbeat.check)

    def _ask(self, whose_job: Callable[[], None]) -> None:
        """Ask who owns the job, and record that it is a newer attempt."""
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
