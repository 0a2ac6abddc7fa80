"""Run a real Airflow for the demo: SQLite, LocalExecutor, a scheduler with short intervals.

Its components are started one by one instead of with ``airflow standalone``, which adds a triggerer and takes twice as
long.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import tenacity

from airflow_provider.cli.demo.demo_processes import DemoError, Processes, wait_until

BOOT_TIMEOUT = 180.0
"""Seconds; ten are usual on two idle cores."""


def airflow_environment(work: Path, dags: Path, port: int) -> dict[str, str]:
    """Return the environment for Airflow and its child processes, without the caller's Airflow, Spark and AWS settings.

    Creates the folders that it names, all inside *work*, so that removing *work* leaves nothing behind.

    :param work: an empty folder
    :param dags: the DAGs folder
    :param port: of the API server, on loopback
    """
    home, temporary = work / "airflow", work / "tmp"
    for folder in (home, temporary, work / "logs"):
        folder.mkdir()
    foreign = ("AIRFLOW_", "AWS_", "SPARK_", "PYSPARK_", "HADOOP_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    url = f"http://127.0.0.1:{port}"
    settings: dict[str, dict[str, object]] = {
        "core": {
            "dags_folder": dags,
            "load_examples": False,
            "dags_are_paused_at_creation": False,
            "parallelism": 4,
            "execution_api_server_url": f"{url}/execution/",
            "simple_auth_manager_all_admins": True,
        },
        "api": {"host": "127.0.0.1", "port": port, "base_url": url},
        "scheduler": {"scheduler_idle_sleep_time": 0.2},
        "dag_processor": {"refresh_interval": 5, "parsing_processes": 1},
        "logging": {"colored_console_log": False},
    }
    for section, options in settings.items():
        for name, value in options.items():
            environment[f"AIRFLOW__{section}__{name}".upper()] = str(value)
    return environment | {
        "AIRFLOW_HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', os.defpath)}",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(temporary),
        "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={temporary}",
        "TMPDIR": str(temporary),
        "NO_PROXY": "127.0.0.1,localhost",
    }


def _is_server_error(error: BaseException) -> bool:
    return isinstance(error, urllib.error.HTTPError) and error.code >= HTTPStatus.INTERNAL_SERVER_ERROR


class LocalAirflow:
    """Drives Airflow as a user would: its command line and its REST API.

    :param processes: made with :func:`airflow_environment`
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._home = Path(processes.environment["AIRFLOW_HOME"])
        self._token = ""
        self.url = processes.environment["AIRFLOW__API__BASE_URL"]
        self._command = str(shutil.which("airflow", path=processes.environment["PATH"]))

    def run(self, name: str, *arguments: str) -> None:
        """Run an ``airflow`` command and wait for it. :raises DemoError: it failed"""
        process = self._processes.start(name, [self._command, *arguments])
        self._processes.finish(name, process, BOOT_TIMEOUT)

    def add_connections(self, connections: Mapping[str, Mapping[str, Any]]) -> None:
        """Add all connections with one command, as ``airflow connections add`` does."""
        path = self._home / "connections.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(connections))
        self.run("airflow-connections", "connections", "import", str(path))

    def start(self, dag_id: str) -> None:
        """Start API server, DAG processor and scheduler, and wait until they have loaded the DAG."""
        for component in ("api-server", "dag-processor", "scheduler"):
            self.start_component(component)
        wait_until("Airflow's API", self._log_in, timeout=BOOT_TIMEOUT)
        wait_until(f"Airflow to find the DAG {dag_id}", lambda: self._knows(dag_id), timeout=BOOT_TIMEOUT)

    def start_component(self, component: str) -> subprocess.Popen[bytes]:
        """Start a component of Airflow, such as ``triggerer``, and return its process."""
        return self._processes.start(f"airflow-{component}", [self._command, component])

    def trigger(self, dag_id: str, conf: Mapping[str, Any]) -> str:
        """Start a run of the DAG and return its id."""
        run_id = f"manual__{datetime.now(UTC).isoformat()}"
        wanted = {"dag_run_id": run_id, "logical_date": None, "conf": dict(conf)}
        try:
            self.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", wanted)
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.CONFLICT:  # an earlier request that got no answer has started it
                raise
        return run_id

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return the state of a run: ``queued``, ``running``, ``success`` or ``failed``."""
        return str(self.call("GET", f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}")["state"])

    def task_instance(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> dict[str, Any]:
        """Return Airflow's record of a task instance, with ``state`` and ``try_number``."""
        return dict(self.call("GET", task_path(dag_id, run_id, task_id, map_index)))

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str, map_index: int = -1) -> Any:
        """Return a task's XCom value."""
        path = f"{task_path(dag_id, run_id, task_id)}/xcomEntries/{key}?map_index={map_index}"
        return self.call("GET", f"{path}&deserialize=false&stringify=false")["value"]

    def task_log(self, dag_id: str, run_id: str, task_id: str) -> Path | None:
        """Return the log file of a task's newest try."""
        folder = self._home / "logs" / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task_id}"
        tries = sorted(folder.glob("attempt=*.log"), key=lambda path: path.stat().st_mtime)
        return tries[-1] if tries else None

    def _log_in(self) -> bool:
        self._processes.check()
        try:
            self._token = str(self.call("GET", "/auth/token")["access_token"])
        except OSError:
            return False
        return True

    def _knows(self, dag_id: str) -> bool:
        self._processes.check()
        errors = self.call("GET", "/api/v2/importErrors")["import_errors"]
        if errors:
            raise DemoError(f"Airflow cannot import {errors[0]['filename']}:\n{errors[0]['stack_trace']}")
        try:
            self.call("GET", f"/api/v2/dags/{dag_id}")
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return False
            raise
        return True

    @tenacity.retry(
        retry=tenacity.retry_if_exception(_is_server_error),
        stop=tenacity.stop_after_attempt(4),
        wait=tenacity.wait_random_exponential(multiplier=0.5),
        reraise=True,
    )
    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the API's JSON answer. Repeats the request after a server error: with SQLite, components can wait too
        long for each other.
        """
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)


def task_path(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    """Return the API's path of a task instance."""
    path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/{task_id}"
    return path if map_index < 0 else f"{path}/{map_index}"
