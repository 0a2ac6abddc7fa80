"""What cannot be kept or put back runs as written, and the log says why: traps 9, 14, 15 and 19."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.spark.auto import seen_shuffles, watching
from airflow_provider.spark.auto.shuffle_identity import ShuffleIdentity
from airflow_provider.spark.auto.watching import Watcher
from airflow_provider.spark.jvm import exchanges
from airflow_provider.spark.jvm.adaptive_plan import AdaptivePlan
from airflow_provider.spark.jvm.exchanges import shuffles_of
from airflow_provider.spark.jvm.map_output_tracker import not_sparks_own_files
from airflow_provider.spark.jvm.reflection import NoSuchMember
from airflow_provider.spark.jvm.session_settings import QuerySettings, all_settings
from tests.spark.attempts import Attempts
from tests.spark.auto.watched import EVERYTHING, AutoAttempt, auto_attempt, configured
from tests.support.driver import DriverHarness
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_BROADCAST = {"spark.sql.autoBroadcastJoinThreshold": "-1"}


def by_customer(spark: SparkSession, orders: Path) -> DataFrame:
    return spark.read.parquet(str(orders)).groupBy("customer").sum("amount")


def identities(spark: SparkSession, attempt: AutoAttempt, df: DataFrame) -> list[str]:
    """Identities of the shuffles of a query, after it has run; those further up first."""
    df.collect()
    plan = df._jdf.queryExecution().executedPlan()
    found, settings = shuffles_of(plan, spark, set()), QuerySettings(all_settings(spark))
    return [
        ShuffleIdentity.of(attempt.context, spark, each.exchange, each.canonical, settings).vertex for each in found
    ]


PAIRS: dict[str, tuple[Callable[[DataFrame], DataFrame], Callable[[DataFrame], DataFrame]]] = {
    "kind of partial buffer": (
        lambda df: df.groupBy("customer").agg({"amount": "min"}),
        lambda df: df.groupBy("customer").agg({"amount": "max"}),
    ),
    "number of reducers": (lambda df: df.repartition(2, "customer"), lambda df: df.repartition(3, "customer")),
    "who asked for it": (lambda df: df.repartition("customer"), lambda df: df.hint("rebalance", "customer")),
    "value of a literal": (
        lambda df: df.where("amount > 5").groupBy("customer").count(),
        lambda df: df.where("amount > 6").groupBy("customer").count(),
    ),
    "rows that a subquery lets pass": (
        lambda df: df.where("amount > (SELECT min(id) FROM range(5))").groupBy("customer").count(),
        lambda df: df.where("amount > (SELECT min(id) FROM range(1, 5))").groupBy("customer").count(),
    ),
}


@pytest.mark.few(2)
@pytest.mark.spark
@pytest.mark.parametrize("pair", PAIRS)
def test_shuffles_of_other_rows_have_other_identities(
    spark: SparkSession, orders: Path, attempts: Attempts, pair: str
) -> None:
    """The physical plan below counts, with all fields of the partitioning, modes of aggregates and subqueries."""
    one, other = PAIRS[pair]
    df = spark.read.parquet(str(orders))
    with auto_attempt(attempts, spark) as first:
        assert identities(spark, first, one(df)) == identities(spark, first, one(df))
        assert not set(identities(spark, first, one(df))) & set(identities(spark, first, other(df)))


PRUNED = {
    "dynamicpruning": {
        "spark.sql.optimizer.dynamicPartitionPruning.reuseBroadcastOnly": "false",
        "spark.sql.optimizer.dynamicPartitionPruning.useStats": "false",
        "spark.sql.optimizer.dynamicPartitionPruning.fallbackFilterRatio": "10",
    },
    "might_contain": {
        "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
        "spark.sql.optimizer.runtime.bloomFilter.enabled": "true",
        "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": "0",
    },
}
"""What filters the rows of one side of a join by the other side's while the query runs → settings that bring it."""


@pytest.mark.few(1)
@pytest.mark.spark
@pytest.mark.parametrize("pruned", PRUNED)
def test_what_a_join_prunes_below_its_own_shuffle_counts(
    spark: SparkSession, tmp_path: Path, attempts: Attempts, pruned: str
) -> None:
    """Rows that were left out because the other side of a join had none for them do not stand in their own plan."""
    day = [number % 10 for number in range(1000)]
    pq.write_to_dataset(pa.table({"day": day, "amount": range(1000)}), tmp_path / "sales", partition_cols=["day"])
    pq.write_table(pa.table({"on": range(10), "month": [number // 5 for number in range(10)]}), tmp_path / "days")
    sales, days = spark.read.parquet(str(tmp_path / "sales")), spark.read.parquet(str(tmp_path / "days"))

    def query(month: int) -> DataFrame:
        return sales.join(days.where(f"month = {month}"), sales["day"] == days["on"]).select("amount", "on")

    with configured(spark, {**NO_BROADCAST, **PRUNED[pruned]}), auto_attempt(attempts, spark) as first:
        df = query(0)
        one, other = identities(spark, first, df), identities(spark, first, query(1))
        assert pruned in df._jdf.queryExecution().executedPlan().toString()
        assert one == identities(spark, first, query(0))
        assert not set(one) & set(other)


@pytest.mark.spark
def test_shuffles_below_and_above_an_aggregate_are_two(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """The shuffles of one distinct aggregate share their logical plan; each is a vertex of its own, and is restored."""
    from pyspark.sql import functions as F

    def query() -> DataFrame:
        return spark.read.parquet(str(orders)).groupBy("customer").agg(F.countDistinct("amount"), F.sum("amount"))

    with auto_attempt(attempts, spark) as first:
        df = query()
        rows = sorted(df.collect())
        assert len(set(identities(spark, first, df))) == 2
        assert len(first.keep(df)) == 2
    with auto_attempt(attempts, spark) as second:
        again = query()
        assert sorted(again.collect()) == rows
        assert len(second.put_back()) == 2


@pytest.mark.spark
@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("spark.shuffle.manager", "org.example.RemoteShuffleManager", "another shuffle manager is in use"),
        ("spark.io.encryption.enabled", "true", "encrypted with a key of this application"),
        ("spark.shuffle.push.enabled", "true", "merged by another service"),
        ("spark.shuffle.useOldFetchProtocol", "true", "the names of Spark 2"),
        ("spark.shuffle.sort.io.plugin.class", "org.example.Plugin", "a plugin keeps shuffle files elsewhere"),
    ],
)
def test_shuffle_files_of_another_kind_are_left_alone(
    spark: SparkSession, setting: str, value: str, reason: str
) -> None:
    """Only files of Spark's own shuffle, unencrypted on local disks, mean the same in another application."""
    assert not_sparks_own_files(spark) == ""
    conf = spark.sparkContext._jsc.sc().conf().clone().set(setting, value)
    context = SimpleNamespace(conf=lambda: conf)
    assert reason in not_sparks_own_files(SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context)))


@pytest.mark.integration
@pytest.mark.process
def test_encrypted_shuffles_are_not_kept(driver: DriverHarness, tmp_path: Path) -> None:
    """A driver that encrypts its shuffle files runs as it would have, stores none of them, and says so once."""
    driver.settings = {"spark.io.encryption.enabled": "true"}
    log = log_of_a_driver_that_keeps_nothing(driver, tmp_path)
    assert log.count("shuffle files are encrypted with a key of this application") >= 1


@pytest.mark.integration
@pytest.mark.process
def test_a_session_of_spark_connect_runs_as_written(driver: DriverHarness, tmp_path: Path) -> None:
    """Its client cannot see plans, so what a server in this process shuffles is not kept either, and it is said."""
    log = log_of_a_driver_that_keeps_nothing(driver, tmp_path, SPARK_REMOTE="local[2]")
    assert "a client of Spark Connect cannot see plans" in log


def log_of_a_driver_that_keeps_nothing(driver: DriverHarness, folder: Path, **environment: str) -> str:
    """Run an unmodified script in auto mode; it succeeds, and leaves nothing in the store."""
    source, target = folder / "orders", folder / "totals"
    source.mkdir()
    pq.write_table(pa.table({"customer": [1, 2, 2], "amount": [3, 4, 5]}), source / "part.parquet")
    options = {"keep-partitions": "", "recovery-points": "auto", "overhead-budget": "1e9"}
    outcome = driver.run("unmodified.py", str(source), str(target), options=options, **environment)
    assert outcome.code == 0, outcome.log
    assert not driver.store.survivors()
    assert sorted(pq.read_table(target)["total"].to_pylist()) == [3, 9]
    return outcome.log


@pytest.mark.spark
def test_a_barrier_stage_is_not_kept(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """Tasks in barrier mode run all together or not at all, so a shuffle of theirs is neither kept nor put back."""

    def same(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield from frames

    def query() -> DataFrame:
        df = spark.read.parquet(str(orders))
        return df.mapInPandas(same, df.schema, barrier=True).groupBy("customer").sum("amount")

    with auto_attempt(attempts, spark) as first:
        df = query()
        rows = sorted(df.collect())
        assert first.keep(df) == []
        assert "its tasks run in barrier mode" in first.skipped()
    with auto_attempt(attempts, spark) as second:
        assert sorted(query().collect()) == rows
        assert second.put_back() == {}


@pytest.mark.spark
def test_without_reuse_of_exchanges_nothing_is_put_back(
    spark: SparkSession, orders: Path, attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark does not look into the plan's stages then; the setting is the user's, the query runs as written."""
    caplog.set_level(logging.INFO)
    with configured(spark, {"spark.sql.exchange.reuse": "false"}):
        with auto_attempt(attempts, spark) as first:
            df = by_customer(spark, orders)
            rows = sorted(df.collect())
            assert first.keep(df) == ["shuffle(customer)"]
        with auto_attempt(attempts, spark) as second:
            assert sorted(by_customer(spark, orders).collect()) == rows
            assert second.put_back() == {}
            assert spark.conf.get("spark.sql.exchange.reuse") == "false"
    assert "Nothing is put back into this query: spark.sql.exchange.reuse is off" in caplog.text


@pytest.mark.spark
def test_without_a_private_field_nothing_is_kept(
    spark: SparkSession,
    orders: Path,
    attempts: Attempts,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where Spark has renamed what is looked at, the script runs as it would have, and one line says so."""

    def renamed(owner: Any, name: str) -> Any:
        raise NoSuchMember(f"{owner.getClass().getName()} has no field {name}")

    monkeypatch.setattr(exchanges, "private_field", renamed)
    attempts.options = dict(EVERYTHING)
    with attempts.attempt() as context:
        watcher = Watcher(context)
        assert watcher.application() is None
        assert watcher.application() is None
        assert len(by_customer(spark, orders).collect()) == 300
    lines = [record.getMessage() for record in caplog.records if "are not kept" in record.getMessage()]
    assert len(lines) == 1
    assert "has no field executionIdToQueryExecution" in lines[0]


@pytest.mark.spark
def test_without_the_field_of_a_shuffle_the_watching_ends(
    spark: SparkSession,
    orders: Path,
    attempts: Attempts,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is first missed when a plan is looked at ends the watching, too, after a few looks, and one line says so."""

    def search(plan: Any, spark: SparkSession, known: set[int]) -> list[Any]:
        plan.getClass().getDeclaredField("renamed")  # what the search in the JVM fails with
        return []

    monkeypatch.setattr(seen_shuffles, "shuffles_of", search)
    monkeypatch.setattr(watching, "_PAUSE", 0)
    monkeypatch.setattr(watching, "_SHARE", 0)
    attempts.options = dict(EVERYTHING)
    with attempts.attempt() as context:
        watcher = Watcher(context)
        application = watcher.application()
        assert application is not None
        with watcher.looking():
            df = by_customer(spark, orders)
            assert len(df.collect()) == 300
            application.note(df._jdf.queryExecution(), QuerySettings(all_settings(spark)))
            wait_until(lambda: watcher.application() is None, "the watching has ended")
        assert not application.registry.vertices
    lines = [record.getMessage() for record in caplog.records if "are not kept" in record.getMessage()]
    assert len(lines) == 1
    assert "NoSuchFieldException: renamed" in lines[0]


@pytest.mark.few(2)
@pytest.mark.spark
@pytest.mark.parametrize(
    "method",
    [
        "createQueryStages",
        "currentPhysicalPlan_$eq",
        "replaceWithQueryStagesInLogicalPlan",
        "reOptimize",
        "costEvaluator",
    ],
)
def test_without_a_private_method_nothing_is_put_back(
    spark: SparkSession,
    orders: Path,
    attempts: Attempts,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    """Where Spark has renamed a step of its planning, all queries run as written, and one line says so."""

    def query() -> DataFrame:
        return by_customer(spark, orders).withColumnRenamed("sum(amount)", "total").groupBy("total").count()

    with auto_attempt(attempts, spark) as first:
        df = query()
        rows = sorted(df.collect())
        assert len(first.keep(df)) == 2
    planned = AdaptivePlan.__dict__["go_ahead"]

    def renamed(self: AdaptivePlan, ready: Any, run: Any) -> Any:
        if method == "createQueryStages":
            self._create = "renamed"
        return planned(self, ready, run)

    monkeypatch.setattr(AdaptivePlan, "go_ahead", renamed)
    if method != "createQueryStages":
        monkeypatch.setattr("airflow_provider.spark.jvm.adaptive_plan.private_method", _but(method))
    with auto_attempt(attempts, spark) as second:
        assert sorted(query().collect()) == rows
        assert sorted(query().collect()) == rows
        assert second.application.registry.put_back.keys() <= set(second.application.registry.vertices)
    lines = [record.getMessage() for record in caplog.records if "Nothing is put back" in record.getMessage()]
    assert len(lines) == 1
    assert "AdaptiveSparkPlanExec has no method" in lines[0]


def _but(missing: str) -> Callable[..., Any]:
    """Spark's private methods without one."""
    from airflow_provider.spark.jvm.reflection import private_method

    def call(jvm: Any, owner: Any, name: str, *arguments: Any) -> Any:
        return private_method(jvm, owner, "renamed" if name == missing else name, *arguments)

    return call


class Priced:
    """Rows of the script's own class, which is named like Spark's."""

    def __init__(self) -> None:
        self.a, self.b = 1, "x"


Priced.__name__ = "Row"


def test_rows_of_classes_of_the_scripts_are_sparks_affair(spark: SparkSession, attempts: Attempts) -> None:
    """Local data that cannot be told apart is given to Spark as it is, whatever its class is called."""
    wide = pd.DataFrame({"a": [2**70, 1]}, dtype=object)

    def made() -> tuple[Any, str]:
        try:
            ended = str(spark.createDataFrame(wide).collect())
        except Exception as error:  # noqa: BLE001 - whatever Spark says of it
            ended = type(error).__name__
        return spark.createDataFrame([Priced()], "a int, b string").collect(), ended

    plain = made()
    with auto_attempt(attempts, spark):
        assert made() == plain
