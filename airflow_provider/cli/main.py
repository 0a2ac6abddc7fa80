"""The command line: ``spark-recovery run | inspect | explain | discard | release | gc | demo``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from airflow_provider import __version__
from airflow_provider.cli import discard_command, explain_command, garbage_command
from airflow_provider.core.errors import RecoveryError
from airflow_provider.core.job import JobId
from airflow_provider.core.run_request import (
    EXIT_CONFIGURATION,
    EXIT_FAILED,
    add_run_arguments,
    add_store_arguments,
    run_request,
    storage_options,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the process's exit code: 2 for what has to be changed, 1 for what may pass by itself."""
    line = list(sys.argv[1:] if arguments is None else arguments)
    if line[:1] == ["demo"]:
        from airflow_provider.cli.demo import main as demo

        return demo(line[1:])
    parsed = _parser().parse_args(line)
    try:
        return int(parsed.action(parsed, line))
    except RecoveryError as error:
        print(f"spark-recovery: {error}", file=sys.stderr)  # noqa: T201 - this is the command's output
        return EXIT_FAILED if error.retryable else EXIT_CONFIGURATION


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line; only ``--help`` prints the usage.

    Options cannot be abbreviated: arguments after the script belong to the script, even if they look like an option.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_CONFIGURATION, f"spark-recovery: {message}. See '{self.prog} --help'.\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="spark-recovery", description="Run Spark jobs that go on from where they died, and look at them."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run",
        help="run a PySpark script with recovery, without Airflow",
        description="Run a PySpark script with recovery. Run it again with the same job id after a failure and it goes "
        "on from what survived. Exit codes: 0 success, 1 the script failed (run again to resume), 2 configuration, "
        "76 a newer run took over.",
    )
    add_run_arguments(run)
    run.set_defaults(action=_run)

    inspect = commands.add_parser(
        "inspect",
        help="show a job: attempts, vertices, partitions, what was reused",
        description="Show a job: its attempts, vertices, partitions, bytes, and what the newest attempt reused.",
    )
    add_store_arguments(inspect)
    inspect.add_argument("--job-id", required=True, metavar="ID", help="the job, as it was named for run")
    inspect.add_argument("--json", action="store_true", help="print JSON instead of a table")
    inspect.set_defaults(action=_inspect)

    explain = commands.add_parser("explain", help=explain_command.HELP, description=explain_command.DESCRIPTION)
    explain_command.add_arguments(explain)
    explain.set_defaults(action=lambda parsed, _: explain_command.run(parsed))

    for name, delete, what in (
        ("discard", False, "let the next attempt at a job start afresh"),
        ("release", True, "discard, and delete the job's stored partitions at once"),
    ):
        give_up = commands.add_parser(
            name,
            help=what,
            description=f"{what[0].upper()}{what[1:]}. Refused while a driver is at work. Needs --yes.",
        )
        discard_command.add_arguments(give_up)
        give_up.set_defaults(action=lambda parsed, _, delete=delete: discard_command.run(parsed, delete=delete))

    collect = commands.add_parser(
        "gc",
        help="list the jobs that nobody will resume any more, and delete them",
        description="List the jobs of which nothing has changed for the retention, and with --delete delete them. "
        "A job whose driver is at work is never touched.",
    )
    garbage_command.add_arguments(collect)
    collect.set_defaults(action=lambda parsed, _: garbage_command.run(parsed))

    commands.add_parser("demo", help="kill a real job under a real Airflow and see the retry resume", add_help=False)
    return parser


def _run(parsed: argparse.Namespace, line: list[str]) -> int:
    request = run_request(parsed)
    if "PYTHONHASHSEED" not in os.environ:
        # Under another hash seed, functions that close over sets pickle differently and would never match their last
        # run.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "airflow_provider.cli", *line])  # noqa: S606 - ourselves
    from airflow_provider.spark.runner import run  # slow to import, so only here

    return run(request)


def _inspect(parsed: argparse.Namespace, _: list[str]) -> int:
    from airflow_provider.core.report import build_report, format_report
    from airflow_provider.storage.inspection import inspect_job
    from airflow_provider.storage.uris import open_store

    job = JobId.parse(parsed.job_id)
    graph = inspect_job(open_store(parsed.event_store, storage_options(parsed)), job)
    report = build_report(str(job), graph)
    print(json.dumps(report.to_dict(), indent=2) if parsed.json else format_report(report))  # noqa: T201
    return 0
