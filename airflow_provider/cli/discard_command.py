"""``spark-recovery discard`` and ``release``: give up a job's recovery state."""

from __future__ import annotations

import argparse
import getpass

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.job import JobId
from airflow_provider.core.option_types import parse_duration
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.core.run_request import add_store_arguments, storage_options
from airflow_provider.storage.discarding import discard
from airflow_provider.storage.uris import open_store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of both commands."""
    add_store_arguments(parser)
    parser.add_argument("--job-id", required=True, metavar="ID", help="the job, as it was named for run")
    parser.add_argument(
        "--timeout",
        default=f"{RecoveryOptions().previous_worker_recovery_timeout:g} s",
        metavar="TIME",
        help="how long a heartbeat must stand still at least before its driver counts as lost (default: 30 s; never "
        "less than the driver's own claim says)",
    )
    parser.add_argument("--yes", action="store_true", help="do it; this cannot be undone")


def run(parsed: argparse.Namespace, *, delete: bool) -> int:
    """Discard a job's recovery state and print the result; return the exit code.

    :param delete: delete the stored objects at once
    :raises RecoveryError: an option is invalid, a driver is running, or the store is unusable
    """
    if not parsed.yes:
        what = "release deletes all that the job has stored" if delete else "discard deletes nothing at once"
        raise ConfigurationError(
            f"{what}, and the next attempt computes the whole job. This cannot be undone.", remedy="Add --yes to do it."
        )
    store = open_store(parsed.event_store, storage_options(parsed))
    prefix = JobId.parse(parsed.job_id).prefix
    by, timeout = _user(), parse_duration(parsed.timeout, "timeout")
    made, partitions = discard(store, prefix, by=by, timeout=timeout, delete=delete)
    said = f" {partitions:,} partitions deleted." if delete else ""
    print(f"Discarded up to attempt {made.epoch}. The next attempt starts afresh.{said}")  # noqa: T201
    return 0


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in a container
        return ""
