"""How long what was kept and put back lives: cached frames, cleaned shuffles, frames of threads: traps 16 to 18."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider.spark.identity.functions.reader import pickled_value
from tests.spark.attempts import Attempts
from tests.spark.auto.gates import Gate, running
from tests.spark.auto.watched import AutoAttempt, auto_attempt, configured, shuffle_numbers, tasks_run
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def nothing_stays_cached(spark: SparkSession) -> Iterator[None]:
    yield
    spark.catalog.clearCache()


def by_customer(spark: SparkSession, orders: Path) -> DataFrame:
    return spark.read.parquet(str(orders)).groupBy("customer").sum("amount")


def kept(spark: SparkSession, orders: Path, attempts: Attempts) -> list[Any]:
    with auto_attempt(attempts, spark) as first:
        df = by_customer(spark, orders)
        rows = sorted(df.collect())
        assert first.keep(df) == ["shuffle(customer)"]
    return rows


def forgotten(spark: SparkSession, numbers: set[int], attempt: AutoAttempt) -> bool:
    """Whether Spark has cleaned up after shuffles that nobody refers to, when it was asked to look."""
    gc.collect()
    spark._jvm.System.gc()  # type: ignore[union-attr]
    attempt.application.look()
    return not numbers & attempt.application._tools.tracker.shuffles().keys()


@pytest.mark.integration
def test_restored_files_go_with_their_shuffle(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """When a script drops a frame and Spark cleans up its shuffle, the files that were put back are deleted."""
    kept(spark, orders, attempts)
    with auto_attempt(attempts, spark) as second:
        again = by_customer(spark, orders)
        again.collect()
        numbers, files = set(second.application.registry.put_back), second.restored_files()
        assert len(files) == 2
        assert all(index.exists() for index, _ in files)
        second.application.look()
        assert all(index.exists() for index, _ in files)
        del again
        wait_until(lambda: forgotten(spark, numbers, second), "Spark has cleaned up the shuffle")
        second.application.look()
        assert not any(path.exists() for pair in files for path in pair)


@pytest.mark.integration
def test_looking_on_keeps_no_shuffle_alive(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """Spark cleans up the shuffles of frames that a script drops, kept or not, as it does without a watcher."""
    with auto_attempt(attempts, spark) as first:
        first.application._queries.started()
        numbers = set()
        for df in (by_customer(spark, orders), spark.read.parquet(str(orders)).repartitionByRange(3, "amount")):
            rows = df._jdf.queryExecution().toRdd().count()
            assert rows
            numbers |= set(shuffle_numbers(spark, df))
            first.see(df)
        for _ in range(30):
            first.application.look()
        assert first.kept() == ["shuffle(customer)"]
        del df
        assert len(numbers) == 2
        wait_until(lambda: forgotten(spark, numbers, first), "Spark has cleaned up the shuffles")


@pytest.mark.integration
def test_a_query_that_was_looked_at_while_it_ran_is_not_held(
    spark: SparkSession, orders: Path, attempts: Attempts, tmp_path: Path
) -> None:
    """Nor what it has shuffled and broadcast, kept or not, once the script has dropped it: a long job would run out of
    memory.
    """
    from pyspark.sql import functions as F

    gate = Gate(tmp_path / "gate", "waits")
    with auto_attempt(attempts, spark, restores=False) as first:
        before = first.application._tools.tracker.shuffles().keys()
        small = F.broadcast(spark.range(300).toDF("customer"))
        df = by_customer(spark, orders).join(small, "customer").where(gate.passes(F.lit("waits")))
        with running(df, gate) as rows:
            wait_until(lambda: first.application.look() or first.kept() == ["shuffle(customer)"], "the shuffle is kept")
            numbers = set(first.application._tools.tracker.shuffles().keys() - before)
            gate.open()
            assert len(rows.result()) == 300
        del df, rows
        assert numbers
        wait_until(lambda: forgotten(spark, numbers, first), "Spark has cleaned up the shuffle", timeout=30)


def test_a_broadcast_variable_that_a_script_drops_is_not_held(spark: SparkSession, attempts: Attempts) -> None:
    """Its blocks stay on driver and executors as long as anybody holds it; its value can still be told apart."""
    with auto_attempt(attempts, spark) as first:
        variable = spark.sparkContext.broadcast(list(range(1000)))
        number, held = variable._jbroadcast.id(), weakref.ref(variable)
        del variable
        gc.collect()
        assert held() is None
        assert pickle.loads(pickled_value(first.context.application.broadcasts[number])) == list(range(1000))


def test_a_cached_frame_has_one_value(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """The shuffles below a cached frame are kept, and put back before it is computed; ``show`` sees the same rows."""

    def cached() -> DataFrame:
        return by_customer(spark, orders).cache()

    with auto_attempt(attempts, spark) as first:
        df = cached()
        rows: list[Any] = []
        plain = tasks_run(spark, lambda: rows.extend(sorted(df.collect())))
        assert first.keep(df) == ["cached(customer, sum(amount))", "shuffle(customer)"]
        first.lose("cached(customer, sum(amount))")
        shown = df.orderBy("customer")._jdf.showString(20, 20, False)
        df.unpersist(blocking=True)
    with auto_attempt(attempts, spark) as second:
        again = cached()
        found: list[Any] = []
        tasks = tasks_run(spark, lambda: found.extend(sorted(again.collect())))
        assert found == rows
        assert second.put_back() == {"shuffle(customer)": 2}
        assert tasks == plain - 2  # the map tasks
        assert again.orderBy("customer")._jdf.showString(20, 20, False) == shown
        assert sorted(again.rdd.collect()) == rows
        assert sorted(again.collect()) == rows
        again.unpersist(blocking=True)


def test_a_cached_frame_that_loses_its_blocks_is_computed_again(
    spark: SparkSession, orders: Path, attempts: Attempts
) -> None:
    """What was restored for a cached frame lives as long as the frame: its blocks may have to be made again."""
    kept(spark, orders, attempts)
    with auto_attempt(attempts, spark) as second:
        again = by_customer(spark, orders).cache()
        rows = sorted(again.collect())
        numbers = set(second.put_back())
        gc.collect()
        spark._jvm.System.gc()  # type: ignore[union-attr]
        second.application.look()
        for rdd in spark.sparkContext._jsc.sc().getPersistentRDDs().keys().toSeq().mkString(",").split(","):
            spark.sparkContext._jsc.sc().env().blockManager().master().removeRdd(int(rdd), True)
        assert set(second.put_back()) == numbers
        assert sorted(again.collect()) == rows
        again.unpersist(blocking=True)


def test_threads_share_a_frame(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """Threads that start actions of one frame at the same time: it is filled once, and all get the same rows."""
    rows = kept(spark, orders, attempts)
    with auto_attempt(attempts, spark) as second:
        again = by_customer(spark, orders)
        together = threading.Barrier(4)

        def act(_: int) -> list[Any]:
            together.wait()
            return sorted(again.collect())

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(act, range(4))) == [rows] * 4
        assert second.put_back() == {"shuffle(customer)": 2}


@pytest.mark.few(1)
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_frame_is_filled_once(
    spark: SparkSession, orders: Path, attempts: Attempts, caplog: pytest.LogCaptureFixture, adaptive: str
) -> None:
    """Before its first action; the later ones find what was put back, and nothing is registered or counted twice."""
    with configured(spark, {"spark.sql.adaptive.enabled": adaptive}):
        rows = kept(spark, orders, attempts)
        with auto_attempt(attempts, spark) as second:
            again = by_customer(spark, orders)
            assert second.restore(again)
            assert not second.restore(again)
            assert sorted(again.collect()) == rows
            assert sorted(again.collect()) == rows
            assert second.put_back() == {"shuffle(customer)": 2}
    assert "put back into this query" not in caplog.text


def test_a_frame_whose_first_action_runs_is_left_alone(
    spark: SparkSession, orders: Path, tmp_path: Path, attempts: Attempts
) -> None:
    """While a thread runs a frame's plan as written, another thread's action puts nothing into it."""
    from pyspark.sql import functions as F

    gate = Gate(tmp_path / "gate", waits="1")

    def query() -> DataFrame:
        df = spark.read.parquet(str(orders)).where(gate.passes(F.expr("cast(amount as string)")))
        return df.groupBy("customer").count().groupBy("count").count()

    with auto_attempt(attempts, spark) as first:
        gate.open()
        df = query()
        rows = sorted(df.collect())
        assert len(first.keep(df)) == 2
    gate.path.unlink()
    with auto_attempt(attempts, spark) as second:
        again = query()
        with ThreadPoolExecutor(2) as pool:
            as_written = pool.submit(again._jdf.collectToPython)
            try:
                wait_until(lambda: spark.sparkContext.statusTracker().getActiveStageIds(), "its first stage runs")
                assert not second.restore(again)
                other = pool.submit(again.collect)
            finally:
                gate.open()
            as_written.result()
            assert sorted(other.result()) == rows
        assert second.put_back() == {}
