"""A vertex that nothing is known to need is not computed again when it is lost, but it is if it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

from airflow_provider.spark import checkpoint
from airflow_provider.spark.interception import intercepted
from airflow_provider.spark.sinks.once import SinksOnce
from airflow_provider.spark.sinks.take_back import OutputAttempt
from tests.spark.attempts import Attempts, vertices
from tests.spark.failing_tasks import Task, ids, stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider.spark.context import RecoveryContext

pytestmark = pytest.mark.spark

ONCE = {"0": 1, "1": 1, "2": 1, "3": 1}
one_partition_for_each = pytest.mark.parametrize("reading", ["arrow"], indirect=True)
"""Natively, Spark reads several small files as one partition."""


class Script:
    """Three recovery points in a row: ``lowest`` ← ``lower`` ← ``upper``, and ``other``, which may read ``lower``."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.tasks = {name: Task(folder, name) for name in ("lowest", "lower", "upper", "other")}

    def lower(self) -> DataFrame:
        lowest = checkpoint(self.tasks["lowest"].apply(self.spark.range(0, 40, 1, 4), 2), "lowest")
        return checkpoint(self.tasks["lower"].apply(lowest, 3), "lower")

    def upper(self) -> DataFrame:
        return checkpoint(self.tasks["upper"].apply(self.lower(), 5), "upper")

    def runs(self, name: str) -> dict[str, int]:
        return self.tasks[name].count()


@pytest.fixture
def script(spark: SparkSession, tmp_path: Path, reading: str) -> Script:
    return Script(spark, tmp_path / "runs")


def lose(context: RecoveryContext, *names: str) -> None:
    """Delete the last partition of each vertex."""
    for name in names:
        stored(context, name)[-1].unlink()


@pytest.mark.integration
@one_partition_for_each
def test_what_is_lost_is_not_computed_if_all_that_reads_it_is_finished(attempts: Attempts, script: Script) -> None:
    """Two lost recovery points below a finished one: the retry runs nothing of them, and the one after that neither."""
    with attempts.attempt() as context:
        assert ids(script.upper()) == list(range(0, 1200, 30))
        lose(context, "lowest", "lower")
    for _ in range(2):
        with attempts.attempt() as context:
            assert ids(script.upper()) == list(range(0, 1200, 30))
            assert vertices(context)["upper"].reused == 4
            assert {name: script.runs(name) for name in ("lowest", "lower", "upper")} == dict.fromkeys(
                ("lowest", "lower", "upper"), ONCE
            )


def test_what_is_asked_for_after_all_is_computed(attempts: Attempts, script: Script) -> None:
    """An action on a frame that was left as it is gives plain Spark's rows."""
    with attempts.attempt() as context:
        script.upper()
        lose(context, "lowest", "lower")
    with attempts.attempt():
        lower = script.lower()
        assert lower.count() == 40
        assert ids(lower.filter("id > 0")) == list(range(6, 240, 6))
        assert ids(checkpoint(script.tasks["upper"].apply(lower, 5), "upper")) == list(range(0, 1200, 30))


@pytest.mark.integration
@one_partition_for_each
def test_a_new_reader_completes_what_it_reads(attempts: Attempts, script: Script) -> None:
    """Of each lost recovery point below it only the lost partition is computed, and stored for the next attempt."""
    with attempts.attempt() as context:
        script.upper()
        lose(context, "lowest", "lower")
    for reused in (False, True):
        with attempts.attempt() as context:
            lower = script.lower()
            other = checkpoint(script.tasks["other"].apply(lower, 7), "other")
            assert ids(other) == list(range(0, 1680, 42))
            assert ids(checkpoint(lower.filter("id > 0"), "again")) == list(range(6, 240, 6))
            assert script.runs("other") == ONCE
            assert script.runs("lower") == script.runs("lowest") == {**ONCE, "3": 2}
            told = vertices(context)
            assert {name: (told[name].reused, told[name].computed) for name in ("lowest", "lower", "other")} == {
                "lowest": (4, 0) if reused else (3, 1),
                "lower": (4, 0) if reused else (3, 1),
                "other": (4, 0) if reused else (0, 4),
            }


def test_what_only_a_written_output_reads_is_not_computed(attempts: Attempts, script: Script, tmp_path: Path) -> None:
    """The output is left out by the retry; when it is gone, it is written again, with all of its rows."""
    target = tmp_path / "target"

    def attempt(*, harm: bool = False) -> None:
        with attempts.attempt() as context:
            with intercepted(SinksOnce(context, OutputAttempt(context.master)).stages()):
                script.lower().write.mode("overwrite").parquet(str(target))
            if harm:
                lose(context, "lowest", "lower")
        assert sorted(ds.dataset(target).to_table()["id"].to_pylist()) == list(range(0, 240, 6))

    attempt(harm=True)
    runs = script.runs("lowest"), script.runs("lower")
    attempt()
    assert (script.runs("lowest"), script.runs("lower")) == runs
    for file in target.iterdir():
        file.unlink()
    attempt()


@pytest.mark.integration
@one_partition_for_each
def test_of_what_an_unwritten_output_reads_only_what_is_lost_is_computed(
    spark: SparkSession, attempts: Attempts, script: Script, tmp_path: Path
) -> None:
    """A recovery point that reads the same is finished, but a write had failed."""
    attempts.options["restart_strategy"] = "none"
    target, written = tmp_path / "target", Task(tmp_path / "runs", "written", failures=1)

    def write(context: RecoveryContext) -> None:
        script.upper()
        with intercepted(SinksOnce(context, OutputAttempt(context.master)).stages()):
            written.apply(script.lower(), 7).write.parquet(str(target))

    with attempts.attempt() as context:
        with pytest.raises(Exception, match="by chance"):
            write(context)
        lose(context, "lower")
    with attempts.attempt() as context:
        OutputAttempt(context.master).prepare(spark)
        write(context)
        assert vertices(context)["lower"].computed == 1
    assert sorted(ds.dataset(target).to_table()["id"].to_pylist()) == list(range(0, 1680, 42))
    assert script.runs("lower") == {**ONCE, "3": 2}
