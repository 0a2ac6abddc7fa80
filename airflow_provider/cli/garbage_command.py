"""``spark-recovery gc``: remove old jobs and print the result, as a table for people or as JSON for programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.core.option_types import parse_duration
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.core.quantities import aligned
from airflow_provider.core.run_request import add_store_arguments, storage_options
from airflow_provider.storage.garbage import Verdict, collect
from airflow_provider.storage.uris import open_store

_WIDTH = 30
"""Characters of the progress bar."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_store_arguments(parser)
    parser.add_argument(
        "--older-than",
        default=RecoveryOptions.declared()["retention"].default,
        metavar="TIME",
        help="jobs of which nothing has changed for so long are garbage (default: %(default)s, as of 'retention')",
    )
    parser.add_argument("--delete", action="store_true", help="delete them; without it nothing is deleted")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(parsed: argparse.Namespace) -> int:
    """Collect a store's garbage and print the findings; return the exit code.

    :raises RecoveryError: an option is invalid, or the store is unusable
    """
    if parsed.older_than.strip()[-1:].isdecimal():
        raise ConfigurationError(
            f"--older-than {parsed.older_than} has no unit.", remedy="Write '7 days', '12 h' or '0 s', for example."
        )
    older_than = parse_duration(parsed.older_than, "older_than")
    store = open_store(parsed.event_store, storage_options(parsed))
    verdicts = collect(
        store,
        older_than=older_than,
        delete=parsed.delete,
        options=RecoveryOptions(),
        progress=_bar if sys.stderr.isatty() else lambda done, of: None,
    )
    print(json.dumps(to_dict(verdicts), indent=2) if parsed.json else table(verdicts))  # noqa: T201
    return 0


def to_dict(verdicts: Sequence[Verdict]) -> dict[str, object]:
    """Return plain values, ready for JSON."""
    jobs = [
        {
            **asdict(verdict.job),
            "job": verdict.job.name,
            "idle": round(verdict.idle, 3),
            "action": verdict.action,
            "reason": verdict.reason,
            "beside_outputs": list(verdict.beside),
        }
        for verdict in verdicts
    ]
    chosen = [verdict for verdict in verdicts if verdict.action != "keep"]
    return {"jobs": jobs, "garbage": len(chosen), "garbage_bytes": sum(verdict.job.bytes for verdict in chosen)}


def table(verdicts: Sequence[Verdict]) -> str:
    """Return an aligned table and a summary line."""
    header = ("job", "attempts", "success seen", "idle", "objects", "MiB", "")
    rows = [
        (
            verdict.job.name,
            f"{verdict.job.epoch:,}",
            "yes" if verdict.job.acknowledged else "no",
            _age(verdict.idle),
            f"{verdict.job.objects:,}",
            f"{verdict.job.bytes / 2**20:,.1f}",
            verdict.action + (f": {verdict.reason}" if verdict.reason else ""),
        )
        for verdict in verdicts
    ]
    lines = aligned([header, *rows], left=(0, len(header) - 1))
    chosen = [verdict for verdict in verdicts if verdict.action != "keep"]
    size = f"{sum(verdict.job.bytes for verdict in chosen) / 2**20:,.1f} MiB"
    beside = [folder for verdict in chosen for folder in verdict.beside]
    if beside:
        lines += ["Killed writes of these jobs have left beside their targets:", *(f"  {folder}" for folder in beside)]
    if any(verdict.action == "deleted" for verdict in chosen):
        remedy = " Delete those folders, which are not on a file system of this machine." if beside else ""
        return "\n".join([*lines, f"Deleted {len(chosen):,} of {len(verdicts):,} jobs, {size}.{remedy}"])
    hint = " Nothing was deleted; --delete does." if chosen else ""
    return "\n".join([*lines, f"{len(chosen):,} of {len(verdicts):,} jobs are garbage, {size}.{hint}"])


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{max(seconds, 0):,.0f} s"


def _bar(done: int, of: int) -> None:
    filled = _WIDTH * done // max(of, 1)
    end = "\n" if done == of else ""
    sys.stderr.write(f"\r[{'#' * filled}{' ' * (_WIDTH - filled)}] {done:,} of {of:,} jobs{end}")
    sys.stderr.flush()
