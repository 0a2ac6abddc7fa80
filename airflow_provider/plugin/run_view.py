"""What the page of a DAG run shows: each of its jobs in one line. Pure."""

from __future__ import annotations

from typing import Any

from airflow_provider.core.job_view import GONE

MOST_ROWS = 300
"""Task instances that are listed."""


def summary(view: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the numbers of a job (see :func:`airflow_provider.core.job_view.job_view`) that fit into one line."""
    if view is None:
        return None
    current = [vertex for vertex in view["vertices"] if vertex["state"] not in GONE]
    sums = {name: sum(vertex[name] for vertex in current) for name in ("reused", "computed", "lost", "missing")}
    kept = ("state", "attempt", "partitions", "stored", "reused", "computed", "bytes_reused", "task_seconds_saved")
    return {
        **{name: view[name] for name in kept},
        "stored_reused": sums["reused"],
        "stored_computed": sums["computed"],
        "lost": sums["lost"],
        "missing": sums["missing"],
    }
