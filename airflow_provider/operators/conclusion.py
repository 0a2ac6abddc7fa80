"""Conclude a try in Airflow's terms: return a result or an exception."""

from __future__ import annotations

import logging
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowSkipException

from airflow_provider.airflow.masking import masked
from airflow_provider.airflow.supervisor import JobSupervisor
from airflow_provider.airflow.telemetry import tell, tell_store_error
from airflow_provider.core.errors import RecoveryError
from airflow_provider.core.report import JobReport, format_report
from airflow_provider.core.run_request import EXIT_CONFIGURATION, EXIT_FAILED, EXIT_FENCED
from airflow_provider.core.savings import savings_text
from airflow_provider.hooks.spark_recovery import YARN_EXIT_CODE

_KILLED = (-9, 137)
"""Exit codes of what was ended by SIGKILL: as Python says it, and as shells do."""


def succeed(supervisor: JobSupervisor, log: logging.Logger) -> dict[str, Any] | None:
    """Report and acknowledge a job that has succeeded; return the value for XCom.

    The success stands even if the event store cannot be read or contradicts it.
    """
    try:
        report = supervisor.report()
        log.info("%s", format_report(report))
        recorded = supervisor.recorded(report)
        tell(report, log, recorded=recorded)
        if recorded:
            supervisor.acknowledge(report)
        else:
            log.warning(
                "The Spark application succeeded, but the event store has no record of that; if the task is cleared, "
                "it resumes in place of starting afresh."
            )
    except RecoveryError as error:
        log.warning("The Spark application succeeded, but its event store cannot be read: %s", error)
        tell_store_error(supervisor.job, log)
        return None
    told = report.to_dict()
    returned = {"returned": told.pop("returned")} if "returned" in told else {}  # by Airflow's rules for results
    return {**masked(told), **returned}


def failed_elsewhere(supervisor: JobSupervisor, log: logging.Logger, resume: str) -> AirflowException:
    """Return the exception for a failed job whose driver another worker started."""
    report = supervisor.report()
    log.info("%s", format_report(report))
    tell(report, log)
    return _failure(report, resume)


def explain(
    failure: Exception,
    supervisor: JobSupervisor,
    log: logging.Logger,
    *,
    resume: str,
    last_epoch: int,
    exit_code: int | None,
    driver_error: str,
) -> Exception:
    """Return the exception for *failure*: with the driver's own message if it left one, else *failure* itself.

    :param last_epoch: newest attempt before this try; its messages are not about this failure
    :param exit_code: the driver's exit code, if known
    :param driver_error: the runner's error message from its output
    """
    try:
        report = supervisor.report()
        if kept := supervisor.kept():
            log.info("Kept for the next try, partitions stored: %s", ", ".join(kept))
            log.info("%s", savings_text(report.retry, report.state))
    except Exception as problem:  # noqa: BLE001 - it must never hide the failure being handled
        log.warning("Cannot find out what is kept for the next try: %s", problem)
        tell_store_error(supervisor.job, log)
    else:
        if report.attempts and report.attempts[-1].epoch > last_epoch:
            tell(report, log)
            if report.attempts[-1].error:
                return _failure(report, resume)
    if told := YARN_EXIT_CODE.search(str(failure)):
        exit_code = int(told[1])
    if exit_code == EXIT_CONFIGURATION:
        return AirflowFailException(driver_error or str(failure))
    # A fenced driver ends its JVM with a signal, and that JVM may be spark-submit itself.
    fenced = exit_code in _KILLED and " is fenced: " in driver_error
    if driver_error and (exit_code in (EXIT_FAILED, EXIT_FENCED) or fenced):
        return AirflowException(driver_error)
    return failure


def _failure(report: JobReport, resume: str) -> AirflowException:
    """Return the exception for a job that failed by itself; if no retry can help, it makes Airflow skip the retries.

    In a driver that has Airflow, the exception that skips a task means what it means in one that runs on a worker.
    """
    newest = report.attempts[-1]
    raised, _, message = newest.error.partition(": ")
    if raised == AirflowSkipException.__name__:
        return AirflowSkipException(message)
    what = f"The Spark job failed in attempt {newest.epoch}: {newest.error or 'it did not say why'}".rstrip(".") + "."
    if newest.unrecoverable:
        goes_on = "it resumes" if resume == "auto" else "it starts afresh"
        return AirflowFailException(f"{what} No retry can help. Fix it and clear the task: {goes_on}.")
    return AirflowException(f"{what} A retry resumes it." if resume == "auto" else what)
