"""A real Airflow with DAGs of a test's own, and its task instances as a test meets them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_provider.cli.demo.demo_processes import DemoError, Processes, free_port, send, wait_until
from airflow_provider.cli.demo.local_airflow import LocalAirflow, airflow_environment, task_path
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.job import JobId
from airflow_provider.storage.claims import Claim, Claims, process_is_gone
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.processes import process_tree
from airflow_provider.storage.uris import open_store
from tests.support.quick_jvm import quick_jvms
from tests.support.quick_python import quick_airflow

LONG = 500.0
"""Seconds for anything that is waited for; a busy machine takes its time."""

QUICK_CONF = {"spark.ui.enabled": "false"}


class StagedAirflow(LocalAirflow):
    """With the buttons that a person has in the UI, and the processes of its components."""

    def __init__(self, processes: Processes) -> None:
        super().__init__(processes)
        self.components: dict[str, subprocess.Popen[bytes]] = {}

    def start_component(self, component: str) -> subprocess.Popen[bytes]:
        self.components[component] = super().start_component(component)
        return self.components[component]

    def mark(self, dag_id: str, run_id: str, task_id: str, state: str) -> None:
        self.call("PATCH", task_path(dag_id, run_id, task_id), {"new_state": state})

    def clear(self, dag_id: str, run_id: str, task_id: str) -> None:
        wanted = {"dry_run": False, "dag_run_id": run_id, "task_ids": [task_id], "only_failed": False}
        self.call("POST", f"/api/v2/dags/{dag_id}/clearTaskInstances", wanted)


@dataclass
class Stage:
    """A running Airflow.

    :ivar work: everything that it and its jobs write
    """

    airflow: StagedAirflow
    work: Path

    def run(self, dag: str, task: str, conf: Mapping[str, str]) -> TaskRun:
        """Trigger the DAG and return its task, whose job is recorded in the default connection's store."""
        return TaskRun(self, dag, task, self.airflow.trigger(dag, conf), self.store)

    @property
    def store(self) -> ObjectStore:
        return open_store(f"file://{self.work}/events")

    def restart_scheduler(self) -> None:
        """SIGKILL for the scheduler alone, not for the workers that it has forked, and another one in its place."""
        process = self.airflow.components["scheduler"]
        process.kill()
        process.wait()
        self.airflow.start_component("scheduler")


@dataclass
class TaskRun:
    """A task instance, and the Spark job that belongs to it."""

    stage: Stage
    dag: str
    task: str
    run_id: str
    store: ObjectStore
    map_index: int = -1

    @property
    def job(self) -> JobId:
        return JobId.of_task_instance(self.dag, self.run_id, self.task, self.map_index)

    @property
    def instance(self) -> dict[str, Any]:
        return self.stage.airflow.task_instance(self.dag, self.run_id, self.task, self.map_index)

    def wait_for(self, state: str, try_number: int | None = 1) -> None:
        """Wait for a state of Airflow's.

        :param try_number: in which try; ``None`` for any
        :raises AssertionError: it ended in another one, or is still in another one in the end
        """

        def reached() -> bool:
            now = self.instance
            wanted = now["state"] == state and try_number in (None, now["try_number"])
            if not wanted and now["state"] in ("failed", "success") and now["try_number"] >= (try_number or 0):
                raise AssertionError(f"{now['state']} in try {now['try_number']}:\n{self.logs()}")
            return wanted

        try:
            wait_until(f"{self.job} to be {state} in try {try_number}", reached, timeout=LONG)
        except DemoError as error:
            now, run = self.instance, self.stage.airflow.run_state(self.dag, self.run_id)
            told = f"It is {now['state']} in try {now['try_number']}, its run {run}:\n{self.logs()}"
            raise AssertionError(f"{error} {told}") from None

    def claim(self, epoch: int) -> Claim:
        """The claim of an attempt, once there is one."""
        claims = Claims(self.store, self.job.prefix)
        return wait_until(f"attempt {epoch} of {self.job}", lambda: claims.get(epoch), timeout=LONG)

    def graph(self) -> ExecutionGraph:
        """What its drivers have recorded."""
        return JobEventLog(self.store, self.job.prefix).replay().graph

    def wait_for_vertex(self, name: str) -> None:
        """Wait until a recovery point is stored as a whole."""

        def stored() -> bool:
            vertices = self.graph().vertices.values()
            return any(vertex.finished and vertex.initialized.name == name for vertex in vertices)

        wait_until(f"{name!r} of {self.job} to be stored", stored, timeout=LONG)

    def kill_driver(self, epoch: int) -> None:
        """SIGKILL, as a machine's memory killer does it; returns when it is gone."""
        claim = self.claim(epoch)
        os.kill(claim.pid, signal.SIGKILL)
        wait_until("the driver to be gone", lambda: process_is_gone(claim), timeout=LONG)

    def clear(self) -> None:
        """Let it run again, as a person does in the UI: when its run is over.

        A scheduler that is about to end the run, because its task has failed, would not see that it is cleared.
        """
        airflow = self.stage.airflow
        wait_until(
            f"{self.run_id} to be over",
            lambda: airflow.run_state(self.dag, self.run_id) in ("failed", "success"),
            timeout=LONG,
        )
        airflow.clear(self.dag, self.run_id, self.task)

    def logs(self, pattern: str = "*") -> str:
        """The task's logs; only those of a trigger, say, by their names' *pattern*."""
        folder = self.stage.work / "airflow" / "logs" / f"dag_id={self.dag}" / f"run_id={self.run_id}"
        folder /= f"task_id={self.task}" if self.map_index < 0 else f"task_id={self.task}/map_index={self.map_index}"
        return "\n".join(path.read_text() for path in sorted(folder.glob(pattern)) if path.is_file())

    def report(self) -> Any:
        """What the task has returned."""
        return self.stage.airflow.xcom(self.dag, self.run_id, self.task, "return_value", self.map_index)


@contextmanager
def airflow_stage(
    folder: Path,
    dag_files: Mapping[str, str],
    first_dag: str,
    *,
    connections: Mapping[str, Mapping[str, Any]] | None = None,
    settings: Mapping[str, str] | None = None,
    recovery_timeout: str = "3 s",
) -> Iterator[Stage]:
    """Run Airflow with API server, DAG processor and scheduler.

    :param dag_files: name to text of what is in its DAGs folder
    :param first_dag: a DAG that is waited for
    :param connections: beside Spark's, which is local, and the default event store, which is files
    :param settings: further environment variables
    :param recovery_timeout: for how long a heartbeat must stand still
    """
    dags, work = folder / "dags", folder / "work"
    for directory in (dags, work):
        directory.mkdir()
    for name, text in dag_files.items():
        (dags / name).write_text(text)
    recovery = {
        "event_store": f"file://{work}/events",
        "previous_worker_recovery_timeout": recovery_timeout,
        "write_buffer_flush_interval": "50 ms",  # a quick machine is through with a vertex in seconds
    }
    known = {
        "spark_default": {"conn_type": "spark", "host": "local[2]"},
        "spark_recovery_default": {"conn_type": "spark_recovery", "extra": recovery},
        **(connections or {}),
    }
    environment = {
        **airflow_environment(work, dags, free_port()),
        **quick_airflow(),
        **quick_jvms(),
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",  # many tasks import the DAG file at once, on two busy cores
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",  # they do not change
        **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(connection) for name, connection in known.items()},
        **(settings or {}),
    }
    processes = Processes(work / "logs", environment)
    try:
        airflow = StagedAirflow(processes)
        airflow.run("airflow-db", "db", "migrate")
        airflow.start(first_dag)
        yield Stage(airflow, work)
    finally:
        processes.stop()


def kill_everything(pid: int) -> None:
    """SIGKILL for a process and all that it has started, as when a machine is switched off: no goodbye."""
    send(signal.SIGKILL, process_tree(pid))
