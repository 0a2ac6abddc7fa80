"""The trigger that follows a job while its task is deferred, so that no worker is held while the job runs.

It needs only the event store, so it works the same with every cluster manager. It keeps no state between looks that it
could not read again, so a restarted triggerer simply continues.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from airflow.triggers.base import BaseTrigger, TriggerEvent
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_delay, wait_exponential

from airflow_provider.airflow.cluster_managers import job_mark
from airflow_provider.airflow.ending_driver import end_driver
from airflow_provider.airflow.job_watch import PATIENCE, JobWatch
from airflow_provider.airflow.order import UNREADABLE, Order, Outcome
from airflow_provider.airflow.recovery_connection import RecoveryConnection
from airflow_provider.airflow.triggerer import Pace, RenewedStore, in_thread, to_its_end
from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.job import JobId
from airflow_provider.hooks.cluster_applications import end_remembered
from airflow_provider.storage.cancelling import cancel, cancel_unclaimed
from airflow_provider.storage.claims import same_machine

if TYPE_CHECKING:
    import logging

    from airflow_provider.storage.object_store import ObjectStore

_PACE = Pace(per_second=25.0)
_DEFERRED = "deferred"


class SparkRecoveryTrigger(BaseTrigger):
    """Follow a job's events and its driver's heartbeat until the job ends; then fire one event with the outcome.

    :param kwargs: see :class:`airflow_provider.airflow.order.Order`; arguments of every release are accepted
    """

    _earliest = 10.0
    """Seconds before which no event is fired. A worker ends up to 5 s after it has deferred a task, and Airflow fails a
    task that runs again by then (apache/airflow#71580, #72716).
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # upstream has no types there
        self._order = Order.from_kwargs(kwargs)
        self._watch: JobWatch | None = None
        self._store = RenewedStore(self._open)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and plain JSON values."""
        return f"{type(self).__module__}.{type(self).__qualname__}", self._order.to_kwargs()

    @cached_property
    def _trigger_log(self) -> logging.Logger:
        return cast("logging.Logger", self.log)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll the job; yield one event when it has ended, or when a worker must check it."""
        began = time.monotonic()
        try:
            while (outcome := await self._look_patiently()) is None:
                await asyncio.sleep(self._order.pause)
            await asyncio.sleep(began + self._earliest - time.monotonic())
            yield TriggerEvent(outcome.to_payload())  # type: ignore[no-untyped-call]
        except asyncio.CancelledError:
            # Airflow 3.3 calls on_kill() itself, and only when a user acts on the task.
            if not hasattr(BaseTrigger, "on_kill"):
                await to_its_end(self._kill(meant=False))
            raise

    async def on_kill(self) -> None:
        """End the application: the user has marked or cleared the task."""
        await to_its_end(self._kill(meant=True))

    async def _kill(self, *, meant: bool) -> None:
        """End the application, unless the task is still deferred.

        :param meant: whether a user is known to have acted on the task, if Airflow does not tell its state
        """
        state = await self._state()
        if state == _DEFERRED:
            self._trigger_log.info("The task is still deferred: another triggerer follows the job, which goes on.")
            return
        if state is None and not meant:
            return
        try:
            await in_thread(self._cancel)
        except Exception as error:
            self._trigger_log.exception("The driver could not be ended: %s", error)
            raise

    async def _look_patiently(self) -> Outcome | None:
        retrying = AsyncRetrying(
            retry=retry_if_exception(self._may_pass),
            stop=stop_after_delay(PATIENCE),
            wait=wait_exponential(multiplier=max(1.0, self._order.pause / 4), max=60.0),
            before_sleep=self._failed,
            reraise=True,
        )
        try:
            return await retrying(self._look)
        except Exception as error:  # noqa: BLE001 - whatever it is, the task must get it as a message
            epoch = self._watch.epoch if self._watch is not None else self._order.epoch
            return Outcome(UNREADABLE, epoch, f"{type(error).__name__}: {error}")

    async def _look(self) -> Outcome | None:
        await _PACE.turn()
        return await in_thread(self._look_now)

    def _look_now(self) -> Outcome | None:
        if self._watch is None:
            self._watch = JobWatch(cast("ObjectStore", self._store), self._order, self._trigger_log)
        return self._watch.look()

    def _may_pass(self, error: BaseException) -> bool:
        """Whether to look again: after any failure, except of a connection that never worked."""
        # tenacity also asks about cancellations.
        return isinstance(error, Exception) and (self._store.worked or not isinstance(error, ConfigurationError))

    def _failed(self, state: RetryCallState) -> None:
        self._store.forget()
        if self._watch is not None:
            self._watch.start_over()
        if state.attempt_number == 1 and state.outcome is not None:
            self._trigger_log.warning("The job cannot be followed, trying again: %s", state.outcome.exception())

    def _open(self) -> ObjectStore:
        order = self._order
        return RecoveryConnection(order.recovery_conn_id, order.event_store, order.settings).store

    def _cancel(self) -> None:
        """Fence the driver, then end it by any means within reach."""
        order, job = self._order, JobId.parse(self._order.job)
        prefix = job.prefix
        epoch = self._watch.epoch if self._watch is not None and self._watch.epoch else order.epoch
        store = self._open()
        claim = (
            cancel(store, prefix, epoch) if epoch else cancel_unclaimed(store, prefix, order.after, order.deployment)
        )
        if claim is not None:
            self._trigger_log.info(
                "Attempt %d is fenced: it ends at its next heartbeat, wherever it runs.", claim.epoch
            )
        end_remembered(order.application, job_mark(order.event_store, job), self._trigger_log)
        if claim is not None and same_machine(claim):
            end_driver(claim, self._trigger_log)

    async def _state(self) -> str | None:
        """Return the task's state in Airflow, empty text if it has none; ``None`` if it is unknown."""
        instance: Any = self.task_instance
        if instance is None:
            return None
        try:
            from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

            states = await in_thread(
                lambda: RuntimeTaskInstance.get_task_states(
                    dag_id=instance.dag_id,
                    task_ids=[instance.task_id],
                    run_ids=[instance.run_id],
                    map_index=instance.map_index,
                )
            )
            return "".join(str(state or "") for state in states[instance.run_id].values())
        except Exception as error:  # noqa: BLE001 - then trust Airflow's own reason for the call
            self._trigger_log.warning("Airflow does not tell the state of the task: %s", error)
            return None
