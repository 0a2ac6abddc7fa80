"""The thread that looks at a plan before the script has one."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider.spark.auto import warm_up
from airflow_provider.spark.jvm.map_stage import map_stages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def _jobs(spark: SparkSession) -> int:
    jsc: Any = spark.sparkContext._jsc
    return int(jsc.sc().statusStore().jobsList(None).size())


def test_it_comes_to_the_shuffles_and_runs_nothing(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its query is looked at down to its two shuffles; no Spark job runs, and the script's session is as before."""
    found: list[Any] = []

    def noting(df: Any) -> list[Any]:
        found.extend(map_stages(df))
        return found

    monkeypatch.setattr(warm_up, "map_stages", noting)
    settings, active, jobs = dict(spark.conf.getAll), type(spark).getActiveSession(), _jobs(spark)
    warm_up.look_at_a_plan(spark)
    assert len(found) == 2
    assert _jobs(spark) == jobs
    assert dict(spark.conf.getAll) == settings
    assert type(spark).getActiveSession() is active


def test_once_for_each_application(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that gets its session again is not warmed up again; that it cannot be warmed up is no harm."""
    called: list[str] = []

    def fails(session: Any) -> None:
        called.append(threading.current_thread().name)
        raise ValueError("no plan")

    monkeypatch.setattr(warm_up, "look_at_a_plan", fails)
    with ExitStack() as stack:
        warm_up.warmed_up(stack)
        for _ in range(2):
            assert spark.builder.getOrCreate() is spark
        for thread in threading.enumerate():
            if thread.name == "warm-up":
                thread.join()
    assert called == ["warm-up"]
    assert spark.builder.getOrCreate.__func__.__module__.startswith("pyspark.")
