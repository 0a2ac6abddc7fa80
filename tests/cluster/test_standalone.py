"""Client mode on a real standalone cluster: executors, workers and drivers are killed under the job.

The driver and its executors run with a Python that lacks this package, so what they have of it came with the job. The
executors find credentials as those of a machine with a role do; the driver gets them from Airflow's connection.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from airflow_provider.core import faults
from airflow_provider.core.options import StorageOptions
from airflow_provider.core.partitions import StoredPartition
from airflow_provider.storage.claims import Claim, Claims, process_is_gone
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.partition_store import PartitionStore
from airflow_provider.storage.processes import process_tree
from airflow_provider.storage.uris import open_store
from tests.airflow_side.conftest import Tries, xcom
from tests.airflow_side.executing import Connect
from tests.cluster.orders import check_rows, killed_and_retried, settings
from tests.support.driver import DriverHarness
from tests.support.quick_jvm import QUICK_JVM
from tests.support.s3_gateway import S3Server
from tests.support.standalone import EXECUTOR_SETTINGS, StandaloneCluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.integration]

GATED = Path(__file__).parent / "jobs" / "gated_shuffle.py"
BUCKET = "cluster-tests"


@dataclass
class Try:
    """A running try: a worker, below it ``spark-submit`` and the driver."""

    worker: subprocess.Popen[bytes]
    log: Path

    def finish(self) -> str:
        """Wait for its success; return its log."""
        code = self.worker.wait(180)
        assert code == 0, self.log.read_text()
        return self.log.read_text()


@dataclass
class Task:
    """A task that submits the gated job to the cluster: its tries, and what they leave."""

    tries: Tries
    store: ObjectStore
    cluster: StandaloneCluster
    started: int = 0

    @property
    def vertex_gate(self) -> Path:
        return self.tries.folder / "vertex"

    @property
    def output_gate(self) -> Path:
        return self.tries.folder / "output"

    @contextlib.contextmanager
    def start(self) -> Iterator[Try]:
        """Start a try; it does not outlive the block."""
        self.started += 1
        log = self.tries.folder / f"try-{self.started}.log"
        running = Try(self.tries.start(log), log)
        try:
            yield running
        finally:
            with contextlib.suppress(ProcessLookupError):  # also a driver that has outlived its worker
                os.killpg(running.worker.pid, signal.SIGKILL)
            running.worker.wait()

    def claim(self) -> Claim:
        claim = Claims(self.store, self.tries.job.prefix).newest()
        assert claim is not None
        return claim

    def stored(self, name: str = "doubled") -> list[StoredPartition]:
        """What is stored of a vertex, by all attempts."""
        found = PartitionStore(self.store, self.tries.job.prefix).survivors()
        return [p for vertex, stored in found.items() if vertex.rsplit("-", 1)[0] == name for p in stored]

    def wait_for_the_vertex_gate(self, running: Try) -> None:
        """Return once half of the vertex is stored and two executors are at work on the other half."""

        def waiting() -> bool:
            assert running.worker.poll() is None, running.log.read_text()
            return len([*self.tries.folder.glob("vertex-*")]) == 2

        wait_until(waiting, "two tasks to wait on two executors")
        assert {p.index for p in self.stored()} == {0, 1}
        assert len(self.cluster.executors()) == 2

    def check_each_partition_is_stored_once(self) -> None:
        """At the output gate nothing has been released yet."""
        wait_until(lambda: len(self.stored("totals")) > 0, "the job to reach its last vertex")
        assert Counter(p.index for p in self.stored()) == {0: 1, 1: 1, 2: 1, 3: 1}

    def check_result(self) -> None:
        check_result(self.tries.folder / "out")


def check_result(output: Path) -> None:
    table = pq.read_table(output)
    totals = dict(zip(table["digit"].to_pylist(), table["total"].to_pylist(), strict=True))
    assert totals == {digit: sum(range(digit, 800, 10)) for digit in (0, 2, 4, 6, 8)}


@pytest.fixture
def task(
    request: pytest.FixtureRequest, tmp_path: Path, cluster: StandaloneCluster, bare_python: str, connect: Connect
) -> Task:
    """A task on the cluster with its event store on files, or on S3 if the test asks for it."""
    recovery = {"event_store": f"file://{tmp_path}/store"}
    store = open_store(recovery["event_store"])
    if getattr(request, "param", "file") == "s3":
        server: S3Server = request.getfixturevalue("moto")
        server.create_bucket(BUCKET)
        recovery = {"event_store": f"s3://{BUCKET}/{uuid.uuid4().hex}", "aws_conn_id": "aws_default"}
        extra = {"region_name": "us-east-1", "endpoint_url": server.endpoint}
        connect("aws_default", "aws", login=server.access_key, password=server.secret_key, extra=extra)
        storage = StorageOptions(endpoint_url=server.endpoint, addressing_style="path")
        store = open_store(recovery["event_store"], storage, session=server.session())
    connect("spark_default", "spark", host=cluster.url)
    connect("spark_recovery_default", "spark_recovery", extra=recovery | {"addressing_style": "path"})
    gates = [str(tmp_path / name) for name in ("out", "vertex", "output")]
    conf = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.level=warn {QUICK_JVM}",
        **EXECUTOR_SETTINGS,
    }
    task = {"application": str(GATED), "application_args": gates, "conf": conf}
    return Task(Tries(tmp_path, task, python=bare_python), store, cluster)


on_s3 = pytest.mark.parametrize("task", ["s3"], indirect=True)


@pytest.mark.walk
def test_an_executor_is_killed_under_the_job(task: Task) -> None:
    """Its tasks run again on another one; no partition is stored twice, and the result is right."""
    with task.start() as running:
        task.wait_for_the_vertex_gate(running)
        os.kill(task.cluster.executors()[0], signal.SIGKILL)
        task.vertex_gate.touch()
        task.check_each_partition_is_stored_once()
        task.output_gate.touch()
        log = running.finish()
    task.check_result()
    assert [attempt["state"] for attempt in xcom(log)["attempts"]] == ["FINISHED"]
    (has,) = {line.partition("EXECUTOR ")[2] for line in log.splitlines() if "EXECUTOR " in line}
    assert has.startswith("seed 0 package ")
    assert "airflow_provider_driver.zip/" in has, "executors have the package that came with the job"


@on_s3
def test_a_worker_is_killed_under_the_job(task: Task) -> None:
    """The executor goes with its worker; what it had stored stays, the other one computes the rest, all on S3.

    Keys are in no command line and no configuration; executors use those of their own machine.
    """
    with task.start() as running:
        task.wait_for_the_vertex_gate(running)
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in process_tree(running.worker.pid)]
        assert any(b"org.apache.spark.deploy.SparkSubmit" in command for command in commands)
        assert not any(b"testsecret" in command for command in commands)
        victim = task.cluster.workers[0]
        executors = victim.executors()
        victim.kill()
        wait_until(lambda: not any(alive(pid) for pid in executors), "the executor to go with its worker")
        task.vertex_gate.touch()
        task.check_each_partition_is_stored_once()
        task.output_gate.touch()
        log = running.finish()
    task.check_result()
    assert "testsecret" not in log
    assert xcom(log)["partitions_computed"] == 5


@pytest.mark.walk
@on_s3
def test_the_driver_is_killed_and_the_retry_reuses_what_survived(task: Task) -> None:
    """Executors of the dead driver end; the retry gets new ones, which read what those had stored."""
    with task.start() as first:
        task.wait_for_the_vertex_gate(first)
        executors = task.cluster.executors()
        os.kill(task.claim().pid, signal.SIGKILL)
        assert first.worker.wait(120) != 0
    assert "Kept for the next try, partitions stored: doubled 2 of 4" in first.log.read_text()
    wait_until(lambda: not any(alive(pid) for pid in executors), "the dead driver's executors to end")
    task.vertex_gate.touch()
    task.output_gate.touch()
    with task.start() as second:
        report = xcom(second.finish())
    task.check_result()
    assert [attempt["state"] for attempt in report["attempts"]] == ["LOST", "FINISHED"]
    assert (report["partitions_reused"], report["partitions_computed"]) == (2, 3)


@pytest.mark.walk
def test_the_next_try_attaches_to_a_driver_that_has_outlived_its_worker(task: Task) -> None:
    """Airflow's worker is killed in mid-job: the retry follows the driver to its end and submits nothing."""
    with task.start() as first:
        task.wait_for_the_vertex_gate(first)
        executors = task.cluster.executors()
        first.worker.kill()
        with task.start() as second:
            wait_until(lambda: "attaching to it" in second.log.read_text(), "the retry to attach")
            assert task.cluster.executors() == executors
            task.vertex_gate.touch()
            task.output_gate.touch()
            log = second.finish()
    task.check_result()
    assert "Spark-Submit cmd" not in log
    assert [attempt["state"] for attempt in xcom(log)["attempts"]] == ["FINISHED"]


@pytest.mark.walk
def test_a_task_that_is_ended_takes_its_executors_along(task: Task) -> None:
    """Marked failed, the task ends driver and executors; the cluster is free for others."""
    with task.start() as running:
        task.wait_for_the_vertex_gate(running)
        executors = task.cluster.executors()
        running.worker.send_signal(signal.SIGTERM)
        assert running.worker.wait(60) != 0
        wait_until(lambda: process_is_gone(task.claim()), "the driver to end")
        wait_until(lambda: not any(alive(pid) for pid in executors), "its executors to end")
        task.cluster.wait_for_workers(2)


@pytest.mark.walk
def test_spark_recovery_run_on_a_cluster(tmp_path: Path, cluster: StandaloneCluster, bare_python: str) -> None:
    """Without Airflow the driver itself hands the package to its executors; a killed one is resumed."""
    settings = {"spark.master": cluster.url, **EXECUTOR_SETTINGS}
    driver = DriverHarness(
        tmp_path, f"file://{tmp_path}/store", environment={"PYSPARK_PYTHON": bare_python}, settings=settings
    )
    gates = [tmp_path / "vertex", tmp_path / "output"]
    for gate in gates:
        gate.touch()
    arguments = [str(path) for path in (tmp_path / "out", *gates)]
    first = driver.run(GATED, *arguments, fault=faults.BEFORE_VERTEX_FINISHED, options={"keep-partitions": ""})
    assert first.code == -signal.SIGKILL, first.log
    second = driver.run(GATED, *arguments, options={"keep-partitions": ""})
    assert second.code == 0, second.log
    check_result(tmp_path / "out")
    assert second.tasks["checkpoint doubled"] == 0
    assert {p.epoch for p in driver.partitions("doubled")} == {1}
    assert "airflow_provider_driver.zip/" in second.log


@on_s3
@pytest.mark.walk
def test_executors_without_credentials_cost_the_recording_only(task: Task) -> None:
    """Executors that cannot reach the store are found before anything is computed twice; the job runs unrecorded."""
    task.tries.task["conf"]["spark.executorEnv.AWS_SHARED_CREDENTIALS_FILE"] = "/nonexistent"
    task.tries.task["conf"]["spark.executorEnv.AWS_EC2_METADATA_DISABLED"] = "true"
    task.vertex_gate.touch()
    task.output_gate.touch()
    with task.start() as running:
        log = running.finish()
    task.check_result()
    assert task.stored() == []
    assert "the executors cannot reach the event store: There are no usable credentials" in log
    assert "4 to compute" not in log
    assert xcom(log)["partitions_computed"] == 0


@pytest.mark.walk
def test_an_event_store_that_executors_do_not_share(task: Task) -> None:
    """A file event store that is another directory on the executors' machines is found out; the result is right."""
    hidden = task.tries.folder / "hidden"
    hidden.mkdir()
    wrapper = task.tries.folder / "python-elsewhere"
    # In a mount name space of its own the executors' Python sees an empty directory in the place of the event store.
    store = task.tries.folder / "store"
    store.mkdir()
    mounted = f'mount --bind {hidden} {store} && exec {task.tries.python} "$@"'
    wrapper.write_text(f"#!/bin/sh\nexec unshare --mount sh -c '{mounted}' sh \"$@\"\n")
    wrapper.chmod(0o755)
    if subprocess.run([wrapper, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip("no mount name spaces here")
    task.tries.task["conf"]["spark.pyspark.driver.python"] = task.tries.python
    task.tries.task["conf"]["spark.pyspark.python"] = str(wrapper)
    task.vertex_gate.touch()
    task.output_gate.touch()
    with task.start() as running:
        log = running.finish()
    task.check_result()
    assert "the executors do not see in file://" in log
    assert xcom(log)["partitions_computed"] == 0
    assert list(hidden.iterdir()) == []


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.walk
def test_shuffle_files_are_put_back_on_other_executors(
    tmp_path: Path, cluster: StandaloneCluster, bare_python: str, orders: Path
) -> None:
    """Two executors store what their map tasks have written; the next driver's executors read it as their own.

    An executor whose only core a reducer holds copies nothing meanwhile: some of its map outputs are computed again.
    """
    environment = {"PYSPARK_PYTHON": bare_python}
    driver = DriverHarness(tmp_path, f"file://{tmp_path}/store", environment=environment, settings=settings(cluster))
    job = killed_and_retried(driver, orders)
    assert job.put_back in job.second.log
    assert "FetchFailed" not in job.second.log
    check_rows(orders, job.target)
