"""A shuffle is kept under the settings that its query ran with, whatever the session's are when it is looked at.

The tests' queries parse dates by formats in a column, which tasks do with the policy that they are told.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.spark.auto.actions import noted_rdds
from airflow_provider.spark.interception import intercepted
from tests.spark.attempts import Attempts
from tests.spark.auto.gates import Gate, running
from tests.spark.auto.watched import AutoAttempt, auto_attempt, configured
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

POLICY = "spark.sql.legacy.timeParserPolicy"
LENIENT = {POLICY: "LEGACY", "spark.sql.ansi.enabled": "false"}
STRICT = {POLICY: "CORRECTED", "spark.sql.ansi.enabled": "false"}
SHUFFLE = "shuffle(_groupingexpression)"
TEXT = "2020-01-02x"
PARSED, NOT_PARSED = [(dt.date(2020, 1, 2), 40)], [(None, 40)]


@pytest.fixture(scope="module")
def dates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts that are a date with something behind it, and a format of each."""
    folder = tmp_path_factory.mktemp("dates")
    for part in range(2):
        pq.write_table(pa.table({"text": [TEXT] * 20, "format": ["yyyy-MM-dd"] * 20}), folder / f"{part}.parquet")
    return folder


def by_day(spark: SparkSession, dates: Path, gate: Gate | None = None) -> DataFrame:
    from pyspark.sql import functions as F

    df = spark.read.parquet(str(dates))
    df = df.where(gate.passes(F.col("text"))) if gate is not None else df
    return df.groupBy(F.expr("to_date(text, format)").alias("day")).count()


def look(first: AutoAttempt) -> list[str]:
    for _ in range(30):
        first.application.look()
    return first.kept()


def found_while_it_runs(spark: SparkSession, first: AutoAttempt) -> None:
    """Look until the plan has shown a shuffle; nothing of it can be kept yet.

    Not before Spark has announced the query: the number of looks for a shuffle of an earlier one is limited.
    """
    wait_until(first.application._queries.running, "the query runs")

    def found() -> bool:
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        first.application.look()
        return bool(first.application._kept)

    wait_until(found, "the plan shows a shuffle")
    assert first.kept() == []


@pytest.mark.few(1)
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_settings_that_change_before_a_shuffle_is_kept(
    spark: SparkSession, dates: Path, attempts: Attempts, tmp_path: Path, adaptive: str
) -> None:
    """A query ends, and the script changes a setting for the next one; then its shuffle is looked at. It is not given
    to a query that has the new setting, and log and report say why it is not kept.
    """
    gate = Gate(tmp_path / "gate", waits=TEXT)
    with configured(spark, {**LENIENT, "spark.sql.adaptive.enabled": adaptive}):
        with auto_attempt(attempts, spark) as first:
            df = by_day(spark, dates, gate)
            with running(df, gate) as rows:
                found_while_it_runs(spark, first)
                gate.open()
                assert rows.result() == PARSED
            with configured(spark, STRICT):
                kept = look(first)
        for settings, wanted in ((STRICT, NOT_PARSED), (LENIENT, PARSED)):
            with configured(spark, settings), auto_attempt(attempts, spark):
                assert by_day(spark, dates, gate).collect() == wanted
    assert kept == []
    assert f"{POLICY} has changed since its query began" in first.skipped()


def test_a_setting_that_cannot_change_rows_may_change(
    spark: SparkSession, dates: Path, attempts: Attempts, tmp_path: Path
) -> None:
    """Most settings that scripts change between queries say how rows are cut or shown: the shuffle is kept."""
    gate = Gate(tmp_path / "gate", waits=TEXT)
    with configured(spark, LENIENT):
        with auto_attempt(attempts, spark) as first:
            df = by_day(spark, dates, gate)
            with running(df, gate) as rows:
                found_while_it_runs(spark, first)
                gate.open()
                assert rows.result() == PARSED
            with configured(spark, {"spark.sql.shuffle.partitions": "7", "spark.sql.adaptive.enabled": "false"}):
                assert look(first) == [SHUFFLE]
        with auto_attempt(attempts, spark) as second:
            assert by_day(spark, dates, gate).collect() == PARSED
            assert second.put_back() == {SHUFFLE: 2}


def test_a_shuffle_that_an_earlier_query_ran(
    spark: SparkSession, dates: Path, attempts: Attempts, tmp_path: Path
) -> None:
    """A frame is asked twice, under two settings, and only the second time it is looked at. Its shuffle ran the first
    time.
    """
    from pyspark.sql import functions as F

    gate = Gate(tmp_path / "gate", waits="40")

    def asked_twice() -> DataFrame:
        return by_day(spark, dates).where(gate.passes(F.expr("cast(count AS string)")))

    gate.open()
    with auto_attempt(attempts, spark) as first:
        df = asked_twice()
        with configured(spark, LENIENT):
            assert df.collect() == PARSED
        gate.path.unlink()
        with configured(spark, STRICT), running(df, gate) as rows:
            found_while_it_runs(spark, first)
            gate.open()
            assert rows.result() == PARSED, "Spark has its rows of the first time"
            kept = look(first)
    with configured(spark, STRICT), auto_attempt(attempts, spark):
        assert asked_twice().collect() == NOT_PARSED
    assert kept == []
    assert "it ran before the query in which it was found" in first.skipped()


ASKED: dict[str, Callable[[DataFrame], list[Any]]] = {
    "collect": lambda df: df.collect(),
    "rdd": lambda df: [tuple(row) for row in df.rdd.collect()],
}


def of_a_script(spark: SparkSession, first: AutoAttempt, dates: Path, how: str, gate: Gate) -> list[Any]:
    """Ask for the rows, and keep the shuffle as the watcher of a script does."""
    df = by_day(spark, dates, gate)
    if how == "collect":
        with running(df, gate) as rows:
            found_while_it_runs(spark, first)
            gate.open()
            found = rows.result()
    else:
        gate.open()
        with intercepted(noted_rdds(first.restorer._watcher)):
            found = ASKED[how](df)
    assert look(first) == [SHUFFLE]
    return [tuple(row) for row in found]


@pytest.mark.few(1)
@pytest.mark.parametrize("kept", ASKED)
def test_the_tasks_of_a_frame_that_becomes_an_rdd_do_not_know_the_settings(
    spark: SparkSession, dates: Path, attempts: Attempts, tmp_path: Path, kept: str
) -> None:
    """Spark tells the session's settings to the tasks of an action, not to those that ``df.rdd`` runs: the rows of one
    are not given to the other. Each finds its own.
    """
    gate = Gate(tmp_path / "gate", waits=TEXT)
    other = next(how for how in ASKED if how != kept)
    plain = {"collect": PARSED, "rdd": NOT_PARSED}
    with configured(spark, LENIENT):
        with auto_attempt(attempts, spark) as first:
            assert of_a_script(spark, first, dates, kept, gate) == plain[kept]
        for how, files in ((other, {}), (kept, {SHUFFLE: 2})):
            with auto_attempt(attempts, spark) as retry:
                assert ASKED[how](by_day(spark, dates, gate)) == plain[how]
                assert retry.put_back() == files


def test_an_rdd_whose_shuffles_run_later_is_left_alone(spark: SparkSession, dates: Path, attempts: Attempts) -> None:
    """Without adaptive execution they run in the job that asks for rows, which may be an action that has changed a
    setting: nothing is kept or put back, and the report says why.
    """
    with configured(spark, {**LENIENT, "spark.sql.adaptive.enabled": "false"}):
        with auto_attempt(attempts, spark) as first, intercepted(noted_rdds(first.restorer._watcher)):
            df = by_day(spark, dates)
            assert [tuple(row) for row in df.rdd.collect()] == NOT_PARSED
            assert look(first) == []
            assert "its shuffles run in a later job" in first.skipped()
        with auto_attempt(attempts, spark) as second:
            df = by_day(spark, dates)
            df.collect()
            assert second.keep(df) == [SHUFFLE]
        with auto_attempt(attempts, spark) as third:
            assert [tuple(row) for row in by_day(spark, dates).rdd.collect()] == NOT_PARSED
            assert third.put_back() == {}
