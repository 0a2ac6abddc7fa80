"""The operator that replaces ``SparkSubmitOperator``."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider.airflow.cluster_managers import require_tracking
from airflow_provider.airflow.order import Outcome
from airflow_provider.airflow.recovery_connection import DEFAULT_CONN_ID, RecoveryConnection
from airflow_provider.airflow.recovery_settings import by_name, run_options
from airflow_provider.airflow.retries import lost_between_tries, mark_of, require_same_store, series_of, try_of
from airflow_provider.airflow.supervisor import Ending, JobSupervisor
from airflow_provider.core.errors import RecoveryError
from airflow_provider.core.job import JobId
from airflow_provider.core.takeover import Attach, LastAttempt, Resume, StartAfresh, Succeed, decide, only_retried
from airflow_provider.hooks.cluster_applications import (
    application_of,
    end_application,
    end_attempt,
    remembered_application,
)
from airflow_provider.hooks.spark_recovery import NextAttempt, SparkRecoveryHook
from airflow_provider.links.recovery_links import LINKS, publish
from airflow_provider.operators.conclusion import explain, failed_elsewhere, succeed
from airflow_provider.operators.deferral import Deferral, Deferring, default_deferrable, read_start_timeout
from airflow_provider.storage.checks import check_store

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


_FAIL, _TIMED_OUT = "__fail__", "Trigger timeout"
"""How Airflow says that a deferred task has taken too long."""


class SparkRecoveryOperator(Deferring, SparkSubmitOperator):
    """Submit a PySpark application that a retry resumes: surviving partitions are reused, the rest is computed.

    All parameters and template fields of ``SparkSubmitOperator`` work. The application may name recovery points with
    ``airflow_provider.spark.checkpoint``. A try attaches to a driver that is still alive, succeeds at once if the
    driver finished while no worker was watching, resumes a lost or failed attempt, and starts afresh if a successful
    task was cleared. Returns the job's report as XCom: attempts, and for each vertex partitions, reused, computed,
    rows, bytes and task-seconds saved.

    :param recovery_conn_id: connection of type ``spark_recovery``, with the event store and the options
    :param event_store: overrides the connection's event store for this task (templated)
    :param resume: ``auto`` or ``never`` (start every try afresh), overrides the connection's (templated); a run's conf
        ``{"spark_recovery": {"resume": "never"}}`` overrides both
    :param source_version: a name for the state of all sources without a version (JDBC, an RDD, what Python functions
        read): tries reuse what was computed from them while this text stays the same (templated)
    :param recovery_options: further options by name, which override the connection's, for example
        ``{"previous_worker_recovery_timeout": "2 min", "enabled": False}`` (templated)
    :param deferrable: hold no worker while the job runs: the triggerer follows it in the event store. Defaults to
        Airflow's ``[operators] default_deferrable``
    :param start_timeout: in deferrable mode, the time that a driver may take from submission to claiming the job,
        including the time in the cluster manager's queue
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "event_store",
        "resume",
        "source_version",
        "recovery_options",
    )

    operator_extra_links = LINKS

    def __init__(
        self,
        *,
        recovery_conn_id: str = DEFAULT_CONN_ID,
        event_store: str | None = None,
        resume: str | None = None,
        source_version: str | None = None,
        recovery_options: dict[str, Any] | None = None,
        deferrable: bool | None = None,
        start_timeout: timedelta | float = timedelta(hours=6),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.recovery_conn_id = recovery_conn_id
        self.event_store = event_store
        self.resume = resume
        self.source_version = source_version
        self.recovery_options = recovery_options
        self.deferrable = default_deferrable() if deferrable is None else deferrable
        self.start_timeout = read_start_timeout(start_timeout)
        self.aws_event_store = ""
        self._run_options: dict[str, str] = {}
        self._end_attached: Callable[[], None] | None = None
        self._killed = False
        self._next_attempt: NextAttempt | None = None
        self._only_retried = True

    def _get_hook(self) -> SparkRecoveryHook:
        remedy = "Give a dictionary; one that a template makes needs render_template_as_native_obj=True on the DAG."
        own = by_name(self.recovery_options, "The operator's recovery_options", remedy) | self._own_options
        made = super()._get_hook()
        recovery = RecoveryConnection(self.recovery_conn_id, self.event_store, own, made._conf, self._run_options)
        hook = SparkRecoveryHook.adopt(made, recovery)
        if self._next_attempt is not None:
            hook.prepare(self._next_attempt)
        if not self._waits:
            hook.do_not_wait(self._output)
        return hook

    @property
    def _own_options(self) -> dict[str, str]:
        """The options that have their own parameters."""
        given = {"resume": self.resume, "source_version": self.source_version}
        return {name: value for name, value in given.items() if value}

    @cached_property
    def _task_log(self) -> logging.Logger:
        return cast("logging.Logger", self.log)

    def execute(self, context: Context) -> dict[str, Any] | None:  # type: ignore[override]  # upstream: None
        """Attach, succeed or submit, depending on the last attempt; return the job's report.

        :raises AirflowFailException: the configuration is wrong; a retry cannot help
        :raises AirflowException: the job failed; a retry resumes it
        """
        with _in_airflows_terms():
            hook = self._hook_for(context)
            if not hook.recovery.enabled:
                super().execute(context)
                return None
            hook.require_recoverable(self.application)
            require_tracking(
                yarn_cluster=hook._is_yarn_cluster_mode,
                durable=bool(getattr(self, "durable", False)),
                tracked=self._yarn_track_via_rm_api,
            )
            return self._execute(context, hook)

    def execute_complete(self, context: Context, event: Any = None, **kept: Any) -> dict[str, Any] | None:
        """Continue after the trigger has ended: conclude, or defer again.

        :param event: the trigger's outcome (see :class:`airflow_provider.airflow.order.Outcome`)
        :param kept: the task's state (see :class:`airflow_provider.operators.deferral.Deferral`)
        :raises AirflowFailException: a retry cannot help
        :raises AirflowException: the job failed, or its driver is lost; a retry resumes it
        """
        with _in_airflows_terms():
            hook = self._hook_for(context)
            return self._resumed(
                context, hook, job_of(context), Outcome.from_payload(event), Deferral.from_kwargs(kept)
            )

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Continue after a deferral; if it timed out, end the driver first, as a timeout in a worker does."""
        if next_method == _FAIL and (next_kwargs or {}).get("error") == _TIMED_OUT:
            try:
                hook = self._hook_for(context)
                application = remembered_application(hook._connection["master"], self._remembered_id(context))
                self._timed_out(hook, job_of(context), application)
                hook._run_post_submit_commands()
            except Exception as error:  # noqa: BLE001 - it must not hide the timeout
                self.log.warning("The driver could not be ended: %s", error)
        return super().resume_execution(next_method, next_kwargs, context)

    def _hook_for(self, context: Context) -> SparkRecoveryHook:
        self.conf = self.conf or {}
        self._run_options = run_options(getattr(context.get("dag_run"), "conf", None))
        return self._get_hook()

    def _execute(
        self, context: Context, hook: SparkRecoveryHook, lost: int = 0, beat: int = -1
    ) -> dict[str, Any] | None:
        recovery = hook.recovery
        self.aws_event_store = "" if recovery.storage.endpoint_url else recovery.settings.event_store
        publish(self, context["ti"], recovery.location, self._task_log)
        check_store(recovery.store)
        options = recovery.settings.options
        if problem := lost_between_tries(self, options.retention):
            self.log.warning(problem)
        supervisor = JobSupervisor(
            recovery.store, job_of(context), options, self._task_log, mark_of(context), try_of(context)
        )
        supervisor.last_beat = beat
        last = supervisor.last_attempt(lost)
        series = series_of(context, self.retries)
        decision = decide(last, options.resume, series, supervisor.try_number)
        while isinstance(decision, Attach):
            ending = self._attach(context, hook, supervisor, decision.epoch)
            if ending is Ending.FAILED:
                hook._run_post_submit_commands()
                raise failed_elsewhere(supervisor, self._task_log, options.resume)
            if ending is Ending.FINISHED and only_retried(supervisor.series(decision.epoch), series):
                hook._run_post_submit_commands()
                return succeed(supervisor, self._task_log)
            last = supervisor.last_attempt(lost=decision.epoch)
            decision = decide(last, options.resume, series, supervisor.try_number)
        if isinstance(decision, Succeed):
            self.log.info("Attempt %d has succeeded already; submitting nothing.", decision.epoch)
            hook._run_post_submit_commands()
        else:
            self._submit(context, hook, supervisor, decision, last)
        report = succeed(supervisor, self._task_log)
        if report is None or report["state"] != "FINISHED":
            # Only upstream's memory says that it succeeded; after the task is cleared, the job would not run again.
            try:
                self._forget_external_job(context)
            except Exception as error:  # noqa: BLE001 - whatever a backend raises, the job has succeeded
                self.log.warning("Airflow does not forget the application of this try: %s", error)
        return report

    def _attach(self, context: Context, hook: SparkRecoveryHook, supervisor: JobSupervisor, epoch: int) -> Ending:
        self.log.info("Attempt %d is at work; attaching to it, submitting nothing.", epoch)
        if self.deferrable and not self._killed:
            self._defer_attached(hook.recovery, job_of(context), epoch)
        claim = supervisor.claim(epoch)
        if claim is None:
            return Ending.LOST
        remembered, mark = self._remembered_id(context), hook.recovery.mark_of(job_of(context))

        def end() -> None:
            application = application_of(
                hook._connection["master"],
                cluster_mode=hook.cluster_mode,
                namespace=hook._connection["namespace"] or "",
                host=claim.host,
                recorded=supervisor.application_id(epoch),
                remembered=remembered,
            )
            end_attempt(claim, application, mark, hook, lambda: supervisor.fence(claim), self._task_log)
            hook._run_post_submit_commands()

        # Stays set if following fails: Airflow asks to end the application after it has raised a timeout.
        self._end_attached = end
        if self._killed:  # killed before there was anything to end
            end()
        ending = supervisor.follow(claim, lambda: self._killed)
        self._end_attached = None
        if self._killed:
            raise AirflowException("The task was ended while it followed the job.")
        return ending

    def _submit(
        self,
        context: Context,
        hook: SparkRecoveryHook,
        supervisor: JobSupervisor,
        decision: Resume | StartAfresh,
        last: LastAttempt | None,
    ) -> None:
        """Run one attempt with upstream's own code for submitting and waiting, which creates a new hook.

        :raises AirflowException: the task was ended before; Airflow lets it run on for seconds
        """
        if self._killed:
            raise AirflowException("The task was ended before it submitted anything.")
        fresh, last_epoch = isinstance(decision, StartAfresh), last.epoch if last is not None else 0
        series = series_of(context, self.retries)
        require_same_store(context, series, hook.settings.event_store.rstrip("/"))
        self._only_retried = last is not None and only_retried(last.series, series)
        self.log.info("Job %s: %s; %s.", job_of(context), "starting afresh" if fresh else "resuming", decision.reason)
        if fresh and last_epoch:
            self._end_waiting_job(context, hook)
        if fresh or not self._only_retried:
            self._forget_external_job(context, also_a_waiting_one=fresh and last_epoch > 0)
        self._next_attempt = NextAttempt(
            job_of(context),
            decision.reason if fresh and last_epoch else "",
            last_epoch,
            supervisor.last_beat,
            supervisor.run,
            series,
        )
        self._hook = None
        if self.deferrable:
            self._do_not_wait(hook, job_of(context))
        wait = hook.cluster_mode and not self.deferrable
        try:
            with supervisor.narrating(last_epoch) if wait else contextlib.nullcontext():
                super().execute(context)
            if self.deferrable:
                submitting = cast("SparkRecoveryHook", self._hook)
                self._defer_submitted(submitting, hook.recovery, job_of(context), last_epoch)
        except (AirflowFailException, RecoveryError):
            raise
        except Exception as failure:
            used = cast("SparkRecoveryHook | None", self._hook)
            if used is not None:
                used.run_held_commands()
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
        """Whether the application that upstream's durable mode remembers has already done this job.

        An application that succeeded before any driver claimed the job, or before the task was cleared, ran for
        something else. Without recovery, nothing else is known than upstream knows.
        """
        return super().is_job_succeeded(status) and self._only_retried

    def poll_until_complete(self, external_id: Any, context: Context) -> None:
        """Wait for an application, so that it can be ended, even one that upstream's durable mode found again."""
        hook = cast("SparkRecoveryHook | None", self._hook)
        if hook is not None and hook._is_yarn and hook._yarn_application_id is None:
            hook._yarn_application_id = external_id
        super().poll_until_complete(external_id, context)

    def _remembered_id(self, context: Context) -> str:
        """Return this task's last application as upstream's durable mode remembers it; empty text if there is none."""
        state = context.get("task_state_store")
        return str(state.get(self.external_id_key) or "") if state is not None and self.durable else ""

    def _end_waiting_job(self, context: Context, hook: SparkRecoveryHook) -> None:
        """End this task's submitted application that has not started yet, when the job is to start afresh.

        Left alone, it would start one day and fence the application that is submitted now.
        """
        application = remembered_application(hook._connection["master"], self._remembered_id(context))
        if application is None:
            return
        try:
            waits = self.is_job_active(self.get_job_status(self._remembered_id(context), context))
        except Exception as error:  # noqa: BLE001 - whatever the cluster manager's client raises, the job can start
            self.log.warning("Cannot find out how %s ended: %s", application, error)
            return
        if waits:
            end_application(application, hook.recovery.mark_of(job_of(context)), hook, self._task_log)

    def _forget_external_job(self, context: Context, *, also_a_waiting_one: bool = True) -> None:
        """Keep upstream's durable mode from mistaking the last run's application for this one.

        Its memory survives the clearing of a task: an application, and that a driver pod succeeded.

        :param also_a_waiting_one: also forget an application that may not have started yet
        """
        state = context.get("task_state_store")
        if state is None or not self.durable:
            return
        state.delete(self._K8S_DRIVER_STATUS_KEY)
        if also_a_waiting_one:
            state.delete(self.external_id_key)

    def on_kill(self) -> None:
        """End the application, even one that this try only attached to."""
        self._killed = True
        if self._end_attached is None:
            super().on_kill()
        else:
            self._end_attached()


@contextlib.contextmanager
def _in_airflows_terms() -> Iterator[None]:
    """Turn our errors into the exceptions by which Airflow decides about a retry."""
    try:
        yield
    except RecoveryError as error:
        raise (AirflowException if error.retryable else AirflowFailException)(str(error)) from error


def job_of(context: Context) -> JobId:
    """Return the job of *context*'s task instance; the try number is not part of it."""
    instance = context["ti"]
    return JobId.of_task_instance(
        instance.dag_id, instance.run_id, instance.task_id, -1 if (index := instance.map_index) is None else index
    )
