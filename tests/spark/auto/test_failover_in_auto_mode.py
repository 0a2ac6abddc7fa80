"""Failover inside the application in auto mode: what a failed action has shuffled is put back when it runs again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
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
    KEEP_ALL,
    QUICK,
    ROWS,
    FailingQuery,
    forget_accumulators,
    hundred,
    restarts,
    rows,
)
from tests.spark.failing_tasks import Task, ids, stored

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


def kept(context: RecoveryContext) -> dict[str, int]:
    """The shuffles that are recorded, and how many of their map outputs are."""
    vertices = context.master.graph.vertices.values()
    return {v.initialized.name: len(v.partitions) for v in vertices if v.initialized.rule == SHUFFLE}


def write(folder: Path) -> Callable[[DataFrame], Any]:
    def run(df: DataFrame) -> Any:
        df.write.parquet(str(folder / "out"))
        return sorted(map(tuple, df.sparkSession.read.parquet(str(folder / "out")).collect()))

    return run


@pytest.mark.parametrize("failover", ["region", "full"])
@pytest.mark.parametrize("action", ["collect", "count", "toPandas", "write"])
def test_a_task_that_fails_once(
    spark: SparkSession, attempts: Attempts, query: FailingQuery, tmp_path: Path, action: str, failover: str
) -> None:
    """Of the second try only the last stage runs. With ``full`` everything does, and what was kept is given up."""
    attempts.options["failover_strategy"] = failover
    run: Callable[[DataFrame], Any] = {
        "collect": rows,
        "count": lambda df: df.count(),
        "toPandas": lambda df: sorted(map(tuple, df.toPandas().to_numpy().tolist())),
        "write": write(tmp_path),
    }[action]
    with attempts.script() as context:
        df = query.fails(1).of(hundred(spark))
        assert run(df) == (5 if action == "count" else ROWS)
        assert query.ran("map") == (ONCE if failover == "region" else TWICE)
        assert query.ran("reduce") == {0: 2}
        assert restarts(context) == 1
    with attempts.script() as context:  # and the next attempt finds what is true
        assert rows(query.of(hundred(spark))) == ROWS


@pytest.mark.parametrize(
    ("options", "tries"),
    [
        ({"restart_strategy": "none"}, 1),
        ({"restart_strategy": "fixed-delay", "restart_strategy_fixed_delay_attempts": "2"}, 3),
        ({"restart_strategy": "failure-rate"}, 2),
        (
            {
                "restart_strategy": "exponential-delay",
                "restart_strategy_exponential_delay_attempts_before_reset_backoff": "3",
            },
            4,
        ),
    ],
    ids=lambda value: value["restart_strategy"] if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("failover", ["region", "full"])
def test_a_task_that_always_fails(
    spark: SparkSession, attempts: Attempts, query: FailingQuery, options: dict[str, str], tries: int, failover: str
) -> None:
    """As often as the strategy allows; the map tasks run once, or each time with ``full``. The next attempt puts back
    what the last try has left.
    """
    attempts.options |= {**options, "failover_strategy": failover}
    with attempts.script() as context:
        with pytest.raises(Exception, match="by chance"):
            query.fails(100).of(hundred(spark)).collect()
        assert query.ran("reduce") == {0: tries}
        assert query.ran("map") == dict.fromkeys((0, 1), 1 if failover == "region" else tries)
        assert restarts(context) == tries - 1
    query.fails(0)
    before = query.ran("map")
    with attempts.script() as context:
        there = kept(context)
        assert rows(query.of(hundred(spark))) == ROWS
        if there == {"shuffle(key)": 2}:
            assert query.ran("map") == before


def test_a_lost_map_output(
    spark: SparkSession, attempts: Attempts, query: FailingQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two is gone from the store when the action runs again: its task alone runs."""

    def losing(context: RecoveryContext, *args: Any) -> bool:
        answer = fail_over(context, *args)
        partitions = PartitionStore(context.master.store, context.master.prefix)
        partitions.delete(p for found in partitions.survivors().values() for p in found if p.index == 1)
        return answer

    monkeypatch.setattr("airflow_provider.spark.points.restarted_actions.fail_over", losing)
    with attempts.script() as context:
        assert rows(query.fails(1).of(hundred(spark))) == ROWS
        assert query.ran("map") == {0: 1, 1: 2}
        assert restarts(context) == 1


def test_a_fetch_failure_on_a_restored_output(
    spark: SparkSession, attempts: Attempts, query: FailingQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was put back is gone when the reducer reads it: Spark runs its task again, without a restart."""
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
    with attempts.script() as context:
        assert rows(query.fails(1).of(hundred(spark))) == ROWS
        assert query.ran("map")[1] == 2
        assert restarts(context) == 1


@pytest.mark.parametrize("failover", ["region", "full"])
def test_a_lost_partition_file(
    spark: SparkSession, attempts: Attempts, query: FailingQuery, tmp_path: Path, failover: str
) -> None:
    """An action over a recovery point that has lost a partition: that one is computed again, all are with ``full``."""
    attempts.options["failover_strategy"] = failover
    task = Task(tmp_path / "runs2", "upper")
    with attempts.script() as context:
        upper = checkpoint(task.apply(spark.range(0, 40, 1, 4), 2), "upper")
        stored(context, "upper")[2].unlink()
        assert ids(upper.where("id >= 0")) == list(range(0, 80, 2))
        again = {"2": 2} if failover == "region" else dict.fromkeys("0123", 2)
        assert task.count() == {**dict.fromkeys("0123", 1), **again}
        assert restarts(context) == 1


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
