"""Drivers with an integrity secret: a retry reuses what is sealed, nothing else, and the secret is seen nowhere.

Auto mode: ``test_crashes.py`` and ``auto/test_traps_stored_objects.py``.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from airflow_provider.core import faults
from airflow_provider.core.job import JobId
from airflow_provider.core.options import INTEGRITY_SECRET
from tests.spark.killed_jobs import KILLED, expected, result
from tests.support.driver import DriverHarness, Outcome

pytestmark = [pytest.mark.process, pytest.mark.integration]

SECRET = "5ea1" * 16
KEEP = {"keep-partitions": ""}

TELLTALE = """\
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider.spark import checkpoint
from airflow_provider.spark import step

secret = os.environ["SPARK_RECOVERY_INTEGRITY_SECRET"]
spark = SparkSession.builder.getOrCreate()
doubled = checkpoint(spark.range(0, 400, 1, 4).select((F.col("id") * 2).alias("id")), "doubled")
step("noted", lambda: 1)
lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
conf = spark.sparkContext.getConf().toDebugString() + str(spark.sql("SET").collect())
hadoop = spark.sparkContext._jsc.hadoopConfiguration().getValByRegex(".*").toString()
print("seen in", [secret.encode() in b"".join(lines), secret in conf, secret in hadoop], len(lines) > 1)
print("sum", doubled.groupBy().sum("id").collect()[0][0])
raise ValueError(f"cannot log in with {secret}")
"""


QUOTES = """\
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.hadoop.fs.s3a.session.token", "made-later2")
raise ValueError("denied for submitted1 and made-later2")
"""


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def driver(driver: DriverHarness) -> DriverHarness:
    driver.environment = {INTEGRITY_SECRET: SECRET}
    return driver


def test_a_killed_driver_is_resumed_and_forgeries_are_not(
    driver: DriverHarness, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The retry computes what is missing, and one partition in whose place another, whole one was put."""
    monkeypatch.setenv(INTEGRITY_SECRET, SECRET)  # for what the test itself lists

    def run(fault: str = "") -> Outcome:
        return driver.run("two_vertices.py", str(orders), str(driver.folder / "out"), fault=fault, options=KEEP)

    first = run(f"{faults.AFTER_PARTITION_EVENT}@8")
    assert first.code == KILLED, first.log
    stored = len(driver.partitions("graded"))
    assert stored >= 2
    root = driver.folder / "store" / JobId.parse(driver.job_id).prefix
    one, other = sorted(root.rglob("partitions/graded-*/*/*.parquet"))[:2]
    one.write_bytes(other.read_bytes())
    second = run()
    assert second.code == 0, second.log
    assert result(driver.folder / "out") == expected(orders)
    assert second.tasks["checkpoint totals"] == 0, second.log
    assert second.tasks["checkpoint graded"] == 4 - stored + 1, second.log
    assert second.log.count("is damaged; it is computed again") == 1


def test_the_secret_is_seen_nowhere(driver: DriverHarness, tmp_path: Path) -> None:
    """Not in the store, the log, Spark's event log, its settings or a command line, though an error quotes it."""
    (tmp_path / "job.py").write_text(TELLTALE)
    done = driver.run(tmp_path / "job.py")
    assert done.code == 1, done.log
    assert "seen in [False, False, False] True" in done.log
    assert "sum 159600" in done.log
    said = [line for line in done.log.splitlines() if SECRET in line]
    assert said == [f"ValueError: cannot log in with {SECRET}"], "what the script itself prints"
    written = files(tmp_path)
    assert [path for path, content in written.items() if SECRET.encode() in content] == []
    assert len([path for path in written if path.parent.name == "events"]) >= 1
    assert any(b"cannot log in with ***" in content for content in written.values())
    events = b"".join(content for path, content in written.items() if "eventlog" in str(path))
    assert b"SparkListenerEnvironmentUpdate" in events


@pytest.mark.walk
def test_the_secrets_of_sparks_configuration_are_not_recorded(driver: DriverHarness, tmp_path: Path) -> None:
    """Neither what was submitted nor what the script has set, though its error quotes both."""
    (tmp_path / "job.py").write_text(QUOTES)
    driver.settings = {"spark.hadoop.fs.s3a.secret.key": "submitted1"}
    done = driver.run(tmp_path / "job.py")
    assert done.code == 1, done.log
    stored = b"".join(files(driver.folder / "store").values())
    assert b"denied for *** and ***" in stored
    assert b"submitted1" not in stored
    assert b"made-later2" not in stored


@pytest.mark.walk
def test_a_retry_without_the_secret_says_what_is_missing(driver: DriverHarness, orders: Path) -> None:
    """One line with the remedy, before Spark starts; with it again the job goes on."""
    arguments = ("two_vertices.py", str(orders), str(driver.folder / "out"))
    first = driver.run(*arguments, fault=f"{faults.AFTER_PARTITION_EVENT}@6", options=KEEP)
    assert first.code == KILLED, first.log
    second = driver.run(*arguments, options=KEEP, **{INTEGRITY_SECRET: ""})
    assert second.code == 2, second.log
    (line,) = [line for line in second.log.splitlines() if "ERROR" in line]
    assert "is sealed with an integrity secret, and this process has none. Set 'integrity_secret'" in line
    third = driver.run(*arguments, options=KEEP)
    assert third.code == 0, third.log
    assert third.tasks["checkpoint totals"] == 0, third.log
    assert len(pq.read_table(driver.folder / "out")) == len(expected(orders))
