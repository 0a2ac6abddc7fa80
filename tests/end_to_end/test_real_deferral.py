"""Deferred tasks in a real Airflow: triggerer killed, driver killed, task marked failed. One Airflow for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider.cli.demo.demo_processes import wait_until
from airflow_provider.storage.claims import process_is_gone
from tests.end_to_end.jobs import gated_job, write_orders
from tests.end_to_end.stage import LONG, QUICK_CONF, Stage, TaskRun, airflow_stage, kill_everything
from tests.support.flights import DAGS, few_flights

pytestmark = [pytest.mark.airflow, pytest.mark.process]

DAG, TASK = "deferred", "spark"
EXAMPLE, FEATURES = "flights_features_deferred", "features"

DAG_FILE = """\
from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider.operators.spark_recovery import SparkRecoveryOperator

with DAG("deferred", schedule=None, params={"target": "", "gate": ""}):
    SparkRecoveryOperator(
        task_id="spark",
        application="SCRIPT",
        application_args=["SOURCE", "{{ params.target }}", "{{ params.gate }}"],
        conf=CONF,
        deferrable=True,
        retries=1,
        retry_delay=timedelta(seconds=1),
    )
"""


class Scene:
    """Airflow with its triggerer, and runs of a job that waits in its middle until its gate is opened."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.triggerer = stage.airflow.start_component("triggerer")

    def begin(self, name: str) -> tuple[TaskRun, Path]:
        conf = {"target": str(self.stage.work / f"{name}.out"), "gate": str(self.stage.work / f"{name}.gate")}
        return self.stage.run(DAG, TASK, conf), Path(conf["gate"])

    def kill_triggerer(self) -> None:
        kill_everything(self.triggerer.pid)
        self.triggerer.wait()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    source, script = tmp_path / "orders.parquet", tmp_path / "job.py"
    write_orders(source)
    script.write_text(gated_job())
    text = DAG_FILE.replace("SCRIPT", str(script)).replace("SOURCE", str(source)).replace("CONF", repr(QUICK_CONF))
    example = ("flights_features_deferred.py", "flights_features_job.py")
    quick = {
        "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "5",
    }
    files = {"deferred.py": text, **{name: (DAGS / name).read_text() for name in example}}
    with airflow_stage(tmp_path, files, DAG, settings=quick, recovery_timeout="6 s") as stage:
        yield Scene(stage)


@pytest.mark.timeout(1800)
def test_deferred_tasks_outlive_the_triggerer_and_end_with_their_drivers(scene: Scene, tmp_path: Path) -> None:
    """No worker while a driver runs; green after the triggerer was killed; resumed; ended by a person; the example."""
    first, gate = scene.begin("first")
    first.wait_for("deferred")
    driver = first.claim(1)
    assert not process_is_gone(driver)
    slots = scene.stage.airflow.call("GET", "/api/v2/pools/default_pool")
    assert (slots["deferred_slots"], slots["running_slots"]) == (1, 0)
    wait_until("the trigger to follow", lambda: "Following attempt 1" in first.logs("*trigger*"), timeout=LONG)

    scene.kill_triggerer()
    assert not process_is_gone(driver), "the driver needs nobody"
    scene.triggerer = scene.stage.airflow.start_component("triggerer")
    wait_until(
        "the new triggerer to follow", lambda: first.logs("*trigger*").count("Following attempt 1") == 2, timeout=LONG
    )
    gate.touch()
    first.wait_for("success")
    assert first.report()["state"] == "FINISHED"
    assert first.claim(1) == driver
    assert "the driver goes on" in first.logs("attempt=1.log"), "the driver's output is in the task log"
    assert "recovery point 'graded': finished" in first.logs("*trigger*"), "progress is in the trigger's log"

    second, gate = scene.begin("second")
    second.wait_for("deferred")
    wait_until("the first vertex", lambda: "'totals': finished" in second.logs("*trigger*"), timeout=LONG)
    second.kill_driver(1)
    second.wait_for("deferred", try_number=2)
    gate.touch()
    second.wait_for("success", try_number=2)
    report = second.report()
    assert [attempt["state"] for attempt in report["attempts"]] == ["LOST", "FINISHED"]
    assert (report["partitions_reused"], report["partitions_computed"]) == (6, 4)

    third, _ = scene.begin("third")
    third.wait_for("deferred")
    wait_until("the trigger to follow", lambda: "Following attempt 1" in third.logs("*trigger*"), timeout=LONG)
    scene.stage.airflow.mark(DAG, third.run_id, TASK, "failed")
    wait_until("the driver to end", lambda: process_is_gone(third.claim(1)), timeout=LONG)
    assert third.claim(2).cancels
    assert third.instance["state"] == "failed"

    source = tmp_path / "source"
    source.mkdir()
    conf = {"input_dir": str(few_flights(source)), "output_dir": str(scene.stage.work / "features")}
    example = scene.stage.run(EXAMPLE, FEATURES, conf)
    example.wait_for("success")
    assert example.report()["state"] == "FINISHED"
    assert "Following attempt 1" in example.logs("*trigger*")
