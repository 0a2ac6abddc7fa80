"""Failover inside the application in auto mode: what a failed action has shuffled is put back when it runs again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from airflow_provider.core.events import SHUFFLE
from airflow_provider.spark import checkpoint
from airflow_provider.spark.auto.restoring import Restorer
from airflow_provider.spark.context import RecoveryContext
from airflow_provider.spark.jvm.reflection import of_environment
from airflow_provider.spark.local_dirs import LocalDirs
from airflow_provider.spark.points.restarting import fail_over
from airflow_provider.storage.partition_store import PartitionStore
from tests.spark.attempts import Attempts
from tests.spark.auto.worlds import Oracle
from tests.spark.failing_queries import (
    FAILOVERS,
    KEEP_ALL,
    QUICK,
    ROWS,
    STRATEGIES,
    FailingQuery,
    forget_accumulators,
    hundred,
    of_strategy,
    restarts,
    rows,
)
from tests.spark.failing_tasks import Task, ids, stored
from tests.support.parameters import each_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ONCE, TWICE = {0: 1, 1: 1}, {0: 2, 1: 2}


@pytest.fixture(autouse=True)
def own_accumulators() -> None:
    """Those of other tests in this process are not this script's."""
    forget_accumulators()


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    return Attempts(tmp_path / "store", {**KEEP_ALL, **QUICK})


@pytest.fixture
def query(tmp_path: Path, attempts: Attempts) -> FailingQuery:
    """Its last tasks fail only when the map outputs below are in the store."""
    return FailingQuery(tmp_path / "runs", attempts.folder)


each_cell = each_value(strategy=list(STRATEGIES), failover=FAILOVERS)
"""Under each restart strategy, and with both failover strategies."""
some_cells = each_value(strategy=["fixed-delay", "none"], failover=FAILOVERS)
"""With a restart in the attempt, and without: what the next attempt does then."""


def ask(
    spark: SparkSession,
    attempts: Attempts,
    query: FailingQuery,
    fails: str = "",
    behind: Callable[[RecoveryContext], None] | None = None,
) -> int:
    """Make an attempt of one query; return how often it was restarted.

    :param fails: the error that the script gets; by default the one of a strategy that restarts nothing
    :param behind: called when the query is over
    """
    with attempts.script() as context:
        df, left = query.of(hundred(spark)), (query.folder / "left").read_text()
        if fails or (left and attempts.options["restart_strategy"] == "none"):
            with pytest.raises(PySparkException, match=fails or "by chance"):
                df.collect()
        else:
            assert rows(df) == ROWS
        if behind is not None:
            behind(context)
        return restarts(context)


def kept(context: RecoveryContext) -> dict[str, int]:
    """The shuffles that are recorded, and how many of their map outputs are."""
    vertices = context.master.graph.vertices.values()
    return {v.initialized.name: len(v.partitions) for v in vertices if v.initialized.rule == SHUFFLE}


def write(folder: Path) -> Callable[[DataFrame], Any]:
    def run(df: DataFrame) -> Any:
        df.write.parquet(str(folder / "out"))
        return sorted(map(tuple, df.sparkSession.read.parquet(str(folder / "out")).collect()))

    return run


def some(failover: str, restarted: int, region: dict[int, int] = ONCE) -> dict[int, int]:
    """How often each map task runs in an attempt that is restarted so many times and its successor.

    :param region: where only what is missing runs
    """
    return region if failover == "region" or not restarted else dict.fromkeys((0, 1), 1 + restarted)


@pytest.mark.few(1)
@each_value(action=["count", "toPandas", "write"], failover=FAILOVERS)
def test_each_action_is_restarted(
    spark: SparkSession, attempts: Attempts, query: FailingQuery, tmp_path: Path, action: str, failover: str
) -> None:
    """Of the second try only the last stage runs. With ``full`` everything does, and what was kept is given up."""
    attempts.options["failover_strategy"] = failover
    run: Callable[[DataFrame], Any] = {
        "count": lambda df: df.count(),
        "toPandas": lambda df: sorted(map(tuple, df.toPandas().to_numpy().tolist())),
        "write": write(tmp_path),
    }[action]
    with attempts.script() as context:
        df = query.fails(1).of(hundred(spark))
        assert run(df) == (5 if action == "count" else ROWS)
        assert query.ran("map") == some(failover, 1)
        assert query.ran("reduce") == {0: 2}
        assert restarts(context) == 1
    with attempts.script() as context:  # and the next attempt finds what is true
        assert rows(query.of(hundred(spark))) == ROWS


@pytest.mark.few(1)
@each_cell
def test_a_task_that_fails_once(
    spark: SparkSession, attempts: Attempts, query: FailingQuery, strategy: str, failover: str
) -> None:
    """Of the second try only the last stage runs, in the attempt or in the next one."""
    attempts.options |= of_strategy(strategy, failover)
    restarted = ask(spark, attempts, query.fails(1))
    assert restarted == (strategy != "none")
    if not restarted:
        ask(spark, attempts, query)
    assert query.ran("map") == some(failover, restarted)
    assert query.ran("reduce") == {0: 2}


@pytest.mark.few(1)
@each_cell
def test_a_task_that_always_fails(
    spark: SparkSession, attempts: Attempts, query: FailingQuery, strategy: str, failover: str
) -> None:
    """As often as the strategy allows; the map tasks run once, or each time with ``full``. The next attempt puts back
    what the last try has left.
    """
    allowed = STRATEGIES[strategy][1]
    attempts.options |= of_strategy(strategy, failover)
    assert ask(spark, attempts, query.fails(100), fails="by chance") == allowed
    assert query.ran("reduce") == {0: allowed + 1}
    assert query.ran("map") == some(failover, allowed)
    before = query.fails(0).ran("map")
    with attempts.script() as context:
        there = kept(context)
        assert rows(query.of(hundred(spark))) == ROWS
        if there == {"shuffle(key)": 2}:
            assert query.ran("map") == before


@pytest.mark.few(1)
@some_cells
def test_a_function_that_raises(
    spark: SparkSession, attempts: Attempts, query: FailingQuery, strategy: str, failover: str
) -> None:
    """What it raises comes back whatever happens: no strategy answers it, and a corrected one finds all map outputs."""
    attempts.options |= of_strategy(strategy, failover)
    query = replace(query, error="NameError: no such name")
    assert ask(spark, attempts, query.fails(100), fails="no such name") == 0
    assert ask(spark, attempts, query.fails(0)) == 0
    assert query.ran("map") == ONCE
    assert query.ran("reduce") == {0: 2}


@pytest.mark.few(1)
@some_cells
def test_a_lost_map_output(
    spark: SparkSession,
    attempts: Attempts,
    query: FailingQuery,
    monkeypatch: pytest.MonkeyPatch,
    strategy: str,
    failover: str,
) -> None:
    """One of two is gone from the store when the action runs again: its task alone runs."""

    def lose(context: RecoveryContext) -> None:
        partitions = PartitionStore(context.master.store, context.master.prefix)
        partitions.delete(p for found in partitions.survivors().values() for p in found if p.index == 1)

    def losing(context: RecoveryContext, *args: Any) -> bool:
        answer = fail_over(context, *args)
        lose(context)
        return answer

    monkeypatch.setattr("airflow_provider.spark.points.restarted_actions.fail_over", losing)
    attempts.options |= of_strategy(strategy, failover)
    restarted = ask(spark, attempts, query.fails(1), behind=lose if strategy == "none" else None)
    assert restarted == (strategy != "none")
    if not restarted:
        ask(spark, attempts, query)
    assert query.ran("map") == some(failover, restarted, {0: 1, 1: 2})


@pytest.mark.few(1)
@some_cells
def test_a_fetch_failure_on_a_restored_output(
    spark: SparkSession,
    attempts: Attempts,
    query: FailingQuery,
    monkeypatch: pytest.MonkeyPatch,
    strategy: str,
    failover: str,
) -> None:
    """A file that was put back is gone when the reducer reads it: Spark takes all outputs of that executor for lost,
    and runs their tasks again, without a restart.
    """
    before = Restorer.before

    def losing(restorer: Restorer, *args: Any, **kwargs: Any) -> bool:
        begun = before(restorer, *args, **kwargs)
        application = restorer._watcher.application()
        assert application is not None
        for output in (output for files in application.registry.put_back.values() for _, output in files[1:]):
            manager = of_environment(spark, "blockManager", "org.apache.spark.storage.BlockManager")
            dirs = LocalDirs(tuple(str(path) for path in manager.diskBlockManager().localDirsString()))
            dirs.file(output.index).unlink()
        return begun

    monkeypatch.setattr(Restorer, "before", losing)
    attempts.options |= of_strategy(strategy, failover)
    restarted = ask(spark, attempts, query.fails(1))
    assert restarted == (strategy != "none")
    if not restarted:  # the next attempt puts back
        ask(spark, attempts, query)
    assert query.ran("map") == TWICE


@pytest.mark.few(1)
@some_cells
def test_a_lost_partition_file(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, strategy: str, failover: str
) -> None:
    """An action over a recovery point that has lost a partition: that one is computed again, all are with ``full``."""
    attempts.options |= of_strategy(strategy, failover)
    task = Task(tmp_path / "runs2", "upper")

    def upper() -> DataFrame:
        return checkpoint(task.apply(spark.range(0, 40, 1, 4), 2), "upper")

    with attempts.script() as context:
        df = upper()
        stored(context, "upper")[2].unlink()
        if strategy != "none":
            assert ids(df.where("id >= 0")) == list(range(0, 80, 2))
            assert restarts(context) == 1
        else:
            with pytest.raises(Exception, match="upper"):
                ids(df.where("id >= 0"))
    if strategy == "none":
        with attempts.script():
            assert ids(upper()) == list(range(0, 80, 2))
    again = {"2": 2} if failover == "region" or strategy == "none" else dict.fromkeys("0123", 2)
    assert task.count() == {**dict.fromkeys("0123", 1), **again}


@pytest.mark.few(1)
@pytest.mark.parametrize(("failover", "left"), [("region", 2), ("full", 0)])
def test_full_gives_up_kept_shuffles_of_other_actions_too(
    spark: SparkSession, attempts: Attempts, query: FailingQuery, tmp_path: Path, failover: str, left: int
) -> None:
    """They are recorded as computed again; with ``region`` they stay."""
    attempts.options["failover_strategy"] = failover
    other = FailingQuery(tmp_path / "other", attempts.folder).fails(0, waiting_for=-2)
    with attempts.script() as context:
        other.of(hundred(spark).withColumn("id", F.col("id") + 1)).collect()
        assert context.shuffles is not None
        context.shuffles.watcher.catch_up()  # type: ignore[attr-defined]
        (mine,) = context.master.graph.vertices.values()
        assert len(mine.partitions) == 2
        assert rows(query.fails(1, waiting_for=4).of(hundred(spark))) == ROWS
        assert len(mine.partitions) == left


def test_a_later_query_of_the_attempt_is_asked_anew(
    spark: SparkSession, attempts: Attempts, query: FailingQuery
) -> None:
    """Only what runs again begins with what this attempt has kept: a loop that asks again gets a new answer."""
    with attempts.script() as context:
        assert rows(query.fails(1).of(hundred(spark))) == ROWS
        assert query.ran("map") == ONCE
        assert rows(query.of(hundred(spark))) == ROWS
        assert query.ran("map") == TWICE
        assert restarts(context) == 1


@pytest.mark.few(1)
@pytest.mark.parametrize("action", ["collect", "count"])
def test_a_try_that_failed_is_no_time_of_its_own(
    spark: SparkSession, attempts: Attempts, query: FailingQuery, orders: Path, tmp_path: Path, action: str
) -> None:
    """The script asks twice, and the first time is restarted: a retry takes the second answer for the second time."""
    oracle = Oracle(tmp_path / "answer", spark, orders)

    def ask_first() -> None:
        df = query.above(oracle.ask())
        if action == "collect":
            assert df.collect()[0][0] == "at first"
        else:
            assert df.count() == 1

    with attempts.script() as context:
        oracle.say("at first")
        query.fails(1)
        ask_first()
        oracle.say("later")
        query.fails(0, waiting_for=-4)
        assert query.above(oracle.ask()).collect()[0][0] == "later"
        assert restarts(context) == 1
    query.fails(0)
    with attempts.script():
        oracle.say("in the retry")
        ask_first()
        assert query.above(oracle.ask()).collect()[0][0] == "later"
