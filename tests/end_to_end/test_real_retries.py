"""Retries and clearings under a real scheduler: whatever dies, the task ends green, right, written by one driver."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from selenium.webdriver.common.by import By

from airflow_provider.cli.demo.demo_processes import command_of, send, wait_until
from airflow_provider.core.options import StorageOptions
from airflow_provider.storage.claims import process_is_gone
from airflow_provider.storage.processes import ancestors
from airflow_provider.storage.uris import open_store
from tests.end_to_end.jobs import check_answer, gated_job, write_orders
from tests.end_to_end.stage import LONG, QUICK_CONF, Stage, TaskRun, airflow_stage
from tests.support.browser import Person, chromium, picture
from tests.support.s3_gateway import S3Server

pytestmark = [pytest.mark.airflow, pytest.mark.process, pytest.mark.timeout(1500)]

TASK = "spark"
BUCKET = "ten-jobs"
TOTALS, GRADED = 6, 4
"""Partitions of the two recovery points."""

DAG_FILE = """\
from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider.operators.spark_recovery import SparkRecoveryOperator

common = {
    "task_id": "spark",
    "application": "{{ params.script }}",
    "conf": CONF,
    "retry_delay": timedelta(seconds=1),
}
arguments = ["SOURCE", "{{ params.target }}", "{{ params.gate }}"]
params = {"script": "", "target": "", "gate": ""}

with DAG("retried", schedule=None, params=params):
    SparkRecoveryOperator(**common, application_args=arguments, retries=1)

with DAG("by_hand", schedule=None, params=params):
    SparkRecoveryOperator(**common, application_args=arguments, retries=0)

with DAG("mapped", schedule=None, params=params):
    SparkRecoveryOperator.partial(**common, retries=1).expand(
        application_args=[["SOURCE"] + [f"{text}-{index}" for text in arguments[1:]] for index in (0, 1)]
    )

with DAG("on_bucket", schedule=None, params=params):
    SparkRecoveryOperator(**common, application_args=arguments, retries=1, recovery_conn_id="bucket")
"""


class Scene:
    """Airflow, and runs of the job. Each has its script, output and gate in files of its own."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._begun = 0

    def begin(self, dag: str, *, bug: bool = False, **script: Any) -> Run:
        self._begun += 1
        run = Run(self.stage, dag, TASK, "", self.stage.store, files=self.stage.work / f"{dag}-{self._begun}")
        run.script.write_text(gated_job(bug=bug, **script))
        conf = {"script": str(run.script), "target": str(run.target), "gate": str(run.gate)}
        run.run_id = self.stage.airflow.trigger(dag, conf)
        return run


class Run(TaskRun):
    """One run of the job.

    :ivar files: what its files' names begin with
    """

    def __init__(self, *parts: Any, files: Path, map_index: int = -1) -> None:
        super().__init__(*parts, map_index=map_index)  # type: ignore[misc]
        self.files = files

    @property
    def script(self) -> Path:
        return self.files.with_name(f"{self.files.name}.py")

    @property
    def target(self) -> Path:
        return self.files.with_name(f"{self.files.name}.out{self._suffix}")

    @property
    def gate(self) -> Path:
        return self.files.with_name(f"{self.files.name}.gate{self._suffix}")

    @property
    def _suffix(self) -> str:
        return f"-{self.map_index}" if self.map_index >= 0 else ""

    def mapped(self, index: int) -> Run:
        return Run(self.stage, self.dag, self.task, self.run_id, self.store, files=self.files, map_index=index)

    def wait_in_the_middle(self, epoch: int = 1) -> None:
        self.claim(epoch)
        self.wait_for_vertex("totals")

    def counts(self) -> tuple[int, int]:
        """Partitions that were reused, and computed."""
        report = self.report()
        assert report["state"] == "FINISHED"
        return report["partitions_reused"], report["partitions_computed"]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, s3_gateway: S3Server) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("retries")
    source = folder / "orders.parquet"
    write_orders(source)
    s3_gateway.create_bucket(BUCKET)
    connections = {
        "aws_default": {
            "conn_type": "aws",
            "login": s3_gateway.access_key,
            "password": s3_gateway.secret_key,
            "extra": {"endpoint_url": s3_gateway.endpoint, "region_name": "us-east-1"},
        },
        "bucket": {
            "conn_type": "spark_recovery",
            "extra": {
                "event_store": f"s3://{BUCKET}/events",
                "aws_conn_id": "aws_default",
                "addressing_style": "path",
                "previous_worker_recovery_timeout": "3 s",
            },
        },
    }
    settings = {
        "AIRFLOW__CORE__PARALLELISM": "12",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "2",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "20",
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "2",
    }
    text = DAG_FILE.replace("SOURCE", str(source)).replace("CONF", repr(QUICK_CONF))
    with airflow_stage(folder, {"jobs.py": text}, "retried", connections=connections, settings=settings) as stage:
        yield Scene(stage)


@pytest.mark.walk
def test_fix_the_bug_and_clear(scene: Scene) -> None:
    """A bug in the last step; fixed and cleared, the job reuses every partition that it had stored."""
    run = scene.begin("by_hand", bug=True)
    run.gate.touch()
    run.wait_for("failed")
    assert "a bug in the last step" in run.logs()
    run.script.write_text(gated_job())
    run.clear()
    run.wait_for("success", try_number=2)
    assert run.counts() == (TOTALS + GRADED, 0)
    check_answer(run.target)
    # What tells the run from another deployment's of the same name; Airflow counts the clearing.
    assert [run.claim(epoch).run.partition("@")[0] for epoch in (1, 2)] == ["0", "1"]


@pytest.mark.walk  # tests/spark/test_functions_reading.py and test_read_by_functions.py clear without a scheduler
def test_correct_a_file_that_a_function_reads_and_clear(scene: Scene, tmp_path: Path) -> None:
    """What a function has made of a file is reused by Airflow's own retry, and computed again after a clearing."""
    factor = tmp_path / "factor"
    factor.write_text("5")
    run = scene.begin("retried", bug=True, factor=factor)
    run.gate.touch()
    run.wait_for("failed", try_number=2)
    retry = run.logs("attempt=2*")
    assert f"'totals': all {TOTALS} partitions reused" in retry
    assert f"'graded': all {GRADED} partitions reused" in retry
    factor.write_text("7")
    run.script.write_text(gated_job(factor=factor))
    run.clear()
    run.wait_for("success", try_number=3)
    assert run.counts() == (TOTALS, GRADED)
    check_answer(run.target)


@pytest.mark.walk  # tests/plugin/test_app.py discards without a scheduler
def test_discard_and_clear(scene: Scene, tmp_path: Path) -> None:
    """A person discards on the page what is stored; the cleared task computes everything, and says why."""
    run = scene.begin("by_hand", bug=True)
    run.gate.touch()
    run.wait_for("failed")
    airflow = scene.stage.airflow
    tasks = f"{airflow.url}/dags/{run.dag}/runs/{quote(run.run_id, safe='')}"
    with chromium(tmp_path / "profile") as browser:
        person = Person(browser)
        browser.get(f"{airflow.url}/api/v2/auth/login?next={quote(tasks, safe='')}")
        person.click("//a[normalize-space()='Spark recovery']")  # the tab of the DAG run; with one job it leads there
        frame = "//iframe[@title='Spark recovery']"
        browser.switch_to.frame(person.wait_for("the tab", lambda: browser.find_element(By.XPATH, frame)))
        person.wait_for("the grids", lambda: person.css(".vertex canvas"))
        assert person.cells() == {"totals": "c" * TOTALS, "graded": "c" * GRADED}
        picture(browser, "before-discard")
        person.click("//button[@id='discard']")
        person.click("//button[@id='confirm-yes']")
        person.wait_for("its success", lambda: "starts afresh" in person.text("#notices [data-notice=done]"))
    run.script.write_text(gated_job())
    run.clear()
    run.wait_for("success", try_number=2)
    assert run.counts() == (0, TOTALS + GRADED)
    assert "was discarded by" in run.logs()
    check_answer(run.target)


def test_marked_failed(scene: Scene) -> None:
    """Marking the running task failed ends its driver and the JVM under it."""
    run = scene.begin("by_hand")
    run.wait_in_the_middle()
    claim = run.claim(1)
    jvm = ancestors(claim.pid)[1]
    assert "SparkSubmit" in command_of(jvm)
    scene.stage.airflow.mark(run.dag, run.run_id, TASK, "failed")
    wait_until("the driver to be gone", lambda: process_is_gone(claim), timeout=LONG)
    wait_until("the JVM to be gone", lambda: "SparkSubmit" not in command_of(jvm), timeout=LONG)
    assert run.instance["state"] == "failed"
    assert not run.target.exists()


def test_the_worker_is_killed_then_the_driver(scene: Scene) -> None:
    """The driver outlives its worker: the scheduler's retry attaches to it. Killed, too, it is resumed by that try."""
    run = scene.begin("retried")
    run.wait_in_the_middle()
    kill_worker(run.claim(1).pid)
    run.wait_for("running", try_number=2)
    wait_until("try 2 to attach", lambda: "attaching to it, submitting nothing" in run.logs("attempt=2*"), timeout=LONG)
    assert not process_is_gone(run.claim(1))
    run.kill_driver(1)
    run.wait_in_the_middle(epoch=2)
    run.gate.touch()
    run.wait_for("success", try_number=2)
    assert run.counts() == (TOTALS, GRADED)
    check_answer(run.target)


@pytest.mark.walk
def test_the_scheduler_is_killed_and_started_again(scene: Scene) -> None:
    """The new one takes the task for an orphan and starts it again; of the two drivers one writes."""
    run = scene.begin("retried")
    run.wait_in_the_middle()
    first = run.instance["id"]
    scene.stage.restart_scheduler()
    wait_until("the task to be taken for an orphan", lambda: run.instance["id"] != first, timeout=LONG)
    run.gate.touch()
    run.wait_for("success", try_number=None)
    check_answer(run.target)
    assert sum(run.counts()) == TOTALS + GRADED


@pytest.mark.walk
def test_two_mapped_tasks_at_once(scene: Scene) -> None:
    """One of the two loses its driver and reuses its own partitions; the other does not notice."""
    run = scene.begin("mapped")
    one, other = run.mapped(0), run.mapped(1)
    one.wait_in_the_middle()
    other.wait_in_the_middle()
    one.kill_driver(1)
    for mapped in (one, other):
        mapped.gate.touch()
    other.wait_for("success")
    one.wait_for("success", try_number=2)
    assert (one.counts(), other.counts()) == ((TOTALS, GRADED), (0, TOTALS + GRADED))
    for mapped in (one, other):
        check_answer(mapped.target)


@pytest.mark.walk
def test_ten_jobs_at_once_on_one_bucket(scene: Scene, s3_gateway: S3Server) -> None:
    """Three of ten lose their drivers and resume; each ends with its own right rows, and the page tells them apart."""
    options = StorageOptions(endpoint_url=s3_gateway.endpoint, addressing_style="path")
    runs = [scene.begin("on_bucket") for _ in range(10)]
    for run in runs:
        run.store = open_store(f"s3://{BUCKET}/events", options, session=s3_gateway.session())
    killed, others = runs[::4], [run for run in runs if run not in runs[::4]]
    for run in others:
        run.gate.touch()
    for run in killed:
        run.wait_in_the_middle()
        run.kill_driver(1)
        run.gate.touch()
    for run in others:
        run.wait_for("success")
        assert run.counts() == (0, TOTALS + GRADED)
    for run in killed:
        run.wait_for("success", try_number=2)
        assert run.counts() == (TOTALS, GRADED)
    for run in runs:
        check_answer(run.target)
        query = urlencode({"dag_id": run.dag, "run_id": run.run_id})
        (told,) = scene.stage.airflow.call("GET", f"/spark-recovery/api/run?{query}")["jobs"]
        assert (told["problem"], told["view"]["state"]) == ("", "FINISHED")
        assert (told["view"]["reused"], told["view"]["computed"]) == run.counts()


def kill_worker(driver: int) -> None:
    """SIGKILL for the processes of Airflow's that watch a driver, not for it nor for the scheduler above them."""
    watching = []
    for pid in ancestors(driver)[1:]:
        if "airflow scheduler" in command_of(pid):
            break
        assert pid > 1
        if "airflow" in command_of(pid).split()[0]:
            watching.append(pid)
    assert watching
    send(signal.SIGKILL, watching)
