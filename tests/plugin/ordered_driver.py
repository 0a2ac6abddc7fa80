"""Stands for ``spark-submit``: a driver without Spark that does what its file of orders says, line by line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from airflow_provider.core.run_request import parse_run_arguments
from airflow_provider.core.task_time import ANY, TASK_TIME, Use, state_of
from airflow_provider.job.job_master import JobMaster
from airflow_provider.storage.uris import open_store
from tests.support.small_driver import VERTICES, run_vertices


def main() -> int:
    runner = next(i for i, text in enumerate(sys.argv) if text.endswith("spark_recovery_runner.py"))
    request = parse_run_arguments(sys.argv[runner + 1 :])
    store = open_store(request.event_store, request.storage)
    master = JobMaster(request, store, on_fenced=lambda _: os._exit(76))
    master.start()
    master.application_started("app-1", "http://127.0.0.1:4040")
    orders = Path(os.environ["DRIVER_ORDERS"]).read_text().split()
    log = Path(os.environ["DRIVER_ORDERS"]).with_name("computed")
    run_vertices(master, store, [name for name in VERTICES if name in orders], log)
    if "spent" in orders:
        used = {**{Use(name): 20.0 for name in master.graph.vertices}, Use(ANY, (ANY,)): 10.0}
        master.note(TASK_TIME, state_of(master.epoch, used))
    if "fail" in orders:
        master.failed("ZeroDivisionError: division by zero")
        return 1
    master.finished()
    return 0


if __name__ == "__main__":
    sys.exit(main())
