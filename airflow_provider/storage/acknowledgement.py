"""Taking notice of a job's success: first what nobody needs any more goes, then the notice is left. One order for all.

A process may die between the two. In this order it leaves a success that is still unseen: whoever looks next finds the
job finished, releases the rest, which is harmless to repeat, and takes notice. In the other order it would leave a job
that looks as if somebody had seen its success and cleared its task: the next try would compute everything again, and
nothing would ever release what was left.
"""

from __future__ import annotations

import logging

from airflow_provider.core.errors import RecoveryError
from airflow_provider.core.report import JobReport
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.clearing import release_all
from airflow_provider.storage.object_store import ObjectStore


def take_notice(store: ObjectStore, prefix: str, report: JobReport, log: logging.Logger, *, keep: bool = False) -> None:
    """Release the partitions of a job that has succeeded, then acknowledge its newest attempt.

    Only what that attempt and earlier ones wrote is released: somebody may have started the job afresh meanwhile.

    A failing store is a warning only, because the success stands. Partitions that could not be released are no reason
    to leave the success unseen: nothing reuses them, since whoever finds the notice starts afresh.

    :param keep: leave the partitions where they are
    """
    epoch = report.attempts[-1].epoch
    if not keep:
        try:
            release_all(store, prefix, up_to=epoch)
        except RecoveryError as error:
            log.warning("The job succeeded, but its partitions could not be released: %s", error)
    try:
        Claims(store, prefix).acknowledge(epoch, report.to_dict())
    except RecoveryError as error:
        log.warning("The job succeeded, but its event store could not take note of that: %s", error)
