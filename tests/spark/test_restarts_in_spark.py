"""A failed Spark job is restarted inside the application: what was stored stays, what is lost is computed again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import airflow_provider.spark
from airflow_provider.core.events import JobEvent, VertexFinished
from airflow_provider.core.executions import ExecutionState, ExecutionVersion
from airflow_provider.core.failure import UnrecoverableError
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.core.run_request import RunRequest
from airflow_provider.spark import checkpoint
from airflow_provider.spark.context import RecoveryContext
from airflow_provider.spark.jvm.partition_write import PartitionWriter
from tests.spark.attempts import Attempts, vertices
from tests.spark.failing_tasks import Task, ids, stored
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

QUICK = {"restart_strategy_fixed_delay_delay": "10 ms"}


class RestartingAttempts(Attempts):
    """Attempts with options of failover."""

    options: dict[str, Any]

    def request(self) -> RunRequest:
        request = super().request()
        return replace(request, options=RecoveryOptions.from_mapping({**QUICK, **self.options}, base=request.options))


@pytest.fixture
def restarting(tmp_path: Path) -> RestartingAttempts:
    attempts = RestartingAttempts(tmp_path / "store")
    attempts.options = {}
    return attempts


def test_what_failed_by_chance_is_restarted_and_what_was_stored_is_kept(
    spark: SparkSession, restarting: RestartingAttempts, tmp_path: Path
) -> None:
    """One partition of four fails once: what had been stored before does not run again, and the report says so."""
    task = Task(tmp_path / "runs", "double", failures=1, fails_in=3)
    with restarting.attempt() as context:
        assert ids(checkpoint(task.apply(spark.range(0, 40, 1, 4), 2), "double")) == list(range(0, 80, 2))
        runs = task.count()
        assert runs["3"] == 2
        # On two cores the last of four starts when two others have ended; one may have been cancelled beside it.
        assert sum(count == 1 for count in runs.values()) >= 2
        [vertex] = context.application.points
        assert context.executions.state(vertex) is ExecutionState.FINISHED
        assert context.master.graph.attempts[1].restarts == 1


@pytest.mark.integration
def test_a_bug_fails_the_job_after_the_restarts_that_are_allowed_and_the_count_survives_the_driver(
    spark: SparkSession, restarting: RestartingAttempts, tmp_path: Path
) -> None:
    """Two restarts over the life of the job: both in the first attempt, none in the second."""
    restarting.options = {"restart_strategy_fixed_delay_attempts": 2}
    task = Task(tmp_path / "runs", "bug", failures=100)
    for runs in (3, 4):
        with restarting.attempt(), pytest.raises(Exception, match="by chance"):
            checkpoint(task.apply(spark.range(0, 40, 1, 4), 2), "bug")
        assert task.count()["1"] == runs


@pytest.mark.parametrize(
    "strategy",
    ["none", *(pytest.param(name, marks=pytest.mark.integration) for name in ("exponential-delay", "failure-rate"))],
)
def test_other_strategies(spark: SparkSession, restarting: RestartingAttempts, tmp_path: Path, strategy: str) -> None:
    """``none`` never restarts; ``exponential-delay`` goes on without end; ``failure-rate`` until there are too many."""
    restarting.options = {
        "restart_strategy": strategy,
        "restart_strategy_exponential_delay_initial_backoff": "10 ms",
        "restart_strategy_failure_rate_max_failures_per_interval": 2,
        "restart_strategy_failure_rate_delay": "10 ms",
    }
    task = Task(tmp_path / "runs", "often", failures=4)
    with restarting.attempt():
        if strategy == "exponential-delay":
            assert len(ids(checkpoint(task.apply(spark.range(0, 8, 1, 2), 2), "often"))) == 8
        else:
            with pytest.raises(Exception, match="by chance"):
                checkpoint(task.apply(spark.range(0, 8, 1, 2), 2), "often")
    assert task.count()["1"] == {"none": 1, "exponential-delay": 5, "failure-rate": 3}[strategy]


@pytest.mark.few(1)
@pytest.mark.parametrize("error", ["UnrecoverableError: a wrong key", "NameError: no such name"])
def test_what_cannot_be_fixed_is_not_restarted(
    spark: SparkSession, restarting: RestartingAttempts, tmp_path: Path, error: str
) -> None:
    """An error that comes back whatever happens fails the job at once, from within a worker too."""
    task = Task(tmp_path / "runs", "wrong", failures=100, error=error)
    with restarting.attempt() as context:
        with pytest.raises(Exception, match=error.split(": ")[1]):
            checkpoint(task.apply(spark.range(0, 8, 1, 2), 2), "wrong")
        assert context.master.graph.attempts[1].restarts == 0
    assert task.count()["1"] == 1


def test_users_may_say_that_nothing_helps() -> None:
    """``UnrecoverableError`` is there for scripts."""
    assert airflow_provider.spark.UnrecoverableError is UnrecoverableError


@pytest.mark.integration
@pytest.mark.parametrize(
    ("reading", "harm"),
    [
        pytest.param("native", "truncated", marks=pytest.mark.integration),
        ("native", "deleted"),
        pytest.param("arrow", "changed", marks=pytest.mark.integration),
        pytest.param("arrow", "deleted", marks=pytest.mark.walk),
    ],
    indirect=["reading"],
)
def test_a_lost_input_is_computed_again_by_its_own_vertex(
    spark: SparkSession, restarting: RestartingAttempts, tmp_path: Path, reading: str, harm: str
) -> None:
    """One stored partition goes bad under the job: it alone is computed again, and later plans read the new one."""
    first, second = Task(tmp_path / "runs", "first"), Task(tmp_path / "runs", "second")
    with restarting.attempt() as context:
        upper = checkpoint(first.apply(spark.range(0, 40, 1, 4), 2), "upper")
        path = stored(context, "upper")[2]
        path.chmod(0o644)
        body = path.read_bytes()
        if harm == "deleted":
            path.unlink()
        else:
            path.write_bytes(body[: len(body) // 2] if harm == "truncated" else b"X" * len(body))
        lower = checkpoint(second.apply(upper, 10), "lower")
        assert ids(lower) == list(range(0, 800, 20))
        assert first.count() == {"0": 1, "1": 1, "2": 2, "3": 1}
        # The script still holds the old DataFrame; what is built on it reads what is there now, twice here.
        both = upper.alias("a").join(upper.alias("b"), "id").select("id")
        assert ids(checkpoint(both, "both")) == list(range(0, 80, 2))
        assert path not in stored(context, "upper")
        assert not [p for p in context.master.graph.problems if "ignored" in p]
    with restarting.attempt() as context:
        upper = checkpoint(first.apply(spark.range(0, 40, 1, 4), 2), "upper")
        assert ids(checkpoint(second.apply(upper, 10), "lower")) == list(range(0, 800, 20))
        assert {v.computed for v in vertices(context).values()} == {0}


@pytest.mark.integration
def test_a_lost_input_that_is_not_deterministic_takes_another_attempt(
    spark: SparkSession, restarting: RestartingAttempts
) -> None:
    """What was derived from a lost incarnation may not meet a new one: the next attempt computes both."""

    def noise() -> DataFrame:
        return checkpoint(spark.range(0, 40, 1, 4).selectExpr("id", "rand() AS r"), "noise")

    def differences(upper: DataFrame, lower: DataFrame) -> DataFrame:
        return checkpoint(upper.join(lower, "id").where("r <> copy").select("id"), "differences")

    with restarting.attempt() as context:
        upper = noise()
        lower = checkpoint(upper.selectExpr("id", "r AS copy"), "copy")
        stored(context, "noise")[1].unlink()
        with pytest.raises(Exception, match="noise-"):
            differences(upper, lower)
        assert context.master.graph.attempts[1].restarts == 0
    with restarting.attempt() as context:
        upper = noise()
        lower = checkpoint(upper.selectExpr("id", "r AS copy"), "copy")
        assert ids(differences(upper, lower)) == []
        told = vertices(context)
        assert (told["noise"].computed, told["copy"].reused) == (4, 0)


def test_full_restarts_all_that_the_attempt_has_come_to(
    spark: SparkSession, restarting: RestartingAttempts, tmp_path: Path
) -> None:
    """With ``failover_strategy=full`` a failure computes every vertex of the attempt again."""
    restarting.options = {"failover_strategy": "full"}
    first = Task(tmp_path / "runs", "first")
    second = Task(tmp_path / "runs", "second", failures=1)
    with restarting.attempt() as context:
        upper = checkpoint(first.apply(spark.range(0, 40, 1, 4), 2), "upper")
        old = stored(context, "upper")
        assert ids(checkpoint(second.apply(upper, 10), "lower")) == list(range(0, 800, 20))
        assert set(first.count().values()) == {2}
        assert not set(old) & set(stored(context, "upper"))


@dataclass
class Beside:
    """A vertex of ten rows that another thread computes, in one task that waits for a gate."""

    gate: Path
    runs: Path
    context: RecoveryContext
    spark: SparkSession

    def compute(self) -> DataFrame:
        gate, runs = str(self.gate), str(self.runs)

        def wait(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            import time
            from pathlib import Path

            with Path(runs).open("a") as file:
                file.write("x")
            while not Path(gate).exists():
                time.sleep(0.05)
            if Path(gate).read_text():
                raise NameError(Path(gate).read_text())
            yield from frames

        return checkpoint(self.spark.range(0, 10, 1, 1).mapInPandas(wait, "id long"), "beside")

    @property
    def vertex(self) -> str:
        return next((v for v, p in self.context.application.points.items() if p.name == "beside"), "")

    def is_at(self, state: ExecutionState) -> bool:
        return self.context.executions.state(self.vertex) is state

    def fail_over(self) -> None:
        """Compute another vertex, which fails once, in a third thread."""
        quick = Task(self.gate.parent / "runs", "quick", failures=1, fails_in=0)
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(checkpoint, quick.apply(self.spark.range(0, 10, 1, 1), 2), "quick")
            try:
                wait_until(done.done, "the restart")
            finally:
                self.gate.touch()
            assert ids(done.result()) == list(range(0, 20, 2))

    def wait_until_it_runs(self) -> None:
        wait_until(lambda: self.runs.exists(), "its task runs")

    def keys(self) -> list[str]:
        """Where its partitions are, which events and driver agree about."""
        keys = [record.key for record in self.context.master.graph.vertices[self.vertex].partitions.values()]
        assert keys == [partition.key for partition in self.context.done[self.vertex].values()]
        return keys


@pytest.fixture
def beside(spark: SparkSession, restarting: RestartingAttempts, tmp_path: Path) -> Iterator[Beside]:
    """In an attempt with ``full``, so that the failure of any other vertex restarts this one."""
    restarting.options = {"failover_strategy": "full"}
    with restarting.attempt() as context:
        made = Beside(tmp_path / "gate", tmp_path / "beside-runs", context, spark)
        try:
            yield made
        finally:
            made.gate.touch()  # or a failure of a test would wait for ever


def test_jobs_of_the_region_are_cancelled_before_the_restart(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``full``, a vertex that another thread computes is cancelled, and is there all the same in the end."""
    executions, fail = beside.context.executions, beside.context.executions.fail
    cancelled = []

    def has_ended(version: ExecutionVersion) -> bool:
        if version.vertex == beside.vertex:  # the gate is shut: nothing else than Spark has ended its job
            cancelled.append(executions.state(beside.vertex))
            beside.gate.touch()
        return fail(version)

    monkeypatch.setattr(executions, "fail", has_ended)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(beside.compute)
        beside.wait_until_it_runs()
        beside.fail_over()
        assert cancelled == [ExecutionState.CANCELING]
        assert ids(other.result(timeout=60)) == list(range(10))
    assert beside.context.master.graph.attempts[1].restarts == 1  # what was cancelled is no failure


def test_a_restart_waits_until_what_it_cancels_has_ended(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is about to start a job is no exception: the job is cancelled, too, and then the restart begins."""
    begun = []
    started, ended = threading.Event(), threading.Event()
    begin, run = beside.context.executions.begin, PartitionWriter.write

    def held_run(writer: PartitionWriter, *arguments: Any) -> None:
        if not started.is_set() and threading.current_thread() is not threading.main_thread():
            started.set()
            wait_until(lambda: not beside.is_at(ExecutionState.RUNNING), "it is cancelled")
            try:
                return run(writer, *arguments)
            finally:
                ended.set()
        return run(writer, *arguments)

    def noted_begin(vertex: str) -> ExecutionVersion:
        if vertex == beside.vertex and beside.context.executions.state(vertex) is not None:
            begun.append(ended.is_set())
            beside.gate.touch()
        return begin(vertex)

    monkeypatch.setattr(PartitionWriter, "write", held_run)
    monkeypatch.setattr(beside.context.executions, "begin", noted_begin)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(beside.compute)
        wait_until(started.is_set, "it is about to start its job")
        beside.fail_over()
        assert ids(other.result(timeout=60)) == list(range(10))
    assert begun == [True]


def test_what_a_restart_cancels_between_storing_and_sealing_is_not_sealed(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partitions are stored when another thread fails over: it is computed once more, sealed once, and its script
    gets what is there then.
    """
    beside.gate.touch()
    stored, sealed = threading.Event(), []
    seal, add = beside.context.master.vertex_finished, beside.context.master._record.add

    def held_seal(vertex: str, *args: Any) -> bool:
        if vertex == beside.vertex and not stored.is_set():
            stored.set()
            wait_until(lambda: not beside.is_at(ExecutionState.RUNNING), "it is cancelled")
        return seal(vertex, *args)

    def noted_add(event: JobEvent) -> None:
        if isinstance(event, VertexFinished) and event.vertex == beside.vertex:
            sealed.append(event)
        add(event)

    monkeypatch.setattr(beside.context.master, "vertex_finished", held_seal)
    monkeypatch.setattr(beside.context.master._record, "add", noted_add)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(beside.compute)
        wait_until(stored.is_set, "it is stored")
        beside.fail_over()
        assert ids(other.result(timeout=60)) == list(range(10))
    assert len(beside.keys()) == len(sealed) == 1
    assert beside.runs.read_text() == "xx"


def test_what_is_restarted_while_its_seal_is_stored_is_not_taken_for_what_is_there(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store takes long to confirm the end of a vertex, and another thread fails over meanwhile: whoever asks later
    reads what the restart has made.
    """
    beside.gate.touch()
    waiting, restarted = threading.Event(), threading.Event()
    flush = beside.context.master._record.flush

    def held_flush(patience: float = 0.0) -> bool:
        if patience and not waiting.is_set():
            waiting.set()
            wait_until(restarted.is_set, "the other thread has failed over")
        return flush(patience)

    monkeypatch.setattr(beside.context.master._record, "flush", held_flush)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(beside.compute)
        wait_until(waiting.is_set, "its end is recorded")
        old = beside.keys() if beside.vertex in beside.context.done else []
        beside.fail_over()
        restarted.set()
        assert ids(other.result(timeout=60)) == list(range(10))
    assert len(beside.keys()) == 1
    assert beside.keys() != old


def test_two_threads_at_one_recovery_point_compute_it_once(beside: Beside) -> None:
    """The second one waits for the first, and takes what it has made."""
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(beside.compute) for _ in range(2)]
        beside.wait_until_it_runs()
        beside.gate.touch()
        assert [ids(each.result(timeout=60)) for each in both] == [list(range(10))] * 2
    assert beside.runs.read_text() == "x"
    assert not beside.context.master.graph.attempts[1].skipped


def test_threads_that_wait_for_a_recovery_point_fail_with_it(beside: Beside) -> None:
    """What cannot be fixed is not tried again by each of the threads that have come to it, one after the other."""
    with ThreadPoolExecutor(4) as pool:
        all_of_them = [pool.submit(beside.compute) for _ in range(4)]
        beside.wait_until_it_runs()
        beside.gate.write_text("no such name")
        for each in all_of_them:
            with pytest.raises(Exception, match="no such name"):
                each.result(timeout=60)
    assert len(beside.runs.read_text()) <= 2  # one that comes in the moment of the failure begins anew


class Clock:
    """A clock that whoever waits puts forward."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_restart_comes_after_its_delay(
    spark: SparkSession, restarting: RestartingAttempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A minute lies between failure and restart, in which the attempt asks whether it still owns the job."""
    restarting.options = {"restart_strategy_fixed_delay_delay": "1 min"}
    clock = Clock()
    monkeypatch.setattr("airflow_provider.spark.points.restarting.time", clock)
    task = Task(tmp_path / "runs", "double", failures=1)
    with restarting.attempt() as context:
        asked: list[float] = []
        check = context.master.check
        monkeypatch.setattr(context.master, "check", lambda: (asked.append(clock.now), check())[1])
        assert len(ids(checkpoint(task.apply(spark.range(0, 8, 1, 2), 2), "double"))) == 8
    assert clock.now == pytest.approx(60)
    assert set(range(60)) <= {round(now) for now in asked}


def test_the_counters_are_in_the_store_before_the_restart(
    spark: SparkSession, restarting: RestartingAttempts, tmp_path: Path
) -> None:
    """A failure is an event like any other, and what the strategy remembers is plain JSON in it."""
    task = Task(tmp_path / "runs", "double", failures=1)
    with restarting.attempt() as context:
        checkpoint(task.apply(spark.range(0, 8, 1, 2), 2), "double")
        memory = context.master.coordinator("restart-strategy")
        assert memory is not None
        assert memory["failures"] == 1
        assert json.loads(json.dumps(memory)) == memory
