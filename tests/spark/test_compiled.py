"""Java's side: compiled in the driver's JVM, so that one request takes the place of hundreds."""

from __future__ import annotations

import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider.spark.identity.fingerprint import exchange_fingerprint
from airflow_provider.spark.jvm import compiled as module
from airflow_provider.spark.jvm.compiled import compiled
from airflow_provider.spark.jvm.exchanges import shuffles_of
from airflow_provider.spark.jvm.layout import describe_layout
from airflow_provider.spark.jvm.map_output_tracker import MapOutputTracker
from airflow_provider.spark.jvm.plan_walk import walk_of
from airflow_provider.spark.jvm.session_settings import QuerySettings, all_settings
from airflow_provider.storage.bundle import build_package
from tests.spark.identity.learnt import Learnt

pytestmark = pytest.mark.spark

SOURCES = Path(__file__).parents[2] / "airflow_provider" / "spark" / "jvm" / "java"


def test_each_source_travels_with_a_job(tmp_path: Path) -> None:
    """A driver that runs from the zip of a job has them."""
    with zipfile.ZipFile(build_package(tmp_path)) as package:
        there = {Path(name).name for name in package.namelist() if name.endswith(".java")}
    assert there == {source.name for source in SOURCES.iterdir()} != set()


def test_a_class_is_compiled_once_for_a_jvm(spark: SparkSession) -> None:
    """py4j finds methods by the name of a class: a second class of that name would be called by the first one's."""
    first = compiled(spark, "ShuffleLook", str)
    assert compiled(spark.newSession(), "ShuffleLook", str) is first


def test_what_was_compiled_is_kept_for_the_next_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compiled anew where the source or a jar is another one, the file is damaged, or there is no folder."""
    monkeypatch.setattr(module, "private_folder", lambda: tmp_path)
    cooked: list[str] = []

    def cook(jvm: Any, source: str, loader: Any) -> Any:
        cooked.append(source)
        return in_jvm(jvm, source, loader)

    in_jvm, source = module._cooked, module._source
    monkeypatch.setattr(module, "_cooked", cook)
    jvm: Any = spark._jvm
    parent = jvm.java.lang.Thread.currentThread().getContextClassLoader()

    def compiles() -> bool:
        cooked.clear()
        loaded = module._loader(jvm, {}, "Answer", parent).loadClass("airflow_provider.Answer")
        assert loaded.getName() == "airflow_provider.Answer"
        return bool(cooked)

    assert compiles()
    assert not compiles()
    (archive,) = tmp_path.glob("*/*.jar")
    archive.write_bytes(archive.read_bytes()[:-30])
    assert compiles()
    with monkeypatch.context() as other:
        other.setattr(module, "_stamp", lambda _: "another jar")
        assert compiles()
    with monkeypatch.context() as other:
        other.setattr(module, "_source", lambda name, types: f"{source(name, types)}// changed\n")
        assert compiles()
    assert not compiles()
    (tmp_path / "file").touch()
    monkeypatch.setattr(module, "private_folder", lambda: tmp_path / "file")
    assert compiles()


def test_an_identity_takes_few_requests(spark: SparkSession, requests: list[str]) -> None:
    """A plan of forty nodes takes as many requests as one of ten; what classes look like, little beside."""

    def asked(columns: int) -> tuple[int, int]:
        frame = spark.range(100).selectExpr("id % 7 AS key", "id")
        for column in range(columns):
            frame = frame.where(f"id + {column} > 0").selectExpr("*", f"id * {column} AS c{column}")
        plan = frame.groupBy("key").count()._jdf.queryExecution().executedPlan().executedPlan()
        while plan.getClass().getSimpleName() != "ShuffleExchangeExec":
            plan = plan.children().apply(0)
        canonical = plan.canonicalized()
        known, settings = Learnt(), QuerySettings(all_settings(spark))
        counts = []
        walk_of(spark)  # what is compiled is compiled once
        for _ in range(2):  # what classes look like is asked for once
            requests.clear()
            exchange_fingerprint(spark, known, canonical, settings)
            counts.append(len(requests))
        return counts[0], counts[1]

    (small_first, small), (large_first, large) = asked(2), asked(12)
    assert large <= small + 20
    assert large < 200
    assert small_first <= small + 40
    assert large_first <= large + 40


def test_the_tracker_is_asked_once_for_all_shuffles(spark: SparkSession) -> None:
    """What is there of each shuffle, and what is known of each map output of one."""
    counted = spark.range(1000, numPartitions=3).groupBy((F.col("id") % 7).alias("key")).count()
    counted.collect()
    tracker = MapOutputTracker(spark)
    number = max(tracker.shuffles())
    outputs = list(tracker.statuses(number))
    assert tracker.shuffles()[number] == len(outputs) == 3
    assert [output.index for output in outputs] == [0, 1, 2]
    assert {output.executor for output in outputs} == {"driver"}
    assert number + 1000 not in tracker.shuffles()
    assert not list(tracker.statuses(number + 1000))


def test_a_layout_and_a_search_for_shuffles_take_few_requests(spark: SparkSession, requests: list[str]) -> None:
    """A plan of many nodes, shuffles and subqueries takes as many requests as a small one."""

    def asked(levels: int) -> list[int]:
        frame = spark.range(100, numPartitions=2).selectExpr("id % 50 AS key", "id")
        for level in range(levels):
            frame = frame.groupBy((F.col("key") % (50 - level)).alias("key")).agg(F.max("id").alias("id"))
            frame = frame.where(f"id + {level} > (SELECT min(id) - {level} FROM range(9))")
        frame.collect()
        plan = frame._jdf.queryExecution().executedPlan()
        describe_layout(spark, plan)  # what is compiled is compiled once
        assert len(shuffles_of(plan, spark, set())) > levels
        counts = []
        for look in (partial(describe_layout, spark, plan), partial(shuffles_of, plan, spark, set())):
            requests.clear()
            look()
            counts.append(len(requests))
        return counts

    small, large = asked(1), asked(6)
    assert small == large
    assert max(large) <= 4
