"""One Airflow for many tests, and runs of a job in it: the DAGs, and what a test does with a run."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.end_to_end.jobs import gated_job, write_orders
from tests.end_to_end.stage import QUICK_CONF, Stage, TaskRun, airflow_stage, kill_everything

TASK = "spark"
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

with DAG("deferred", schedule=None, params=params):
    SparkRecoveryOperator(**common, application_args=arguments, retries=1, deferrable=True)

with DAG("mapped", schedule=None, params=params):
    SparkRecoveryOperator.partial(**common, retries=1).expand(
        application_args=[["SOURCE"] + [f"{text}-{index}" for text in arguments[1:]] for index in (0, 1)]
    )

with DAG("on_bucket", schedule=None, params=params):
    SparkRecoveryOperator(**common, application_args=arguments, retries=1, recovery_conn_id="bucket")
"""


class Scene:
    """Airflow, and runs of the job. Each has its script, output and gate in files of its own.

    :ivar triggerer: its process, as long as it runs
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.triggerer: subprocess.Popen[bytes] | None = None
        self._begun = 0

    def begin(self, dag: str, *, bug: bool = False, **script: Any) -> Run:
        self._begun += 1
        run = Run(self.stage, dag, TASK, "", self.stage.store, files=self.stage.work / f"{dag}-{self._begun}")
        run.script.write_text(gated_job(bug=bug, **script))
        conf = {"script": str(run.script), "target": str(run.target), "gate": str(run.gate)}
        run.run_id = self.stage.airflow.trigger(dag, conf)
        return run

    def start_triggerer(self) -> None:
        """Start the triggerer, which only deferred tasks need, unless it runs."""
        if self.triggerer is None:
            self.triggerer = self.stage.airflow.start_component("triggerer")

    def kill_triggerer(self) -> None:
        """SIGKILL for it, and for all that it has started."""
        assert self.triggerer is not None
        kill_everything(self.triggerer.pid)
        self.triggerer.wait()
        self.triggerer = None


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


@contextmanager
def airflow_scene(
    folder: Path,
    dag_files: Mapping[str, str],
    connections: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[Scene]:
    """Run an Airflow with the job's DAGs.

    :param dag_files: name to text of further ones
    :param connections: of the DAGs that name some
    """
    source = folder / "orders.parquet"
    write_orders(source)
    settings = {
        "AIRFLOW__CORE__PARALLELISM": "12",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "2",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "20",
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "2",
        "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "5",
    }
    jobs = DAG_FILE.replace("SOURCE", str(source)).replace("CONF", repr(QUICK_CONF))
    with airflow_stage(
        folder,
        {"jobs.py": jobs, **dag_files},
        "retried",
        connections=connections,
        settings=settings,
        recovery_timeout="6 s",
    ) as stage:
        yield Scene(stage)
