"""A real API server of Airflow, with its own database, users, and a task whose Spark job has failed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium.webdriver.remote.webdriver import WebDriver

from airflow_provider.cli.demo.demo_processes import Processes, free_port, wait_until
from airflow_provider.core.job import JobId
from airflow_provider.core.run_request import RunRequest
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.uris import open_store
from tests.plugin.auth import PASSWORD, USERS
from tests.support.quick_python import quick_airflow

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass
class Site:
    """Airflow as a browser meets it.

    :ivar orders: file with what the next driver does
    """

    url: str
    event_store: str
    orders: Path
    processes: Processes
    tokens: dict[str, str]

    @property
    def store(self) -> ObjectStore:
        return open_store(self.event_store)

    def client(self, user: str | None = "ann") -> httpx.Client:
        """A browser in which *user* has logged in, ``None``: nobody."""
        cookies = {"_token": self.tokens[user]} if user else {}
        return httpx.Client(base_url=self.url, cookies=cookies, timeout=60)

    def log_in(self, browser: WebDriver, user: str = "ann") -> None:
        """Let *user* have logged in in a real browser."""
        browser.get(f"{self.url}/spark-recovery/page.css")  # a cookie is set for the site that is shown
        browser.add_cookie({"name": "_token", "value": self.tokens[user], "path": "/"})

    def run(self, orders: str, dag_id: str = "etl") -> Run:
        """Run the DAG once; its Spark job does what the orders say."""
        self.orders.write_text(orders)
        airflow = str(Path(sys.executable).with_name("airflow"))
        done = subprocess.run(
            [airflow, "dags", "test", dag_id],
            env=self.processes.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        told = re.search(rf"running task <TaskInstance: {dag_id}\.job (\S+) ", done.stdout)
        assert told is not None, done.stdout + done.stderr
        return Run(self, dag_id, told[1])


@dataclass(frozen=True)
class Run:
    """A run of a DAG, with a Spark job."""

    site: Site
    dag_id: str
    run_id: str

    @property
    def job(self) -> JobId:
        return JobId.of_task_instance(self.dag_id, self.run_id, "job")

    def again(self, orders: str) -> None:
        """Run another driver of the same job, as the next try does."""
        self.site.orders.write_text(orders)
        request = RunRequest(self.site.event_store, self.job, "job.py", supervised=True)
        command = [
            sys.executable,
            "-m",
            "tests.plugin.ordered_driver",
            "spark_recovery_runner.py",
            *request.to_arguments(),
        ]
        done = subprocess.run(
            command, env=self.site.processes.environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert ("FAILED: ZeroDivisionError" in done.stderr) == ("fail" in orders), done.stdout + done.stderr

    def query(self, **changes: Any) -> dict[str, Any]:
        return {"dag_id": self.dag_id, "run_id": self.run_id, "task_id": "job", "map_index": -1, **changes}

    def see(self, user: str | None = "ann", **changes: Any) -> httpx.Response:
        with self.site.client(user) as client:
            return client.get("/spark-recovery/api/job", params=self.query(**changes))

    def view_of(self, attempt: int) -> dict[str, Any]:
        """What the page shows once it knows of *attempt*; it looks once in a second."""

        def look() -> dict[str, Any] | None:
            view: dict[str, Any] = self.see().json()["view"]
            return view if view["attempt"] == attempt else None

        return wait_until(f"attempt {attempt} on the page", look, timeout=20)

    def press(
        self,
        button: str,
        user: str | None = "ann",
        attempt: int = 1,
        headers: dict[str, str] | None = None,
        **changes: Any,
    ) -> httpx.Response:
        own = {"X-Spark-Recovery": "1", "Content-Type": "application/json"} if headers is None else headers
        with self.site.client(user) as client:
            return client.post(
                f"/spark-recovery/api/{button}",
                params=self.query(**changes),
                content=json.dumps({"attempt": attempt}),
                headers=own,
            )


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    event_store = f"file://{folder}/store"
    orders = folder / "orders"
    (folder / "bin").mkdir()
    submit = folder / "bin" / "spark-submit"
    submit.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.plugin.ordered_driver "$@"\n')
    submit.chmod(0o755)
    passwords = folder / "passwords.json"
    passwords.write_text(json.dumps(dict.fromkeys(USERS, PASSWORD)))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "AWS_", "SPARK_"))},
        "PATH": f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        **quick_airflow(ROOT),
        "DRIVER_ORDERS": str(orders),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__AUTH_MANAGER": "tests.plugin.auth.PerDagAuthManager",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in USERS.items()),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "AIRFLOW_CONN_SPARK_RECOVERY_DEFAULT": json.dumps(
            {"conn_type": "spark_recovery", "extra": {"event_store": event_store}}
        ),
    }
    (folder / "dags").mkdir()
    (folder / "dags" / "dags.py").write_text((HERE / "dags.py").read_text())
    logs = folder / "logs"
    logs.mkdir()
    processes = Processes(logs, environment)
    try:
        airflow = str(Path(sys.executable).with_name("airflow"))
        subprocess.run([airflow, "db", "migrate"], env=processes.environment, check=True, capture_output=True)
        processes.start("api-server", [airflow, "api-server", "--apps", "core"])

        def token(user: str) -> str:
            answer = httpx.post(f"{url}/auth/token", json={"username": user, "password": PASSWORD}, timeout=60)
            return str(answer.raise_for_status().json()["access_token"])

        def up() -> bool:
            try:
                return httpx.get(f"{url}/api/v2/version", timeout=5).status_code == 200
            except httpx.TransportError:
                processes.check()
                return False

        wait_until("Airflow's API server", up, timeout=120)
        yield Site(url, event_store, orders, processes, {user: token(user) for user in USERS})
    finally:
        processes.stop()


@pytest.fixture(scope="session")
def failed(site: Site) -> Run:
    """A run whose job stored two vertices of three and failed; tests that change a job make one of their own."""
    return site.run("a b fail")
