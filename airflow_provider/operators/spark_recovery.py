"""The operator that is put in the place of ``SparkSubmitOperator``."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider.hooks.spark_recovery import SparkRecoveryHook
from airflow_provider.operators.supervisor import Ending, JobSupervisor, kept
from airflow_provider.recovery.errors import RecoveryError
from airflow_provider.recovery.graph import JobState
from airflow_provider.recovery.job import JobId
from airflow_provider.recovery.report import format_report
from airflow_provider.recovery.run_request import EXIT_CONFIGURATION
from airflow_provider.recovery.takeover import Attach, LastAttempt, Resume, StartAfresh, Succeed, decide
from airflow_provider.storage.claims import process_is_gone, same_machine

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class SparkRecoveryOperator(SparkSubmitOperator):
    """Submit a PySpark application that a retry resumes: every partition that survived is kept, the rest computed.

    All parameters and template fields of ``SparkSubmitOperator`` work. The application marks its recovery points with
    ``airflow_provider.spark.checkpoint``. A try attaches to a driver that still lives, succeeds at once if the driver
    finished while no worker was watching, resumes a lost or failed attempt, and starts afresh when a green task was
    cleared. Returns (as XCom) the report of the job: attempts, and per vertex partitions, reused, computed, rows,
    bytes and task-seconds saved.

    :param recovery_conn_id: connection of type ``spark_recovery``, with the event store and the options
    :param event_store: event store for this task in place of the connection's (templated)
    :param resume: ``auto`` or ``never`` (start afresh at every try), in place of the connection's (templated)
    :param recovery_options: further options by name, in place of the connection's, for example
        ``{"previous_worker_recovery_timeout": "2 min", "enabled": False}`` (templated)
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "event_store",
        "resume",
        "recovery_options",
    )

    def __init__(
        self,
        *,
        recovery_conn_id: str = SparkRecoveryHook.default_conn_name,
        event_store: str | None = None,
        resume: str | None = None,
        recovery_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.recovery_conn_id = recovery_conn_id
        self.event_store = event_store
        self.resume = resume
        self.recovery_options = recovery_options
        self._attached_to: int | None = None
        self._killed = threading.Event()
        self._supervisor: JobSupervisor | None = None
        self._next_attempt: dict[str, Any] | None = None

    def _get_hook(self) -> SparkRecoveryHook:
        hook = SparkRecoveryHook.adopt(
            super()._get_hook(),
            recovery_conn_id=self.recovery_conn_id,
            event_store=self.event_store,
            recovery_options={**(self.recovery_options or {}), **({"resume": self.resume} if self.resume else {})},
        )
        if self._next_attempt is not None:
            hook.prepare(**self._next_attempt)
        return hook

    @cached_property
    def _task_log(self) -> logging.Logger:
        return cast("logging.Logger", self.log)

    def execute(self, context: Context) -> dict[str, Any] | None:  # type: ignore[override]  # upstream: None
        """Attach, succeed, or submit, as the state of the last attempt demands; return the job's report.

        :raises AirflowFailException: something is configured wrongly; no retry can help
        :raises AirflowException: the job failed; a retry resumes it
        """
        self.conf = self.conf or {}
        try:
            hook = self._get_hook()
            if not hook.settings.options.enabled:
                super().execute(context)
                return None
            hook.require_recoverable(self.application)
            return self._execute(context, hook)
        except RecoveryError as error:
            raise (AirflowException if error.retryable else AirflowFailException)(str(error)) from error

    def _execute(self, context: Context, hook: SparkRecoveryHook) -> dict[str, Any] | None:
        hook.store.check()
        self._supervisor = JobSupervisor(hook.store, job_of(context), hook.settings.options, self._task_log)
        return self._act(context, hook.settings.options.resume, self._supervisor.last_attempt())

    def _act(self, context: Context, resume: str, last: LastAttempt | None) -> dict[str, Any] | None:
        """Do what the state of the last attempt demands."""
        decision = decide(last, resume)
        if isinstance(decision, Attach):
            self.log.info("Attempt %d is at work; attaching to it, submitting nothing.", decision.epoch)
            ending = self._attach(decision.epoch)
            if self._killed.is_set():
                raise AirflowException("The task was ended while it followed the job.")
            if ending is Ending.LOST:
                return self._act(context, resume, LastAttempt(decision.epoch, JobState.RUNNING, alive=False))
            return self._conclude(succeeded=ending is Ending.FINISHED)
        if isinstance(decision, Succeed):
            self.log.info("Attempt %d has succeeded already, unseen; submitting nothing.", decision.epoch)
            return self._conclude(succeeded=True)
        self._submit(context, decision, last)
        return self._conclude(succeeded=True)

    def _submit(self, context: Context, decision: Resume | StartAfresh, last: LastAttempt | None) -> None:
        """Run one attempt with upstream's own ways of submitting and waiting; it makes its hook anew."""
        job = job_of(context)
        fresh = ""
        if isinstance(decision, Resume):
            self.log.info("Job %s: resuming; %s.", job, decision.reason)
        elif isinstance(decision, StartAfresh):
            self.log.info("Job %s: starting afresh; %s.", job, decision.reason)
            if last is not None:
                fresh = decision.reason
                self._forget_external_job(context)
        self._next_attempt = {"job": job, "fresh": fresh, "previous_lost": last.epoch if last is not None else 0}
        self._hook = None
        try:
            super().execute(context)
        except AirflowFailException:
            raise
        except Exception as failure:
            self._tell_what_is_kept()
            hook = cast("SparkRecoveryHook | None", self._hook)
            if hook is not None and hook.returncode == EXIT_CONFIGURATION:
                raise AirflowFailException(hook.driver_error or str(failure)) from failure
            raise

    def _forget_external_job(self, context: Context) -> None:
        """Keep upstream's durable mode from taking the last run's application for this one."""
        state = context.get("task_state_store")
        if state is not None and self.durable:
            state.delete(self.external_id_key)

    def _attach(self, epoch: int) -> Ending:
        assert self._supervisor is not None  # noqa: S101 - set before
        self._attached_to = epoch
        try:
            return self._supervisor.follow(epoch, self._killed.is_set)
        finally:
            self._attached_to = None

    def _conclude(self, *, succeeded: bool) -> dict[str, Any] | None:
        """Log the report, take notice of the success, and return what goes to XCom."""
        assert self._supervisor is not None  # noqa: S101 - set before
        report = self._supervisor.report()
        self.log.info("%s", format_report(report))
        if not succeeded:
            raise AirflowException(f"The Spark job failed: {report.attempts[-1].error}. A retry resumes it.")
        if report.state != JobState.FINISHED:
            self.log.warning(
                "The Spark application succeeded, but the event store did not record its end; a later try "
                "would resume it."
            )
            return report.to_dict()
        self._supervisor.acknowledge(report)
        return report.to_dict()

    def _tell_what_is_kept(self) -> None:
        """Say what a retry will find; must never hide the failure that is being handled."""
        try:
            assert self._supervisor is not None  # noqa: S101 - set before
            stored = kept(self._supervisor.report())
            if stored:
                self.log.info("Kept for the next try, partitions stored: %s", stored)
        except Exception as error:  # noqa: BLE001 - see above
            self.log.warning("What is kept for the next try cannot be told: %s", error)

    def on_kill(self) -> None:
        """End the application, also one that this try has only attached to."""
        self._killed.set()
        if self._attached_to is None or self._supervisor is None:
            super().on_kill()
            return
        claim = self._supervisor.claim(self._attached_to)
        if claim is None or not same_machine(claim) or process_is_gone(claim):
            self.log.warning(
                "Attempt %d runs on another machine and cannot be ended from here; end it in the cluster manager.",
                self._attached_to,
            )
            return
        self.log.info("Ending attempt %d, process %d", claim.epoch, claim.pid)
        os.kill(claim.pid, signal.SIGTERM)


def job_of(context: Context) -> JobId:
    """Return the identity of the task instance that *context* belongs to; its try number is no part of it."""
    instance = context["ti"]
    return JobId.of_task_instance(
        instance.dag_id, instance.run_id, instance.task_id, -1 if (index := instance.map_index) is None else index
    )
