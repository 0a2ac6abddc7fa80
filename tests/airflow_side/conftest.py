"""Connections as a deployment gives them (environment variables), and tries of a task in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.core.job import JobId
from airflow_provider.storage.uris import open_store
from tests.airflow_side.executing import Connect, claims, operator, submits, yarn  # noqa: F401 - fixtures, for all tests here
from tests.airflow_side.worker import TASK_INSTANCE
from tests.support.driver import JOBS
from tests.support.quick_jvm import QUICK_JVM
from tests.support.quick_python import quick_airflow


@pytest.fixture(autouse=True)
def airflow_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection, variable or setting of the machine is seen."""
    for name in list(os.environ):
        if name.startswith(("AIRFLOW_CONN_", "AWS_", "SPARK_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(autouse=True)
def frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for a driver in this process looks often, not each second or two."""
    for name in ("storage.liveness._SLOWEST_POLL", "airflow.supervisor._POLL", "operators.deferral._POLL"):
        monkeypatch.setattr(f"airflow_provider.{name}", 0.05)


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Make a connection, as ``AIRFLOW_CONN_<ID>``."""

    def make(conn_id: str, conn_type: str, **parts: Any) -> None:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": conn_type, **parts}))

    return make


@dataclass
class Tries:
    """Tries of one task, each by a worker of its own, with a file event store.

    :ivar python: of the drivers and their executors
    """

    folder: Path
    task: dict[str, Any]
    python: str = sys.executable

    @property
    def store(self) -> Any:
        return open_store(f"file://{self.folder}/store")

    @property
    def job(self) -> JobId:
        names = ("dag_id", "run_id", "task_id", "map_index")
        return JobId(tuple(str(TASK_INSTANCE[name]) for name in names))

    def command(self, **changes: Any) -> list[str]:
        given = {"task": {**self.task, **changes}}
        return [sys.executable, "-m", "tests.airflow_side.worker", json.dumps(given)]

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **quick_airflow(),
            "AIRFLOW_HOME": str(self.folder / "airflow"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYSPARK_PYTHON": self.python,
        }

    def run(self, **changes: Any) -> tuple[int, str]:
        """Run a try to its end; return exit code and log."""
        done = subprocess.run(
            self.command(**changes),
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=180,
            check=False,
        )
        return done.returncode, done.stdout

    def start(self, log: Path, **changes: Any) -> subprocess.Popen[bytes]:
        """Start a try whose worker can be killed without its driver."""
        with log.open("wb") as out:
            return subprocess.Popen(
                self.command(**changes),
                env=self.environment(),
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def xcom(log: str) -> Any:
    """What the worker returned: its last line."""
    return json.loads(log.strip().splitlines()[-1])


@pytest.fixture
def tries(tmp_path: Path, connect: Connect) -> Tries:
    rows = range(2000)
    source = tmp_path / "orders.parquet"
    pq.write_table(
        pa.table({"customer": [row * 7919 % 300 for row in rows], "amount": [row % 97 for row in rows]}), source
    )
    connect("spark_default", "spark", host="local[2]")
    connect("spark_recovery_default", "spark_recovery", extra={"event_store": f"file://{tmp_path}/store"})
    task = {
        "application": str(JOBS / "two_vertices.py"),
        "application_args": [str(source), str(tmp_path / "out")],
        "conf": {"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": f"-Dlog4j2.level=warn {QUICK_JVM}"},
    }
    return Tries(tmp_path, task)
