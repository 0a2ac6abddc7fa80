"""``spark-recovery explain``: its arguments and its answer."""

from __future__ import annotations

import argparse
import json

from airflow_provider.recovery.options import RecoveryOptions
from airflow_provider.recovery.run_request import EXIT_FAILED

HELP = "show where auto mode would place recovery points in a script, without running it in earnest"
DESCRIPTION = (
    "Show, for each action of a PySpark script, its optimized plan and the recovery points that auto mode would place "
    "in it. No Spark job of the script runs and nothing is written by Spark: actions return as if there were no rows. "
    "All else that the script does is done, what its Python code does to files included. A script whose way depends "
    "on results may take another way or fail: what was seen until then is shown. Spark's settings come from "
    "PYSPARK_SUBMIT_ARGS and spark-defaults.conf. Exit codes: 0 success, 1 the script went no further, 2 configuration."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    budget = RecoveryOptions().overhead_budget
    parser.add_argument(
        "--overhead-budget",
        metavar="VALUE",
        help=f"seconds that storing may take for one second of computing (default: {budget})",
    )
    parser.add_argument(
        "--cores", type=_cores, default=0, metavar="N", help="tasks side by side on your cluster (default: as here)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of trees")
    parser.add_argument(
        "command", nargs=argparse.PARSER, metavar="app.py", help="your PySpark script and its arguments"
    )


def run(parsed: argparse.Namespace) -> int:
    """Explain a script on standard output; what it prints itself goes to standard error."""
    from airflow_provider.spark.explain.script import explain
    from airflow_provider.spark.explain.text import format_explanation

    application, *arguments = parsed.command[1:] if parsed.command[0] == "--" else parsed.command
    options = RecoveryOptions.from_mapping({"overhead_budget": parsed.overhead_budget})
    told = explain(application, tuple(arguments), options.overhead_budget, parsed.cores)
    print(json.dumps(told.to_dict(), indent=2) if parsed.json else format_explanation(told))  # noqa: T201
    return EXIT_FAILED if told.error else 0


def _cores(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number
