"""Deferrable mode: the task hands its job to a trigger and continues when the trigger has seen the job's end.

Decisions and results are the same as in normal mode, but no worker waits. Airflow keeps the deferred task's state as
plain JSON, in a form that later releases still read.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowException, conf

from airflow_provider.airflow.cluster_managers import manager
from airflow_provider.airflow.detached import Output, output_path
from airflow_provider.airflow.ending_driver import end_driver
from airflow_provider.airflow.order import FAILED, FINISHED, SILENT, UNCLAIMED, UNREADABLE, Application, Order, Outcome
from airflow_provider.airflow.retries import series_of, try_of
from airflow_provider.airflow.supervisor import JobSupervisor
from airflow_provider.core.errors import ConfigurationError, StoreError
from airflow_provider.core.job import JobId, is_another_deployment
from airflow_provider.core.takeover import only_retried
from airflow_provider.hooks.cluster_applications import Application as ClusterApplication
from airflow_provider.hooks.cluster_applications import end_application, remembered_application
from airflow_provider.operators.conclusion import explain, failed_elsewhere, succeed
from airflow_provider.storage.cancelling import cancel, cancel_unclaimed
from airflow_provider.storage.claims import Claim, Claims, process_is_gone, same_machine
from airflow_provider.triggers.job_trigger import SparkRecoveryTrigger

if TYPE_CHECKING:
    import logging

    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator as _Submitting
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.airflow.recovery_connection import RecoveryConnection
    from airflow_provider.hooks.spark_recovery import SparkRecoveryHook
else:
    _Submitting = object

_CLAIM_WITHIN = 60.0
"""Seconds for which a driver may be on its way before the cluster manager is asked about it."""
_LONGEST = 600.0
"""Most seconds between two such questions."""
_LOOK_EVERY = 1.5
"""Heartbeats between two looks of the trigger: each costs two requests, so that 15 s make less than 0.2 a second."""
_LAST_OUTPUT = 20.0
"""Most seconds to wait for the end of a process whose driver has told of its end, so that all its output is read."""
_POLL = 0.5
_ACTIVE, _SUCCEEDED, _ENDED = "active", "succeeded", "ended"


def default_deferrable() -> bool:
    """Whether operators defer by default: Airflow's ``[operators] default_deferrable``."""
    return bool(conf.getboolean("operators", "default_deferrable", fallback=False))


@dataclass(frozen=True)
class Deferral:
    """The state of a deferred task.

    :ivar after: newest epoch before the attempt that is followed
    :ivar attached: whether another try submitted it
    :ivar output: output file of a driver on this machine, and how many of its bytes are in the task log already
    :ivar since: when the task was first deferred, in seconds since the Unix epoch
    :ivar waits: how often it was deferred again because the outcome was still open
    """

    after: int = 0
    attached: bool = False
    application: Application = field(default_factory=Application)
    output: str = ""
    output_read: int = 0
    host: str = ""
    since: float = 0.0
    waits: int = 0

    def to_kwargs(self) -> dict[str, Any]:
        """Return plain values, for Airflow's database."""
        return {"version": 1, **asdict(self)}

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> Deferral:
        """Read what :meth:`to_kwargs` of any release wrote."""
        known = {name: kwargs[name] for name in (item.name for item in fields(cls)) if name in kwargs}
        application = Application.from_mapping(known.pop("application", {}))
        return cls(**known, application=application)


class Deferring(_Submitting):
    """The deferrable mode of ``SparkRecoveryOperator``."""

    deferrable: bool
    start_timeout: float
    _external_id = ""
    _waits = True
    _output: Path | None = None
    """File for what the next driver prints, if that is a process of this machine that nobody waits for."""

    if TYPE_CHECKING:

        @property
        def _task_log(self) -> logging.Logger: ...

        def _get_hook(self) -> SparkRecoveryHook: ...

        def _execute(
            self, context: Context, hook: SparkRecoveryHook, lost: int = 0, beat: int = -1
        ) -> dict[str, Any] | None: ...

    # -- handing over -----------------------------------------------------------------------------------------------

    def _do_not_wait(self, hook: SparkRecoveryHook, job: JobId) -> None:
        """Make the next submission return as soon as the application is started."""
        self._waits = False
        if not hook.cluster_mode:
            self._output = output_path(conf.get("logging", "base_log_folder", fallback=""), job.prefix)

    def poll_until_complete(self, external_id: Any, context: Context) -> None:
        """Wait for the application; in deferrable mode, only note it."""
        if self._waits:
            super().poll_until_complete(external_id, context)
        else:
            self._external_id = str(external_id)

    def _defer_attached(self, recovery: RecoveryConnection, job: JobId, epoch: int) -> NoReturn:
        """Hand over a driver that another try started."""
        self._hand_over(recovery, job, Deferral(after=epoch - 1, attached=True, since=time.time()), epoch)

    def _defer_submitted(self, hook: SparkRecoveryHook, recovery: RecoveryConnection, job: JobId, after: int) -> None:
        """Hand over a driver that was just started; returns only if there is nothing to wait for.

        :param hook: the hook that submitted it
        :raises AirflowException: a driver on this machine ended before it claimed the job
        """
        deferral = Deferral(after=after, since=time.time(), application=self._application(hook))
        epoch = 0
        if self._output is not None:
            epoch, read = self._await_claim(hook, recovery, job, after, Output(self._output))
            deferral = replace(deferral, output=str(self._output), output_read=read, host=socket.gethostname())
            self.log.info("The driver runs detached from this task; its output: %s on %s", self._output, deferral.host)
        elif not (hook.submitted or self._external_id):
            return  # upstream's durable mode knows that the application succeeded
        self._hand_over(recovery, job, deferral, epoch)

    def _application(self, hook: SparkRecoveryHook) -> Application:
        if not hook.cluster_mode:
            return Application()
        name = self._external_id or hook._yarn_application_id or ""
        return Application(manager(hook._connection["master"]), name, self._conn_id)

    def _await_claim(
        self, hook: SparkRecoveryHook, recovery: RecoveryConnection, job: JobId, after: int, output: Output
    ) -> tuple[int, int]:
        """Wait until a driver on this machine has claimed the job; return its epoch and the bytes read of its output.

        :raises AirflowException: the driver ended first, or did not claim the job in time
        """
        claims, process = Claims(recovery.store, job.prefix), hook._submit_sp
        assert process is not None  # noqa: S101 - it has just been started
        deadline, warned = time.monotonic() + self.start_timeout, False
        while True:
            ended, claimed = process.poll(), False
            try:
                claimed = _claimed(claims, after + 1, recovery)
            except StoreError as error:
                if not error.retryable or ended is not None:
                    raise
                if not warned:
                    self.log.warning("Whether the driver has claimed the job is not known now: %s", error)
                warned = True
            hook.relay(output.lines(to_the_end=ended is not None and not claimed))
            if claimed:
                return after + 1, output.offset
            if ended is not None:
                output.remove()
                raise AirflowException(f"The driver ended before it began. Error code is: {ended}.")
            if time.monotonic() > deadline:
                hook.on_kill()
                raise _never_began(self.start_timeout)
            time.sleep(_POLL)

    def _hand_over(self, recovery: RecoveryConnection, job: JobId, deferral: Deferral, epoch: int) -> NoReturn:
        """Defer."""
        options, settings = recovery.settings.options, recovery.settings
        over = {name: str(value) for name, value in settings.storage.given().items()}
        longer = min(2.0 ** min(deferral.waits, 10), _LONGEST / _CLAIM_WITHIN)
        order = Order(
            job=str(job),
            event_store=settings.event_store,
            recovery_conn_id=recovery.conn_id,
            settings={**over, **({"aws_conn_id": settings.aws_conn_id} if settings.aws_conn_id else {})},
            epoch=epoch,
            after=deferral.after,
            timeout=options.previous_worker_recovery_timeout * longer,
            pause=options.heartbeat_interval * _LOOK_EVERY,
            claim_within=min(_CLAIM_WITHIN * longer, self.start_timeout),
            deployment=options.deployment,
            application=deferral.application,
        )
        self.log.info("Deferring: the triggerer follows the job, and no worker is held.")
        self.defer(
            trigger=SparkRecoveryTrigger(**order.to_kwargs()),
            method_name="execute_complete",
            kwargs=deferral.to_kwargs(),
            timeout=self._time_left(deferral),
        )

    def _time_left(self, deferral: Deferral) -> timedelta | None:
        if self.execution_timeout is None:
            return None
        left = self.execution_timeout - timedelta(seconds=time.time() - deferral.since)
        return max(left, timedelta(seconds=1))

    # -- going on ---------------------------------------------------------------------------------------------------

    def _resumed(
        self, context: Context, hook: SparkRecoveryHook, job: JobId, outcome: Outcome, deferral: Deferral
    ) -> dict[str, Any] | None:
        """Conclude from the trigger's outcome, or defer again.

        :raises AirflowException: the job failed, or its driver is lost; a retry resumes it
        """
        if outcome.kind == UNREADABLE:
            raise AirflowException(
                f"The job cannot be followed, {outcome.message} Its driver goes on; a retry attaches to it."
            )
        number = try_of(context)
        supervisor = JobSupervisor(hook.store, job, hook.settings.options, self._task_log, try_number=number)
        if outcome.kind == FINISHED and deferral.attached:
            retried = only_retried(supervisor.series(outcome.epoch), series_of(context, self.retries))
            if not retried:
                return self._execute(context, hook)
        if outcome.kind in (FINISHED, FAILED):
            self._end_of_application(hook, job, outcome.epoch, deferral)
            if outcome.kind == FAILED:
                raise failed_elsewhere(supervisor, self._task_log, hook.settings.options.resume)
            return succeed(supervisor, self._task_log)
        word = self._word(context, hook, job, outcome, deferral)
        if word == _ACTIVE or (outcome.kind == UNCLAIMED and not word):
            self._wait_on(hook, job, outcome, deferral)
        account = self._account(context, deferral) if word == _ENDED else ""
        if deferral.attached and word != _SUCCEEDED:
            return self._execute(context, hook, lost=outcome.epoch, beat=outcome.beat)
        self._end_of_application(hook, job, outcome.epoch, deferral)
        if word == _SUCCEEDED:
            return succeed(supervisor, self._task_log)
        what = f"The Spark driver was lost, {outcome.message}." if outcome.epoch else "No driver has claimed the job."
        failure = AirflowException(" ".join(filter(None, (what, account, "A retry resumes the job."))))
        raise explain(
            failure,
            supervisor,
            self._task_log,
            resume=hook.settings.options.resume,
            last_epoch=deferral.after,
            exit_code=hook.exit_code,
            driver_error=hook.driver_error,
        )

    def _wait_on(self, hook: SparkRecoveryHook, job: JobId, outcome: Outcome, deferral: Deferral) -> None:
        """Defer again. Does not return.

        :raises AirflowException: the driver did not start within the allowed time
        """
        if outcome.kind == UNCLAIMED:
            if time.time() - deferral.since > self.start_timeout:
                cancel_unclaimed(hook.store, job.prefix, deferral.after, hook.settings.options.deployment)
                application = remembered_application(hook._connection["master"], deferral.application.external_id)
                if application is not None:
                    end_application(application, hook.recovery.mark_of(job), hook, self._task_log)
                hook._run_post_submit_commands()
                raise _never_began(self.start_timeout)
            self.log.info("No driver has claimed the job yet; waiting on.")
        else:
            self.log.warning("%s, but it is still at work; waiting on.", outcome.message or "The driver is silent")
        self._hand_over(hook.recovery, job, replace(deferral, waits=deferral.waits + 1), outcome.epoch)

    def _word(self, context: Context, hook: SparkRecoveryHook, job: JobId, outcome: Outcome, deferral: Deferral) -> str:
        """Return the state of a silent driver: active, succeeded or ended; empty text if unknown."""
        if outcome.kind not in (SILENT, UNCLAIMED):
            return ""
        claim = Claims(hook.store, job.prefix).get(outcome.epoch) if outcome.epoch else None
        if claim is not None and same_machine(claim) and not process_is_gone(claim):
            return _ACTIVE
        return self._cluster_managers_word(context, hook, deferral)

    def _cluster_managers_word(self, context: Context, hook: SparkRecoveryHook, deferral: Deferral) -> str:
        told = deferral.application
        if not told.external_id or (told.manager == "yarn" and not hook._yarn_track_via_rm_api):
            return ""
        self._hook = hook
        try:
            status = self.get_job_status(told.external_id, context)
        except Exception as error:  # noqa: BLE001 - upstream raises all kinds; then the heartbeat has to decide
            self.log.warning("The cluster manager does not tell how %s is: %s", told.external_id, error)
            return ""
        self.log.info("The cluster manager says of %s: %s", told.external_id, status)
        if self.is_job_active(status):
            return _ACTIVE
        return _SUCCEEDED if super().is_job_succeeded(status) else _ENDED

    def _account(self, context: Context, deferral: Deferral) -> str:
        """Return upstream's report of a failed application: the cluster manager's diagnostics."""
        try:
            super().poll_until_complete(deferral.application.external_id, context)
        except Exception as error:  # noqa: BLE001 - the error is the report
            return f"{error}".rstrip(".") + "."
        return ""

    def _end_of_application(self, hook: SparkRecoveryHook, job: JobId, epoch: int, deferral: Deferral) -> None:
        """Copy the driver's output to the task log, and run the commands due after the application."""
        if deferral.output:
            self._bring_output(hook, job, epoch, deferral)
        hook._run_post_submit_commands()

    def _bring_output(self, hook: SparkRecoveryHook, job: JobId, epoch: int, deferral: Deferral) -> None:
        path = Path(deferral.output)
        if deferral.host != socket.gethostname() or not path.is_file():
            self.log.info("The driver's output is in %s on %s.", path, deferral.host)
            return
        claim = Claims(hook.store, job.prefix).get(epoch) if epoch else None
        deadline = time.monotonic() + _LAST_OUTPUT
        while claim and same_machine(claim) and not process_is_gone(claim) and time.monotonic() < deadline:
            time.sleep(_POLL)
        output = Output(path, deferral.output_read)
        hook.relay(output.lines(to_the_end=True))
        output.remove()

    # -- ending -----------------------------------------------------------------------------------------------------

    def _timed_out(self, hook: SparkRecoveryHook, job: JobId, application: ClusterApplication | None) -> None:
        """End the driver, as a timeout in a worker does; also a driver that has not claimed the job yet.

        :param application: the application that upstream's durable mode remembers
        """
        store, prefix, deployment = hook.store, job.prefix, hook.settings.options.deployment
        newest = Claims(store, prefix).newest()
        if newest is not None and not _is_own(newest, hook.recovery):
            return
        self.log.info("The task has timed out; ending its driver.")
        after = newest.epoch if newest is not None else 0
        if newest is None or newest.cancels or cancel(store, prefix, after) is None:
            cancel_unclaimed(store, prefix, after, deployment)
        elif same_machine(newest):
            end_driver(newest, self._task_log)
        if application is not None:
            end_application(application, hook.recovery.mark_of(job), hook, self._task_log)


def _claimed(claims: Claims, epoch: int, recovery: RecoveryConnection) -> bool:
    """Whether a driver of this deployment, or a cancellation, holds the epoch."""
    claim = claims.get(epoch) if claims.taken(epoch) else None
    return claim is not None and _is_own(claim, recovery)


def _is_own(claim: Claim, recovery: RecoveryConnection) -> bool:
    return not is_another_deployment(claim.deployment, recovery.settings.options.deployment)


def read_start_timeout(value: timedelta | float) -> float:
    """Return the start timeout in seconds.

    :raises ConfigurationError: it is not positive
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if seconds <= 0:
        raise ConfigurationError(
            f"'start_timeout' is {value!r}.", remedy="It must be longer than zero: timedelta(hours=6), for example."
        )
    return seconds


def _never_began(seconds: float) -> AirflowException:
    return AirflowException(
        f"No driver has claimed the job within {seconds:g} s of its submission. Look into the application's log in the "
        "cluster manager: it may have waited for resources, or may not reach the event store. Give it longer with "
        "'start_timeout'."
    )
