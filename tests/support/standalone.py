"""A Spark standalone cluster for tests: a master and workers on loopback, from the Spark that is installed.

Each daemon is a JVM of its own and a child of this process, on ports that it finds free. Nothing outlives the process,
not even if it is killed: an executor ends by itself when its worker is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider.storage.processes import process_tree
from tests.support.quick_jvm import QUICK_JVM
from tests.support.s3_gateway import die_with_parent
from tests.support.waiting import wait_until

_START_TIMEOUT = 120.0
_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
_DAEMON = {
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
    "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_NO_DAEMONIZE": "1",
}

EXECUTOR_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JVM,
}
"""Settings for a driver whose executors are to fit such a worker, and to start quickly."""


@dataclass
class Daemon:
    """A master or a worker: its process, and what it has written."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self, pattern: str) -> str:
        """The first group of what matches in its log; empty text as long as nothing does.

        :raises AssertionError: it has ended
        """
        text = self.log.read_text(errors="replace")
        if (found := re.search(pattern, text)) is not None:
            return found[1]
        assert self.process.poll() is None, f"it has ended:\n{text[-3000:]}"
        return ""

    def executors(self) -> list[int]:
        """Ids of the executors' processes below this worker."""
        return [pid for pid in process_tree(self.process.pid) if _EXECUTOR in _command(pid)]

    def kill(self) -> None:
        """End it with SIGKILL, without its executors, which see for themselves that it is gone."""
        self.process.kill()
        self.process.wait()


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@dataclass
class StandaloneCluster:
    """A running cluster.

    :ivar url: ``spark://127.0.0.1:port``
    :ivar environment: what the daemons, and so the executors, have in their environment beside this process's
    :ivar cores: of each worker
    """

    folder: Path
    url: str
    master: Daemon
    environment: Mapping[str, str]
    workers: list[Daemon] = field(default_factory=list)
    cores: int = 1

    def add_worker(self, environment: Mapping[str, str] | None = None) -> Daemon:
        """Start one more worker with 1 GiB for each core; it registers in a moment, see :meth:`wait_for_workers`.

        :param environment: of its own
        """
        number = len(list(self.folder.glob("worker-*.log")))
        size = ["--cores", str(self.cores), "--memory", f"{self.cores}g"]
        arguments = [*size, "--work-dir", str(self.folder / "work"), self.url]
        worker = _daemon(
            self.folder, f"worker-{number}", "worker.Worker", arguments, {**self.environment, **(environment or {})}
        )
        self.workers.append(worker)
        return worker

    def wait_for_workers(self, count: int) -> None:
        """Return once *count* workers live and no application holds any of their cores."""

        def ready() -> bool:
            state = self.state()
            alive = [worker for worker in state["workers"] if worker["state"] == "ALIVE"]
            return len(alive) == count and not any(worker["coresused"] for worker in alive)

        wait_until(ready, f"{count} idle workers", _START_TIMEOUT)

    def restore(self, workers: int) -> None:
        """Put new workers in the place of dead ones; return once all are idle."""
        self.workers = [worker for worker in self.workers if worker.process.poll() is None]
        while len(self.workers) < workers:
            self.add_worker()
        self.wait_for_workers(workers)

    def state(self) -> dict[str, Any]:
        """What the master says of itself."""
        port = self.master.said(r"service 'MasterUI' on port (\d+)")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/", timeout=30) as answer:
            state: dict[str, Any] = json.load(answer)
        return state

    def executors(self) -> list[int]:
        """Process ids of all executors."""
        return [pid for worker in self.workers for pid in worker.executors()]


@contextlib.contextmanager
def standalone_cluster(
    folder: Path, *, workers: int = 2, cores: int = 1, environment: Mapping[str, str] | None = None
) -> Iterator[StandaloneCluster]:
    """Run a cluster.

    :param folder: for logs and the workers' directories
    :param cores: of each worker
    :param environment: what workers and their executors have in their environment, beside this process's own;
        ``SPARK_HOME`` names another Spark than the tests'
    """
    environment = environment or {}
    master = _daemon(folder, "master", "master.Master", [], environment)
    cluster = StandaloneCluster(folder, "", master, environment, cores=cores)
    try:
        wait_until(lambda: master.said(r"service 'MasterUI' on port (\d+)"), "the master to start", _START_TIMEOUT)
        cluster.url = master.said(r"Starting Spark master at (spark://\S+)")
        cluster.restore(workers)
        yield cluster
    finally:
        for daemon in (*cluster.workers, master):
            daemon.process.send_signal(signal.SIGTERM)  # a worker then ends its executors
        for daemon in (*cluster.workers, master):
            try:
                daemon.process.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()


def _daemon(folder: Path, name: str, kind: str, arguments: list[str], environment: Mapping[str, str]) -> Daemon:
    import pyspark

    home = Path(environment.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    log = folder / f"{name}.log"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "AWS_"))}
    common = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *common, *arguments],
            env={**inherited, **_DAEMON, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, **environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    return Daemon(process, log)
