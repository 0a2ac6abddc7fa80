"""What the driver's JVM hears of the tasks of an application."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_provider.core.job import JobId
from airflow_provider.core.options import StorageOptions
from airflow_provider.core.report import JobReport, build_report
from airflow_provider.spark.jvm.task_times import TaskTimes
from airflow_provider.storage.inspection import inspect_job
from airflow_provider.storage.uris import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.driver import DriverHarness

SCRIPT = """
import time
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from airflow_provider.spark import step

spark = SparkSession.builder.getOrCreate()

def slow(frame):
    return frame.select(F.udf(lambda key: time.sleep(0.5) or key, "long", useArrow=False)("id").alias("id"))

slow(spark.range(0, 4, 1, 4)).collect()
step("looked", lambda: len(slow(spark.range(0, 4, 1, 4)).collect()), version="1")
rates = spark.readStream.format("rate").option("numPartitions", 1).load()
query = rates.writeStream.format("noop").trigger(once=True).start()
query.awaitTermination()
spark.stop()
spark = SparkSession.builder.getOrCreate()
slow(spark.range(0, 4, 1, 4)).collect()
raise SystemExit(1)
"""


def report(driver: DriverHarness) -> JobReport:
    return build_report("job", inspect_job(open_store(driver.event_store, StorageOptions()), JobId.parse("job")))


def test_who_comes_late_says_nothing(spark: SparkSession) -> None:
    """Of an application that has run jobs before, some tasks were not counted."""
    spark.range(1).collect()
    times = TaskTimes(spark)
    try:
        assert times.stages() is None
    finally:
        times.detach()


@pytest.mark.process
@pytest.mark.integration
def test_all_tasks_of_all_applications_count_to_what_they_are_for(driver: DriverHarness, tmp_path: Path) -> None:
    """To a step, or to what each attempt runs again; the sum is that of Spark's event logs, but for streams."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = driver.run(script, options={"recovery-points": "explicit"})
    assert done.code != 0, done.log
    retry = report(driver).retry
    assert retry.work is not None
    kept, lost = sorted(retry.others, key=lambda other: -other.kept)
    assert (kept.title, kept.kept) == ("step/looked", kept.spent)
    assert lost.kept == 0
    assert kept.spent >= 2.0
    assert lost.spent >= 4.0
    assert driver.task_seconds(1) - 1.0 <= retry.work.spent <= driver.task_seconds(1)


@pytest.mark.process
@pytest.mark.integration
def test_where_threads_do_not_go_in_pairs_nothing_is_said(driver: DriverHarness, tmp_path: Path) -> None:
    """What is for what could not be told there."""
    script = tmp_path / "script.py"
    script.write_text(f"{SCRIPT[: SCRIPT.index('def')]}\nspark.range(9).collect()\nraise SystemExit(1)")
    done = driver.run(script, PYSPARK_PIN_THREAD="false")
    assert done.code != 0, done.log
    assert report(driver).retry.work is None
