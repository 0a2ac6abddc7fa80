"""Run one generated script in a process of its own: plain, recovered, or recovered and killed on its way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from airflow_provider.core.faults import FAULT
from tests.support.quick_jvm import QUICK_JVM
from tests.support.quick_python import QUICK_WORKERS
from tests.support.waiting import kill_tree

HALT = "DIFFERENTIAL_HALT"
ROOT = Path(__file__).parents[2]
RUNTIME = Path(__file__).parent / "runtime"
FORCED: Mapping[str, str] = {
    "recovery-points": "auto",
    "overhead-budget": "1e6",
    "write-buffer-flush-interval": "200 ms",
    "restart-strategy": "none",
}
"""Everything that can be kept is kept. Errors are the script's own: the application must not answer them."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.codegen.cache.maxEntries": "1000",
    # Spark 4.2.0 waits for ever where a Python UDF reads a Parquet scan's columns directly, without us, too.
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.level=error {QUICK_JVM}",
    **QUICK_WORKERS,
}


@dataclass(frozen=True)
class Stop:
    """When a driver is killed: so many seconds after a case has begun, or at one of the product's fault points.

    :ivar case: its name; ``case/moment`` for a place that the case names, at which the script waits
    """

    case: str = ""
    delay: float = 0.0
    fault: str = ""

    def __str__(self) -> str:
        return f"at fault point {self.fault}" if self.fault else f"{self.delay:.2f} s into {self.case}"


@dataclass(frozen=True)
class Ended:
    """How a run ended.

    :ivar records: what it has written down
    :ivar events: folder with Spark's event logs
    :ivar struck: the case that was at work when the driver was killed; empty if none was
    """

    code: int
    log: str
    records: Path
    progress: Mapping[str, tuple[float, float | None]]
    seconds: float
    events: Path

    @property
    def struck(self) -> str:
        return next((case for case, (_, end) in self.progress.items() if end is None), "")

    def took(self, case: str) -> float:
        begin, end = self.progress.get(case, (0.0, None))
        return (end - begin) if end else 1.0


@dataclass
class Folder:
    """Where one script lives in one mode: its outputs, its event store, one records file for each attempt."""

    path: Path
    script: Path
    data: Path
    python: str = sys.executable
    settings: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 900
    wrapper: tuple[str, ...] = ()
    attempts: int = 0

    def run(
        self,
        *,
        recovered: bool,
        cores: int = 2,
        stop: Stop | None = None,
        options: Mapping[str, str] | None = None,
        arguments: tuple[str, ...] = (),
    ) -> Ended:
        """Run the script once.

        :param recovered: under ``spark-recovery run``, as the next attempt at this folder's job
        :param arguments: of a script that is not a generated one
        """
        self.attempts += 1
        self.path.mkdir(parents=True, exist_ok=True)
        records, progress = self.path / f"records-{self.attempts}", self.path / f"progress-{self.attempts}"
        progress.touch()
        given = arguments or (str(self.data), str(self.path / "out"), str(records), str(progress))
        store = f"file://{self.path}/store"
        flags = [text for pair in {**FORCED, **(options or {})}.items() for text in (f"--{pair[0]}", pair[1])]
        runner = ["-m", "airflow_provider.cli", "run", "--event-store", store, "--job-id", "job", *flags]
        command = [self.python, *(runner if recovered else self.wrapper), str(self.script), *given]
        log = self.path / f"log-{self.attempts}"
        began = time.monotonic()
        with log.open("w") as output:
            process = subprocess.Popen(
                command,
                env=self._environment(cores, stop),
                cwd=self.path,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait(process, progress, stop)
        finally:
            if process.poll() is None:
                kill_tree(process.pid)
        code = process.wait()
        text = log.read_text(errors="replace")[-20_000:]
        return Ended(code, text, records, read_progress(progress), time.monotonic() - began, self.event_logs())

    def event_logs(self) -> Path:
        """Where Spark writes what this attempt does."""
        folder = self.path / f"events-{self.attempts}"
        folder.mkdir(exist_ok=True)
        return folder

    def _wait(self, process: subprocess.Popen[bytes], progress: Path, stop: Stop | None) -> None:
        deadline = time.monotonic() + self.timeout
        while process.poll() is None and time.monotonic() < deadline:
            if stop and stop.case and stop.case in read_progress(progress):
                with suppress(subprocess.TimeoutExpired):
                    process.wait(stop.delay)
                return
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.02)

    def _environment(self, cores: int, stop: Stop | None) -> dict[str, str]:
        settings = {
            **SETTINGS,
            "spark.master": f"local[{cores}]",
            "spark.local.dir": str(self.path / "local"),
            "spark.eventLog.dir": f"file://{self.event_logs()}",
            "spark.sql.warehouse.dir": f"file://{self.path}/warehouse",
            "spark.hadoop.javax.jdo.option.ConnectionURL": (
                f"jdbc:derby:;databaseName={self.path}/metastore;create=true"
            ),
            **self.settings,
        }
        flags = " ".join(f'--conf "{name}={value}"' for name, value in settings.items())
        environment = {
            **os.environ,
            "PYSPARK_SUBMIT_ARGS": f"{flags} pyspark-shell",
            "PYSPARK_PYTHON": self.python,
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": f"{ROOT}:{RUNTIME}",
            "PYTHONWARNINGS": "ignore",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        for name, value in (
            (FAULT, stop.fault if stop else ""),
            (HALT, stop.case if stop and "/" in stop.case else ""),
        ):
            environment.pop(name, None)
            if value:
                environment[name] = value
        return environment


def read_progress(path: Path) -> dict[str, tuple[float, float | None]]:
    """Cases that were begun, with the moments of their begin and end."""
    found: dict[str, tuple[float, float | None]] = {}
    for line in path.read_text().splitlines():
        what, _, rest = line.partition(" ")
        case, _, moment = rest.rpartition(" ")
        if what == "begin":
            found[case] = (float(moment), None)
        elif case in found:
            found[case] = (found[case][0], float(moment))
    return found
