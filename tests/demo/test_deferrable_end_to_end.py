"""Deferred tasks in a real Airflow: triggerer killed, driver killed, task marked failed. One Airflow for all."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.demo.local_airflow import LocalAirflow, airflow_environment
from airflow_provider.demo.processes import Processes, descendants_of, free_port, send, wait_until
from airflow_provider.recovery.job import JobId
from airflow_provider.storage.claims import Claim, Claims, process_is_gone
from airflow_provider.storage.uris import open_store
from tests.support.driver import JOBS, QUICK_JVM

pytestmark = [pytest.mark.airflow, pytest.mark.process]

DAG, TASK = "deferred", "spark"
EXAMPLE, FEATURES = "flights_features_deferred", "features"
LONG = 400.0

DAG_FILE = """\
from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider.operators.spark_recovery import SparkRecoveryOperator

with DAG("deferred", schedule=None, params={"target": "", "gate": ""}):
    SparkRecoveryOperator(
        task_id="spark",
        application="SCRIPT",
        application_args=["SOURCE", "{{ params.target }}", "{{ params.gate }}"],
        conf={"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": "-Dlog4j2.level=warn JVM"},
        deferrable=True,
        retries=1,
        retry_delay=timedelta(seconds=1),
    )
"""
WAIT = """\
import os, time
print("the driver waits")
while not os.path.exists(sys.argv[3]):
    time.sleep(0.1)
print("the driver goes on")
"""


class Scene:
    """Airflow with its triggerer, and runs of a job that waits in its middle until its gate is opened."""

    def __init__(self, airflow: LocalAirflow, work: Path) -> None:
        self.airflow = airflow
        self.work = work
        self.triggerer = airflow.start_component("triggerer")

    def begin(self, name: str) -> Run:
        conf = {"target": str(self.work / f"{name}.out"), "gate": str(self.work / f"{name}.gate")}
        return Run(self, DAG, TASK, self.airflow.trigger(DAG, conf), Path(conf["gate"]))

    def kill_triggerer(self) -> None:
        """As a machine that is switched off: no goodbye."""
        everything = [self.triggerer.pid, *descendants_of(self.triggerer.pid)]
        send(signal.SIGKILL, everything)
        self.triggerer.wait()


class Run:
    def __init__(self, scene: Scene, dag: str, task: str, run_id: str, gate: Path) -> None:
        self.airflow = scene.airflow
        self.dag, self.task = dag, task
        self.run_id = run_id
        self.gate = gate
        self._job = JobId.of_task_instance(dag, run_id, task)
        self._store = open_store(f"file://{scene.work}/events")
        self._home = scene.work / "airflow"

    @property
    def instance(self) -> dict[str, Any]:
        return self.airflow.task_instance(self.dag, self.run_id, self.task)

    def wait_for(self, state: str, try_number: int = 1) -> None:
        def reached() -> bool:
            now = self.instance
            if now["state"] in ("failed", "success") and now["state"] != state:
                raise AssertionError(f"{now['state']} in try {now['try_number']}:\n{self.logs()}")
            return (now["state"], now["try_number"]) == (state, try_number)

        wait_until(f"{self.run_id} to be {state} in try {try_number}", reached, timeout=LONG)

    def claim(self, epoch: int) -> Claim:
        found = Claims(self._store, self._job.prefix).get(epoch)
        assert found is not None
        return found

    def logs(self, pattern: str = "*") -> str:
        folder = self._home / "logs" / f"dag_id={self.dag}" / f"run_id={self.run_id}" / f"task_id={self.task}"
        return "\n".join(path.read_text() for path in sorted(folder.glob(pattern)))

    def report(self) -> Any:
        return self.airflow.xcom(self.dag, self.run_id, self.task, "return_value")


@pytest.fixture
def scene(tmp_path: Path, dags: Path) -> Iterator[Scene]:
    source, folder, work = tmp_path / "orders.parquet", tmp_path / "dags", tmp_path / "work"
    rows = range(2000)
    pq.write_table(
        pa.table({"customer": [row * 7919 % 300 for row in rows], "amount": [row % 97 for row in rows]}), source
    )
    script = tmp_path / "job.py"
    script.write_text(
        (JOBS / "two_vertices.py").read_text().replace("graded = checkpoint", f"{WAIT}graded = checkpoint")
    )
    folder.mkdir()
    text = DAG_FILE.replace("SCRIPT", str(script)).replace("SOURCE", str(source)).replace("JVM", QUICK_JVM)
    (folder / "deferred.py").write_text(text)
    for name in ("flights_features_deferred.py", "flights_features_job.py"):
        shutil.copy(dags / name, folder)
    work.mkdir()
    quick = {
        "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "5",
    }
    processes = Processes(work / "logs", airflow_environment(work, folder, free_port()) | quick)
    try:
        airflow = LocalAirflow(processes)
        airflow.run("airflow-db", "db", "migrate")
        airflow.add_connections(
            {
                "spark_default": {"conn_type": "spark", "host": "local[2]"},
                "spark_recovery_default": {
                    "conn_type": "spark_recovery",
                    "extra": {"event_store": f"file://{work}/events", "previous_worker_recovery_timeout": "6 s"},
                },
            }
        )
        airflow.start(DAG)
        yield Scene(airflow, work)
    finally:
        processes.stop()


@pytest.mark.timeout(1800)
def test_deferred_tasks_outlive_the_triggerer_and_end_with_their_drivers(scene: Scene, few_flights: Path) -> None:
    """No worker while a driver runs; green after the triggerer was killed; resumed; ended by a person; the example."""
    first = scene.begin("first")
    first.wait_for("deferred")
    driver = first.claim(1)
    assert not process_is_gone(driver)
    slots = scene.airflow.pool("default_pool")
    assert (slots["deferred_slots"], slots["running_slots"]) == (1, 0)
    wait_until("the trigger to follow", lambda: "Following attempt 1" in first.logs("*trigger*"), timeout=LONG)

    scene.kill_triggerer()
    assert not process_is_gone(driver), "the driver needs nobody"
    scene.triggerer = scene.airflow.start_component("triggerer")
    wait_until(
        "the new triggerer to follow", lambda: first.logs("*trigger*").count("Following attempt 1") == 2, timeout=LONG
    )
    first.gate.touch()
    first.wait_for("success")
    assert first.report()["state"] == "FINISHED"
    assert first.claim(1) == driver
    assert "the driver goes on" in first.logs("attempt=1.log"), "the driver's output is in the task log"
    assert "recovery point 'graded': finished" in first.logs("*trigger*"), "progress is in the trigger's log"

    second = scene.begin("second")
    second.wait_for("deferred")
    wait_until("the first vertex", lambda: "'totals': finished" in second.logs("*trigger*"), timeout=LONG)
    os.kill(second.claim(1).pid, signal.SIGKILL)
    second.wait_for("deferred", try_number=2)
    second.gate.touch()
    second.wait_for("success", try_number=2)
    report = second.report()
    assert [attempt["state"] for attempt in report["attempts"]] == ["LOST", "FINISHED"]
    assert (report["partitions_reused"], report["partitions_computed"]) == (6, 4)

    third = scene.begin("third")
    third.wait_for("deferred")
    wait_until("the trigger to follow", lambda: "Following attempt 1" in third.logs("*trigger*"), timeout=LONG)
    scene.airflow.mark(DAG, third.run_id, TASK, "failed")
    wait_until("the driver to end", lambda: process_is_gone(third.claim(1)), timeout=LONG)
    assert third.claim(2).cancels
    assert third.instance["state"] == "failed"

    conf = {"input_dir": str(few_flights), "output_dir": str(scene.work / "features")}
    example = Run(scene, EXAMPLE, FEATURES, scene.airflow.trigger(EXAMPLE, conf), scene.work / "unused")
    example.wait_for("success")
    assert example.report()["state"] == "FINISHED"
    assert "Following attempt 1" in example.logs("*trigger*")
