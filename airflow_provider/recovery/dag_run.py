"""Which DAG run a job belongs to, beyond its name: two Airflow deployments may give equal names, and so may a run that
was deleted and made again. Pure.
"""

from __future__ import annotations

from datetime import datetime


def run_mark(began: datetime | None, cleared: int | None) -> str:
    """Return what tells a DAG run from others of its name; empty text if nothing does.

    :param began: when the run began, which all of its tries see until it is cleared
    :param cleared: how often it was cleared
    """
    return f"{cleared or 0}@{began.isoformat()}" if began is not None else ""


def is_another_run(one: str, other: str) -> bool:
    """Whether two marks certainly are of two runs: cleared equally often, they began at different moments."""
    (cleared, _, began), (others_cleared, _, others_began) = one.partition("@"), other.partition("@")
    return bool(began and others_began) and cleared == others_cleared and began != others_began
