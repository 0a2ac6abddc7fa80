"""``spark-recovery explain``: show what is stored of a job, and what a retry would save now."""

from __future__ import annotations

import argparse
import json

from airflow_provider.core.explanation import explain_job
from airflow_provider.core.explanation_text import format_explanation
from airflow_provider.core.job import JobId
from airflow_provider.core.run_request import add_store_arguments, storage_options
from airflow_provider.storage.discarding import discard_in_force
from airflow_provider.storage.inspection import inspect_job
from airflow_provider.storage.uris import open_store

HELP = "show what was kept of a job, what was put back or skipped and why, and what a retry would save now"
DESCRIPTION = (
    "Show what was kept of a job that has run, or runs: for each attempt what it stored, what it put back and what it "
    "skipped and why; the recovery points as a tree above what they read; and what a retry would save now."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_store_arguments(parser)
    parser.add_argument("--job-id", required=True, metavar="ID", help="the job, as it was named for run")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a tree")


def run(parsed: argparse.Namespace) -> int:
    """Explain a job on standard output; return the exit code.

    :raises RecoveryError: the job has no records, or the store cannot be read
    """
    job = JobId.parse(parsed.job_id)
    store = open_store(parsed.event_store, storage_options(parsed))
    graph = inspect_job(store, job)
    newest = graph.newest.epoch if graph.newest is not None else 0
    found = discard_in_force(store, job.prefix, graph, before=newest + 1)
    told = explain_job(str(job), graph, found.reason if found is not None else "")
    print(json.dumps(told.to_dict(), indent=2) if parsed.json else format_explanation(told))  # noqa: T201
    return 0
