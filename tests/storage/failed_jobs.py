"""Jobs that fail after some events."""

from __future__ import annotations

from pathlib import Path

from airflow_provider.core.run_request import RunRequest
from airflow_provider.job.job_master import JobMaster
from airflow_provider.storage.object_store import ObjectStore
from tests.support.small_driver import REQUEST, run_vertices

JOB = REQUEST.job


def fail_after(store: ObjectStore, folder: Path, *vertices: str, request: RunRequest = REQUEST) -> JobMaster:
    """An attempt that stores *vertices* and fails."""
    master = JobMaster(request, store, on_fenced=lambda _: None)
    assert master.start()
    run_vertices(master, store, vertices, folder / "computed")
    master.failed("by chance")
    return master
