"""What the page of a DAG run shows: each of its jobs in one line. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider.plugin.access import TaskInstanceRef
from airflow_provider.plugin.location import Instance, Location

MOST_ROWS = 300
"""Task instances that are listed."""

Job = tuple[TaskInstanceRef, Instance, Location | None]

_FIRST = ("running", "restarting", "deferred", "failed", "up_for_retry", "queued", "scheduled")
"""States whose jobs somebody wants to see first; where there are many, the others are not looked up."""


def in_order(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs as they are listed: those that need somebody's eye first."""

    def rank(job: Job) -> tuple[int, str, int]:
        task, instance, _ = job
        return _FIRST.index(instance.state) if instance.state in _FIRST else len(_FIRST), task.task_id, task.map_index

    return sorted(jobs, key=rank)


def summary(view: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the numbers of a job (see :func:`airflow_provider.recovery.job_view.job_view`) that fit into one line."""
    if view is None:
        return None
    current = [vertex for vertex in view["vertices"] if vertex["state"] != "SUPERSEDED"]
    sums = {name: sum(vertex[name] for vertex in current) for name in ("reused", "computed", "lost", "missing")}
    kept = ("state", "attempt", "partitions", "stored", "reused", "computed", "bytes_reused", "task_seconds_saved")
    return {
        **{name: view[name] for name in kept},
        "stored_reused": sums["reused"],
        "stored_computed": sums["computed"],
        "lost": sums["lost"],
        "missing": sums["missing"],
    }
