"""The operator that is put in the place of ``SparkSubmitOperator``."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider.hooks.spark_recovery import SparkRecoveryHook
from airflow_provider.links.spark_recovery import LINKS
from airflow_provider.operators.conclusion import explain, failed_elsewhere, succeed
from airflow_provider.operators.driver import end_driver
from airflow_provider.operators.publication import publish
from airflow_provider.operators.retries import lost_between_tries
from airflow_provider.operators.run_conf import run_options
from airflow_provider.operators.supervisor import Ending, JobSupervisor
from airflow_provider.recovery.errors import RecoveryError
from airflow_provider.recovery.job import JobId
from airflow_provider.recovery.takeover import Attach, Resume, StartAfresh, Succeed, decide

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.storage.claims import Claim


class SparkRecoveryOperator(SparkSubmitOperator):
    """Submit a PySpark application that a retry resumes: every partition that survived is kept, the rest computed.

    All parameters and template fields of ``SparkSubmitOperator`` work. The application marks its recovery points with
    ``airflow_provider.spark.checkpoint``. A try attaches to a driver that still lives, succeeds at once if the driver
    finished while no worker was watching, resumes a lost or failed attempt, and starts afresh when a green task was
    cleared. Returns (as XCom) the report of the job: attempts, and per vertex partitions, reused, computed, rows,
    bytes and task-seconds saved.

    :param recovery_conn_id: connection of type ``spark_recovery``, with the event store and the options
    :param event_store: event store for this task in place of the connection's (templated)
    :param resume: ``auto`` or ``never`` (start afresh at every try), in place of the connection's (templated); a run
        whose conf has ``{"spark_recovery": {"resume": "never"}}`` overrides it
    :param recovery_options: further options by name, in place of the connection's, for example
        ``{"previous_worker_recovery_timeout": "2 min", "enabled": False}`` (templated)
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "event_store",
        "resume",
        "recovery_options",
    )

    operator_extra_links = LINKS

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
        self.aws_event_store = ""
        self._run_options: dict[str, str] = {}
        self._attached_to: Claim | None = None
        self._killed = False
        self._next_attempt: dict[str, Any] | None = None

    def _get_hook(self) -> SparkRecoveryHook:
        hook = SparkRecoveryHook.adopt(
            super()._get_hook(),
            recovery_conn_id=self.recovery_conn_id,
            event_store=self.event_store,
            recovery_options={**(self.recovery_options or {}), **({"resume": self.resume} if self.resume else {})},
            run_options=self._run_options,
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
            self._run_options = run_options(getattr(context.get("dag_run"), "conf", None))
            hook = self._get_hook()
            if not hook.enabled:
                super().execute(context)
                return None
            hook.require_recoverable(self.application)
            return self._execute(context, hook)
        except RecoveryError as error:
            raise (AirflowException if error.retryable else AirflowFailException)(str(error)) from error

    def _execute(self, context: Context, hook: SparkRecoveryHook) -> dict[str, Any] | None:
        self.aws_event_store = "" if hook.storage.endpoint_url else hook.settings.event_store
        publish(self, context["ti"], hook.location, self._task_log)
        hook.store.check()
        options = hook.settings.options
        if problem := lost_between_tries(self, options.retention):
            self.log.warning(problem)
        supervisor = JobSupervisor(hook.store, job_of(context), options, self._task_log)
        last = supervisor.last_attempt()
        decision = decide(last, options.resume)
        while isinstance(decision, Attach):
            ending = self._attach(supervisor, decision.epoch)
            if ending is Ending.FAILED:
                raise failed_elsewhere(supervisor, self._task_log, options.resume)
            if ending is Ending.FINISHED:
                return succeed(supervisor, self._task_log)
            last = supervisor.last_attempt(lost=decision.epoch)
            decision = decide(last, options.resume)
        if isinstance(decision, Succeed):
            self.log.info("Attempt %d has succeeded already, unseen; submitting nothing.", decision.epoch)
        else:
            self._submit(context, hook, supervisor, decision, last.epoch if last is not None else 0)
        return succeed(supervisor, self._task_log)

    def _attach(self, supervisor: JobSupervisor, epoch: int) -> Ending:
        self.log.info("Attempt %d is at work; attaching to it, submitting nothing.", epoch)
        self._attached_to = supervisor.claim(epoch)
        if self._attached_to is None:
            return Ending.LOST
        try:
            ending = supervisor.follow(self._attached_to, lambda: self._killed)
        finally:
            self._attached_to = None
        if self._killed:
            raise AirflowException("The task was ended while it followed the job.")
        return ending

    def _submit(
        self,
        context: Context,
        hook: SparkRecoveryHook,
        supervisor: JobSupervisor,
        decision: Resume | StartAfresh,
        last_epoch: int,
    ) -> None:
        """Run one attempt with upstream's own ways of submitting and waiting, which make their hook anew."""
        fresh = isinstance(decision, StartAfresh)
        self.log.info("Job %s: %s; %s.", job_of(context), "starting afresh" if fresh else "resuming", decision.reason)
        if fresh:
            self._forget_external_job(context, also_a_waiting_one=last_epoch > 0)
        self._next_attempt = {
            "job": job_of(context),
            "fresh": decision.reason if fresh and last_epoch else "",
            "previous_lost": last_epoch,
        }
        self._hook = None
        try:
            with supervisor.narrating(last_epoch) if hook.cluster_mode else contextlib.nullcontext():
                super().execute(context)
        except (AirflowFailException, RecoveryError):
            raise
        except Exception as failure:
            used = cast("SparkRecoveryHook | None", self._hook)
            explained = explain(
                failure,
                supervisor,
                self._task_log,
                resume=hook.settings.options.resume,
                last_epoch=last_epoch,
                exit_code=used.exit_code if used is not None else None,
                driver_error=used.driver_error if used is not None else "",
            )
            if explained is failure:
                raise
            raise explained from failure

    def is_job_succeeded(self, status: str) -> bool:
        """Whether the application that upstream's durable mode remembers has done this job already.

        One that succeeded before anybody claimed the job ran for something else: another run, or before a clearing.
        """
        never_claimed = self._next_attempt is not None and not self._next_attempt["previous_lost"]
        return super().is_job_succeeded(status) and not never_claimed

    def _forget_external_job(self, context: Context, *, also_a_waiting_one: bool) -> None:
        """Keep upstream's durable mode from taking the last run's application for this one.

        What it remembers outlives the clearing of a task: an application, and that a driver pod has succeeded.

        :param also_a_waiting_one: forget an application, too, that may not have started yet
        """
        state = context.get("task_state_store")
        if state is None or not self.durable:
            return
        state.delete(self._K8S_DRIVER_STATUS_KEY)
        if also_a_waiting_one:
            state.delete(self.external_id_key)

    def on_kill(self) -> None:
        """End the application, also one that this try has only attached to."""
        self._killed = True
        if self._attached_to is None:
            super().on_kill()
        else:
            end_driver(self._attached_to, self._task_log)


def job_of(context: Context) -> JobId:
    """Return the identity of the task instance that *context* belongs to; its try number is no part of it."""
    instance = context["ti"]
    return JobId.of_task_instance(
        instance.dag_id, instance.run_id, instance.task_id, -1 if (index := instance.map_index) is None else index
    )
