"""Run a job under all that may happen to a driver, again and again, and look at what it leaves.

Each disturbance strikes at a moment of chance, most of them in the middle of a write. Afterwards the job is run to its
end, and has to have left the rows of a plain run, each once, and no two drivers may have written at one time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from airflow_provider.core.job import JobId
from airflow_provider.core.options import StorageOptions
from airflow_provider.core.run_request import EXIT_FENCED
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.processes import jvms_of, process_tree
from airflow_provider.storage.processes import process as process_of
from airflow_provider.storage.uris import open_store
from tests.support.claims import claim_elsewhere
from tests.support.driver import SPARK_SETTINGS
from tests.support.http_faults import Answer, Drop, Fault, FaultyServer, Stall
from tests.support.sparks import ROOT
from tests.support.waiting import signal_quietly
from tests.torture.moments import Moments, seconds_of
from tests.torture.outputs import differences, marks_of, rows_of, two_drivers, writes_of

SCRIPT = Path(__file__).with_name("script.py")
LEASE = 3.0
"""Seconds; its driver beats every second."""
OPTIONS = {
    "previous-worker-recovery-timeout": f"{LEASE:g}s",
    "ownership-timeout": "20s",
    "write-buffer-flush-interval": "200 ms",
    "overhead-budget": "1e6",
    "restart-strategy": "none",
}
CLEARED = " succeeded and its task was cleared"
"""What a driver says that finds its job finished."""
TIMEOUT = 300.0
"""Seconds that a driver may take."""
MOST_ATTEMPTS = 3
"""So often an attempt that nobody disturbs may fail for what was done to the ones before it."""
KILLS = ("kill", "kill", "kill", "kill", "kill_the_driver", "kill_the_driver", "kill_the_jvm", "kill_the_jvm")
OTHERS = ("pause", "pause_the_jvm", "pause_and_replace", "pause_the_driver_and_replace", "replace")
AWAY = ("store_refuses", "store_hangs", "store_is_slow", "credentials_expire")
AWAY_AND_KILL = ("store_hangs_and_kill", "store_refuses_and_kill")
FULL = ("disk_is_full", "disk_is_full_and_kill", "disk_is_full_and_kill")


@dataclass(frozen=True)
class Store:
    """Where the jobs' events and partitions are.

    :ivar uri: a folder, or a bucket, that each job has a place in
    :ivar options: of the command line
    :ivar proxy: between the drivers and the bucket; ``None`` for files
    :ivar disk: a small one of its own, that holds the jobs and what they store; ``None`` if there is none
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    proxy: FaultyServer | None = None
    disk: Path | None = None


@dataclass
class Outcome:
    """What was done to the jobs of a run, and what was found.

    :ivar done: disturbance → how often it struck a driver
    """

    jobs: int = 0
    drivers: int = 0
    done: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return sum(number for name, number in self.done.items() if "kill" in name)

    def __str__(self) -> str:
        return f"{self.jobs} jobs, {self.drivers} drivers, {self.kills} kills, {len(self.findings)} findings"


def plain_runs(folder: Path, seeds: Sequence[int]) -> None:
    """Run the scripts of these seeds without us, into ``folder/plain-SEED``."""
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as place:
        log = Path(place, "log")
        command = [sys.executable, "-m", "tests.torture.plain", str(folder), *map(str, seeds)]
        environment = spark_environment(Path(place), "plain", {})
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        try:
            code = process.wait(TIMEOUT)
        finally:
            process.kill()
            process.wait()
        assert code == 0, log.read_text(errors="replace")[-4000:]


def spark_environment(folder: Path, name: str, more: Mapping[str, str]) -> dict[str, str]:
    """The environment of a driver whose temporary files are in this folder."""
    settings = {
        **SPARK_SETTINGS,
        "spark.local.dir": str(folder / f"local-{name}"),
        "spark.sql.warehouse.dir": f"file://{folder}/warehouse-{name}",
        **more,
    }
    flags = " ".join(f'--conf "{key}={value}"' for key, value in settings.items())
    submitted = {"PYSPARK_SUBMIT_ARGS": f"{flags} pyspark-shell", "PYSPARK_PYTHON": sys.executable}
    return {**os.environ, **submitted, "PYTHONHASHSEED": "0"}


class Job:
    """One job and its drivers.

    :param plain: what a plain run of it has left
    :param seed: draws its steps, and what is done to it
    :param options: of the command line, beside the ones of all jobs
    """

    def __init__(
        self,
        folder: Path,
        plain: Path,
        store: Store,
        seed: int,
        outcome: Outcome,
        say: Callable[[str], None],
        options: Mapping[str, str],
    ) -> None:
        self.folder, self.plain, self.store, self.seed, self.outcome = folder, plain, store, seed, outcome
        self.random = Random(f"torture {seed}")
        self.mode = self.random.choice(["auto", "auto", "explicit"])
        self.committer = self.random.choice(["1", "2"])
        self.out, self.witness = folder / "out", folder / "witness"
        self.id = f"job-{seed}"
        self.say = say
        self._options = options
        self._running = ExitStack()
        self._struck: list[str] = []
        """What was done, and to which driver."""
        self._moments = Moments(self.random, seconds_of(plain / "witness"), self.out, self.witness, TIMEOUT)
        self._drivers = 0
        self._finished = False
        folder.mkdir(parents=True)

    # -- drivers ---------------------------------------------------------------------------------------------------

    @contextmanager
    def driver(self) -> Iterator[subprocess.Popen[bytes]]:
        """A driver of the job, killed with all that it has started if it still runs at the end."""
        self._drivers += 1
        number = self._drivers
        self.outcome.drivers += 1
        given = {
            "event-store": f"{self.store.uri}/{self.id}",
            "job-id": self.id,
            "recovery-points": self.mode,
            **OPTIONS,
            **self.store.options,
            **self._options,
        }
        flags = [text for name, value in given.items() for text in (f"--{name}", value)]
        run = [sys.executable, "-m", "airflow_provider.cli", "run", *flags, str(SCRIPT)]
        command = [*run, str(self.seed), str(self.out), str(self.witness)]
        with self._process(command, f"driver-{number}") as process:
            yield process
        # One that is killed on its last way out has finished its job; to run it again is to clear a green task. So did
        # a successor of it that began at that moment: the job is as far as that one has come.
        ended = f"Job {self.id}: FINISHED in attempt" in self.log(f"driver-{number}")
        later = (self.log(f"driver-{successor}") for successor in range(number + 1, self._drivers + 1))
        if not any("CREATED. Event store" in log for log in later):
            self._finished |= process.returncode == 0 or ended

    @contextmanager
    def _process(self, command: list[str], name: str) -> Iterator[subprocess.Popen[bytes]]:
        settings = {"spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": self.committer}
        environment = {**spark_environment(self.folder, name, settings), **self.store.environment}
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, env=environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            yield process
        finally:
            for pid in process_tree(process.pid):
                if pid != process.pid or process.poll() is None:
                    signal_quietly(pid, signal.SIGKILL)
            process.wait()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    # -- what is done to them --------------------------------------------------------------------------------------

    def torture(self, disturbances: int) -> None:
        """Disturb the job so often, then run it to its end and look."""
        left = [self.random.choice(self._possible()) for _ in range(disturbances)]
        undisturbed = 0
        while left and not self._finished and not self._was_cleared and undisturbed < MOST_ATTEMPTS:
            before = len(left)
            with self._running:
                process = self._running.enter_context(self.driver())
                # Several things may happen to one driver, until it has ended; a successor takes its place.
                while left and self._moments.wait(process, len(left)):
                    name = left.pop()
                    self.outcome.done[name] += 1
                    self._struck.append(f"{self._drivers}: {name}")
                    process = getattr(self, f"_{name}")(process) or process
            undisturbed = undisturbed + 1 if len(left) == before else 0
        if self._was_cleared:
            self.outcome.jobs += 1
            self.outcome.done["finished before its successor began"] += 1
            self.say(f"job {self.seed} ({self.mode}): had finished, and was run again; so far: {self.outcome}")
            return
        self._end()
        self._look()

    @property
    def _was_cleared(self) -> bool:
        """Whether a driver finished the job at the moment in which its successor was started. That is to clear a green
        task: all of it is written once more, as it should be, and there is nothing to compare.
        """
        return any(CLEARED in self.log(f"driver-{number}") for number in range(1, self._drivers + 1))

    def _possible(self) -> tuple[str, ...]:
        away = AWAY + AWAY_AND_KILL if self.store.proxy is not None else ()
        return KILLS + OTHERS + away + (FULL if self.store.disk is not None else ())

    def _wait(self, process: subprocess.Popen[bytes], seconds: float) -> bool:
        """Whether the driver still runs after so many seconds."""
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        return process.poll() is None

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        """All of it at once, as when its machine goes."""
        for pid in process_tree(process.pid):
            signal_quietly(pid, signal.SIGKILL)
        process.wait()

    def _kill_the_driver(self, process: subprocess.Popen[bytes]) -> None:
        """Its JVM is left behind, and may go on with what it was told."""
        process.kill()
        process.wait()

    def _kill_the_jvm(self, process: subprocess.Popen[bytes]) -> None:
        for jvm in self._jvms(process):
            signal_quietly(jvm, signal.SIGKILL)
        self._ends(process)

    def _jvms(self, process: subprocess.Popen[bytes]) -> list[int]:
        driver = process_of(process.pid)
        return [jvm.pid for jvm in jvms_of(driver)] if driver is not None else []

    def _pause(self, process: subprocess.Popen[bytes]) -> None:
        self._stop(process, process_tree(process.pid))

    def _pause_the_jvm(self, process: subprocess.Popen[bytes]) -> None:
        self._stop(process, self._jvms(process))

    def _stop(self, process: subprocess.Popen[bytes], pids: list[int]) -> None:
        """For longer than the lease."""
        for pid in pids:
            signal_quietly(pid, signal.SIGSTOP)
        self._wait(process, LEASE * 1.7)
        for pid in pids:
            signal_quietly(pid, signal.SIGCONT)

    def _pause_and_replace(self, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """Paused for longer than its lease, out of reach of its successor, and awake again while that one writes."""
        return self._stop_and_replace(process, process_tree(process.pid))

    def _pause_the_driver_and_replace(self, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """Only its Python is paused; tasks go on."""
        return self._stop_and_replace(process, [process.pid])

    def _stop_and_replace(self, process: subprocess.Popen[bytes], tree: list[int]) -> subprocess.Popen[bytes]:
        self._elsewhere()
        for pid in tree:
            signal_quietly(pid, signal.SIGSTOP)
        successor = self._running.enter_context(self.driver())
        try:
            self._until_it_writes(successor)
            self._wait(successor, self.random.uniform(0, LEASE))
        finally:
            for pid in tree:
                signal_quietly(pid, signal.SIGCONT)
        self._is_fenced(process)
        return successor

    def _until_it_writes(self, process: subprocess.Popen[bytes]) -> None:
        def writes() -> bool:
            return any(pid == process.pid for _, _, pid, _ in marks_of(self.witness))

        deadline = time.monotonic() + TIMEOUT
        while self._wait(process, 0.05) and not writes() and time.monotonic() < deadline:
            pass

    def _replace(self, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """A second driver beside a living one."""
        if self.random.random() < 0.5:
            self._elsewhere()
        successor = self._running.enter_context(self.driver())
        self._is_fenced(process)
        return successor

    def _is_fenced(self, process: subprocess.Popen[bytes]) -> None:
        """A driver that was replaced has ended, or ends soon, unless it had come to its end before."""
        code = self._ends(process)
        if code not in (EXIT_FENCED, -signal.SIGKILL, 0, 1):
            self._found(f"a driver that was replaced ended with {code}")

    def _ends(self, process: subprocess.Popen[bytes]) -> int:
        try:
            return process.wait(120)
        except subprocess.TimeoutExpired:
            self._found(f"driver {self._drivers} goes on after what should have ended it")
            self._kill(process)
            return 0

    def _store_refuses(self, process: subprocess.Popen[bytes]) -> None:
        self._away(process, Drop())

    def _store_hangs(self, process: subprocess.Popen[bytes]) -> None:
        self._away(process, Stall())

    def _store_is_slow(self, process: subprocess.Popen[bytes]) -> None:
        self._away(process, Answer(503, "SlowDown"))

    def _credentials_expire(self, process: subprocess.Popen[bytes]) -> None:
        self._away(process, Answer(400, "ExpiredToken"))

    def _store_hangs_and_kill(self, process: subprocess.Popen[bytes]) -> None:
        self._away(process, Stall(), self._kill)

    def _store_refuses_and_kill(self, process: subprocess.Popen[bytes]) -> None:
        self._away(process, Drop(), self._kill)

    def _away(
        self,
        process: subprocess.Popen[bytes],
        fault: Fault,
        then: Callable[[subprocess.Popen[bytes]], None] = lambda _: None,
    ) -> None:
        proxy = self.store.proxy
        assert proxy is not None
        proxy.fault = lambda request: fault
        try:
            self._wait(process, self.random.uniform(1, LEASE * 3))
            then(process)
        finally:
            proxy.reset()

    def _disk_is_full(self, process: subprocess.Popen[bytes]) -> None:
        """Whatever it writes fails for a while: events, partitions, shuffles, outputs, its log."""
        self._fill(process)

    def _disk_is_full_and_kill(self, process: subprocess.Popen[bytes]) -> None:
        self._fill(process, self._kill)

    def _fill(
        self, process: subprocess.Popen[bytes], then: Callable[[subprocess.Popen[bytes]], None] = lambda _: None
    ) -> None:
        assert self.store.disk is not None
        ballast = self.store.disk / "ballast"
        try:
            for block in (2**20, 2**12, 1):
                with suppress(OSError), ballast.open("ab", buffering=0) as file:
                    while True:
                        file.write(b"\0" * block)
            self._wait(process, self.random.uniform(0.5, LEASE * 3))
            then(process)
        finally:
            ballast.unlink()

    def _elsewhere(self) -> None:
        """Let the newest claim look as if its driver ran on another machine, out of reach."""
        store, prefix = self._objects, JobId.parse(self.id).prefix
        newest = Claims(store, prefix).newest()
        if newest is not None:
            claim_elsewhere(store, prefix, newest.epoch)

    @property
    def _objects(self) -> ObjectStore:
        options = StorageOptions.from_mapping(self.store.options)
        return open_store(f"{self.store.uri}/{self.id}", options)

    # -- what is left ----------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Run it to its end, undisturbed."""
        for _ in range(MOST_ATTEMPTS):
            if self._finished:
                return
            with self.driver() as process:
                self._wait(process, TIMEOUT)
        if not self._finished:
            self._found(f"it does not come to its end: {self.log(f'driver-{self._drivers}')[-4000:]}")

    def _look(self) -> None:
        self.outcome.jobs += 1
        found = [
            *differences(rows_of(self.plain / "out"), rows_of(self.out)),
            *two_drivers(writes_of(self.witness)),
        ]
        for one in found:
            self._found(one)
        self.say(f"job {self.seed} ({self.mode}): {self._drivers} drivers; so far: {self.outcome}")

    def _found(self, what: str) -> None:
        how = f"{self.mode}, committer {self.committer}, {self.folder}, {', '.join(self._struck)}"
        self.outcome.findings.append(f"job {self.seed} ({how}): {what}")
        self.say(self.outcome.findings[-1])
