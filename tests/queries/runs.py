"""One unmodified script: by plain Python, under ``spark-recovery run``, and killed on its way."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airflow_provider.core.job import JobId
from airflow_provider.core.report import JobReport, build_report
from airflow_provider.storage.inspection import inspect_job
from airflow_provider.storage.uris import open_store
from tests.support.driver import DriverHarness
from tests.support.waiting import kill_tree

JOBS = Path(__file__).parent / "jobs"
SCRIPTS = Path(__file__).parent / "scripts"
EVERY_SHUFFLE: Mapping[str, str] = {"recovery-points": "auto", "overhead-budget": "1e6"}
"""Options of each run. The budget is large, so that shuffles of small data are kept, too."""
SHOWN = 20_000
"""Characters of a driver's log that a failed test shows."""


@dataclass(frozen=True)
class Ended:
    """How a driver ended: its exit code (-9 when it was killed), what it said, and how many seconds it lived."""

    code: int
    log: str
    seconds: float


@dataclass
class ScriptRuns:
    """Runs of one script: ``SCRIPT arguments… TARGET more…``.

    :param folder: a folder of its own for the event store and what Spark leaves
    :param settings: Spark settings beside those of all tests
    :param timeout: seconds that one run may take
    """

    folder: Path
    script: Path
    arguments: tuple[str, ...]
    more: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    python: str = sys.executable
    timeout: float = 560

    def __post_init__(self) -> None:
        settings = {"spark.local.dir": str(self.folder / "local"), **self.settings}
        self.harness = DriverHarness(self.folder, f"file://{self.folder}/store", settings=settings, python=self.python)

    def plain(self, target: Path) -> Ended:
        """Run the script as a user does without this project, to its end."""
        return self._end(self._start_plain(target))

    def attempt(self, target: Path, *, kill_after: float | None = None, fault: str = "") -> Ended:
        """Run the script under ``spark-recovery run``: the next attempt at one job.

        :param kill_after: seconds, after which the driver and all its processes get SIGKILL if they still live
        :param fault: fault point at which the driver kills itself
        """
        return self._end(self._start_attempt(target, fault), kill_after)

    def plain_and_attempt(self, plain: Path, target: Path) -> tuple[Ended, Ended]:
        """Both uninterrupted and at the same time, because starting Spark and planning keep little more than one core
        busy.
        """
        one, other = self._start_plain(plain), self._start_attempt(target, "")
        try:
            return self._end(one), self._end(other)
        finally:
            other.kill()

    def reused(self) -> int:
        """How many stored partitions the last attempt reused."""
        return self._report().partitions_reused

    def would_reuse(self) -> int:
        """How many stored partitions the next attempt would reuse."""
        return sum(vertex.would_reuse for vertex in self._report().vertices)

    def _report(self) -> JobReport:
        job = JobId.parse(self.harness.job_id)
        return build_report(str(job), inspect_job(open_store(self.harness.event_store), job))

    def _start_plain(self, target: Path) -> _Running:
        command = [self.python, str(self.script), *self.arguments, str(target), *self.more]
        return self._start(command, self.harness.env(), "plain")

    def _start_attempt(self, target: Path, fault: str) -> _Running:
        options: Mapping[str, str] = {**EVERY_SHUFFLE, "keep-partitions": ""}
        self.harness.attempts += 1
        command = self.harness.command(self.script, *self.arguments, str(target), *self.more, options=options)
        return self._start(command, self.harness.env(fault), f"attempt-{self.harness.attempts}")

    def _start(self, command: list[str], environment: dict[str, str], name: str) -> _Running:
        log = self.folder / f"{name}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return _Running(process, log, time.monotonic())

    def _end(self, running: _Running, kill_after: float | None = None) -> Ended:
        in_time = True
        try:
            running.process.wait(self.timeout if kill_after is None else kill_after)
        except subprocess.TimeoutExpired:
            in_time = False
        finally:
            running.kill()
        seconds, log = time.monotonic() - running.began, running.log.read_text()[-SHOWN:]
        assert in_time or kill_after is not None, f"not within {self.timeout:g} s:\n{log}"
        return Ended(running.process.wait(), log, seconds)


@dataclass(frozen=True)
class _Running:
    process: subprocess.Popen[bytes]
    log: Path
    began: float

    def kill(self) -> None:
        """Leave nothing behind; harmless where it has ended."""
        if self.process.poll() is None:
            kill_tree(self.process.pid)
            self.process.wait()
