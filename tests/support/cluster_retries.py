"""A driver process that makes one attempt after the other on a cluster, each in an application of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.support.driver import JOBS, SPARK_SETTINGS
from tests.support.sparks import ROOT
from tests.support.standalone import EXECUTOR_SETTINGS, StandaloneCluster
from tests.support.waiting import kill_tree, wait_until

TWO_EXECUTORS: dict[str, Any] = {"spark.cores.max": "2"}
"""Settings of an attempt that has two executors of one core."""


@dataclass
class Driver:
    """The process.

    :ivar rows: that the first attempt has computed
    """

    process: subprocess.Popen[str]
    requests: IO[str]
    log: Path
    answers: Path
    cluster: StandaloneCluster
    rows: Any = None
    asked: int = 0

    def begin(
        self, then: str = "", *, options: dict[str, str] | None = None, job: str = "job", **settings: str
    ) -> None:
        """Begin an attempt.

        :param then: what happens to executors on the way
        :param job: whose attempt it is
        """
        self.asked += 1
        self.log.write_text("")
        request = {"settings": settings, "options": options or {}, "then": then, "job": job}
        self.requests.write(json.dumps(request) + "\n")
        self.requests.flush()

    def end(self) -> Any:
        """Return what has become of the attempt."""
        wait_until(lambda: self._answer() or self.process.poll() is not None, "an attempt to end", 240)
        assert self._answer(), self.log.read_text()
        return json.loads(self._answer())

    def retry(self, then: str = "", *, options: dict[str, str] | None = None, job: str = "job", **settings: str) -> Any:
        """Make an attempt; return what has become of it."""
        self.begin(then, options=options, job=job, **settings)
        return self.end()

    def says(self, text: str) -> bool:
        """Whether the attempt that is under way logs *text* before it ends."""
        wait_until(lambda: text in self.log.read_text() or self._answer(), f"{text} in the log")
        return text in self.log.read_text()

    def _answer(self) -> str:
        lines = self.answers.read_text().splitlines(keepends=True)
        return lines[-1] if len(lines) == self.asked and lines[-1].endswith("\n") else ""


@contextlib.contextmanager
def retrying_driver(
    cluster: StandaloneCluster, folder: Path, orders: Path, settings: Mapping[str, str] | None = None
) -> Iterator[Driver]:
    """Start a driver, whose first attempt keeps its shuffles.

    :param orders: what its query reads
    :param settings: of all its applications
    """
    given = {**SPARK_SETTINGS, **EXECUTOR_SETTINGS, "spark.master": cluster.url, "spark.executor.cores": "1"}
    given |= {"spark.executorEnv.PYTHONPATH": str(ROOT), **(settings or {})}
    flags = " ".join(f'--conf "{name}={value}"' for name, value in given.items())
    answers = folder / "answers"
    answers.touch()
    script = str(JOBS / "retries_on_a_cluster.py")
    with (folder / "driver.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, script, str(folder / "attempts"), str(orders), str(answers)],
            env={
                **os.environ,
                "PYSPARK_SUBMIT_ARGS": f"{flags} pyspark-shell",
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": str(ROOT),
            },
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    assert process.stdin is not None
    driver = Driver(process, process.stdin, folder / "driver.log", answers, cluster)
    try:
        first = driver.retry(**TWO_EXECUTORS)
        assert len(first["kept"]) == 2, driver.log.read_text()
        driver.rows = first["rows"]
        yield driver
    finally:
        with contextlib.suppress(ProcessLookupError):
            kill_tree(process.pid)
        process.wait()
