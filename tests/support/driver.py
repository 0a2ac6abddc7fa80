"""Run real drivers (``spark-recovery run`` in a process of its own) and look at what they left."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider.cli import main as cli
from airflow_provider.core.job import JobId
from airflow_provider.core.options import StorageOptions
from airflow_provider.core.partitions import StoredPartition
from airflow_provider.storage.partition_store import PartitionStore
from airflow_provider.storage.uris import open_store
from tests.support.quick_jvm import QUICK_JVM, quick_jvm
from tests.support.quick_python import QUICK_WORKERS
from tests.support.sparks import ROOT, spark_of

JOBS = Path(__file__).parents[1] / "spark" / "jobs"

SPARK_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.level=warn {QUICK_JVM}",
    "spark.eventLog.compress": "false",
}


@dataclass(frozen=True)
class Outcome:
    """How a driver ended, what it said, and how many tasks it ran under each job description."""

    code: int
    log: str
    tasks: Counter[str]

    def put_back(self, shuffle: str) -> list[tuple[int, int]]:
        """How many map outputs of a shuffle it put back, and how many it left to compute, each time that it did."""
        told = re.findall(rf"{re.escape(shuffle)}: (\d+) map outputs put back, (\d+) to compute", self.log)
        return [(int(there), int(missing)) for there, missing in told]


@dataclass
class DriverHarness:
    """Runs attempts of one job against one event store.

    :param folder: a folder of its own for outputs and Spark's event logs
    :param settings: Spark settings beside those of all tests
    :ivar python: of another environment, with another Spark
    """

    folder: Path
    event_store: str
    job_id: str = "job"
    storage: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    attempts: int = 0
    python: str = sys.executable

    def command(self, script: str | Path, *arguments: str, options: Mapping[str, str] | None = None) -> list[str]:
        """The command line of an attempt; an option with an empty value is a flag."""
        given = {"event-store": self.event_store, "job-id": self.job_id, **self.storage, **(options or {})}
        flags = [text for name, value in given.items() for text in (f"--{name}", value) if text]
        path = script if isinstance(script, Path) else JOBS / script
        return [self.python, "-m", "airflow_provider.cli", "run", *flags, str(path), *arguments]

    def env(self, fault: str = "", **extra: str) -> dict[str, str]:
        logs = self.folder / f"eventlog-{self.attempts}"
        logs.mkdir(parents=True, exist_ok=True)
        recording = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{logs}"}
        quick = {"spark.driver.extraJavaOptions": f"-Dlog4j2.level=warn {quick_jvm(spark_of(self.python))}"}
        own_workers = {**self.environment, **extra}.get("PYSPARK_PYTHON", self.python) == self.python
        workers = QUICK_WORKERS if own_workers else {}
        settings = {**SPARK_SETTINGS, **workers, **quick, **recording, **self.settings}
        flags = " ".join(f'--conf "{name}={value}"' for name, value in settings.items())
        env = {
            **os.environ,
            "PYSPARK_SUBMIT_ARGS": f"{flags} pyspark-shell",
            "PYSPARK_PYTHON": self.python,
            "PYTHONHASHSEED": "0",
            **self._package(),
            **self.environment,
            **extra,
        }
        env.pop("SPARK_RECOVERY_FAULT", None)
        if fault:
            env["SPARK_RECOVERY_FAULT"] = fault
        return env

    def _package(self) -> dict[str, str]:
        """Environments of other Sparks have no provider installed: as on a cluster, it is brought along."""
        return {} if self.python == sys.executable else {"PYTHONPATH": str(ROOT)}

    def run(
        self, script: str | Path, *arguments: str, fault: str = "", options: Mapping[str, str] | None = None, **env: str
    ) -> Outcome:
        self.attempts += 1
        done = subprocess.run(
            self.command(script, *arguments, options=options),
            env=self.env(fault, **env),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=180,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, self.tasks(self.attempts))

    def start(
        self, script: str | Path, *arguments: str, fault: str = "", options: Mapping[str, str] | None = None, **env: str
    ) -> subprocess.Popen[str]:
        self.attempts += 1
        return subprocess.Popen(
            self.command(script, *arguments, options=options),
            env=self.env(fault, **env),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def tasks(self, attempt: int) -> Counter[str]:
        """Successful tasks of an attempt by job description, from Spark's own event log."""
        description_of_stage: dict[int, str] = {}
        tasks: Counter[str] = Counter()
        for event in self._events(attempt):
            if event["Event"] == "SparkListenerJobStart":
                text = (event.get("Properties") or {}).get("spark.job.description", "")
                description_of_stage |= dict.fromkeys(event["Stage IDs"], text)
            elif _succeeded(event):
                tasks[description_of_stage.get(event["Stage ID"], "")] += 1
        return tasks

    def task_seconds(self, attempt: int) -> float:
        """Task time of the successful tasks of an attempt, from Spark's own event log."""
        ended = filter(_succeeded, self._events(attempt))
        return sum(int(event["Task Metrics"]["Executor Run Time"]) for event in ended) / 1000

    def _events(self, attempt: int) -> Iterator[dict[str, Any]]:
        for file in (self.folder / f"eventlog-{attempt}").rglob("*"):
            if not file.is_file() or file.name.startswith("."):
                continue
            for line in file.read_text().splitlines():
                try:
                    event = json.loads(line)
                except ValueError:
                    continue  # the killed driver's last line
                yield event

    @property
    def store(self) -> PartitionStore:
        options = StorageOptions.from_mapping(self.storage)
        return PartitionStore(open_store(self.event_store, options), JobId.parse(self.job_id).prefix)

    def partitions(self, name: str) -> list[StoredPartition]:
        """Stored partitions of the vertex called *name*, all attempts."""
        found = self.store.survivors()
        return [p for vertex, stored in found.items() if vertex.rsplit("-", 1)[0] == name for p in stored]


class Submitted(DriverHarness):
    """Starts drivers by ``spark-submit``, whose JVM then is the parent of the Python driver."""

    def command(self, script: str | Path, *arguments: str, options: Mapping[str, str] | None = None) -> list[str]:
        run = super().command(script, *arguments, options=options)
        settings = {**SPARK_SETTINGS, **self.settings}
        flags = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
        application = str(Path(cli.__file__).with_name("__main__.py"))
        return [str(Path(self.python).with_name("spark-submit")), *flags, application, *run[3:]]


def _succeeded(event: dict[str, Any]) -> bool:
    return bool(event["Event"] == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] == "Success")
