"""A real Iceberg table, with Spark 3.5."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.driver import DriverHarness
from tests.support.jars import SPARK, class_path
from tests.support.quick_jvm import WITHOUT_COMPILER
from tests.support.sparks import spark_python

pytestmark = [pytest.mark.process, pytest.mark.integration]

DOUBT = "sink table lake.db.events: attempt 1 has written it. It is written again; rows may be there twice."


def report(driver: DriverHarness) -> dict[str, Any]:
    store = ["--event-store", driver.event_store, "--job-id", driver.job_id, "--json"]
    inspect = [sys.executable, "-m", "airflow_provider.cli", "inspect", *store]
    found = subprocess.run(inspect, capture_output=True, text=True, check=True, timeout=60).stdout
    return dict(json.loads(found))


READS = """\
import sys
from pyspark.sql import SparkSession
from airflow_provider.spark import checkpoint

spark = SparkSession.builder.getOrCreate()
if sys.argv[1] == "first":
    spark.range(100).writeTo("lake.db.read").create()
else:
    spark.sql("DELETE FROM lake.db.read WHERE id < 90")
found = checkpoint(spark.table("lake.db.read").where("id > 50"), "found")
print("rows", found.count(), found.groupBy().sum("id").first()[0])
sys.exit(sys.argv[1] == "first")
"""


def with_iceberg(folder: Path) -> DriverHarness:
    driver = DriverHarness(folder, f"file://{folder}/store", python=spark_python(SPARK))
    driver.settings = {
        "spark.driver.extraClassPath": class_path("iceberg"),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.level=warn {WITHOUT_COMPILER}",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": f"file://{folder}/lake",
    }
    return driver


def test_what_reads_a_table_that_tells_no_version_is_computed_again(tmp_path: Path) -> None:
    """On Spark 3.5 no table tells one: a run that is no automatic retry sees the rows that are there by then, whatever
    is stored, and the log says why.
    """
    driver = with_iceberg(tmp_path)
    (tmp_path / "job.py").write_text(READS)
    options = {"recovery-points": "auto", "overhead-budget": "1e6"}
    first = driver.run(tmp_path / "job.py", "first", options=options)
    assert "rows 49 3675" in first.log
    second = driver.run(tmp_path / "job.py", "second", options=options)
    assert "rows 10 945" in second.log
    assert "checkpoint 'found': what is stored is not used: this attempt is no automatic retry" in second.log
    assert "lake.db.read of SparkTable tells no version" in second.log


def test_a_repeated_append_is_said_or_refused(tmp_path: Path) -> None:
    """``writeTo(…).append()`` in a retry: a warning with the table's name in log and report; with
    ``unknown_sinks=fail`` no row is added, and no retry is asked for.
    """
    driver = with_iceberg(tmp_path)
    fail = tmp_path / "fail"
    fail.touch()

    def rows() -> int:
        files = (tmp_path / "lake" / "db" / "events" / "data").glob("*.parquet")
        return sum(pq.read_metadata(file).num_rows for file in files)

    first = driver.run("added_to_iceberg.py", str(fail))
    assert "told to fail" in first.log
    assert "rows may be there twice" not in first.log
    assert rows() == 100

    second = driver.run("added_to_iceberg.py", str(fail))
    assert "told to fail" in second.log
    assert f"WARNING spark-recovery: {DOUBT}" in second.log
    assert report(driver)["doubts"] == [DOUBT]
    assert rows() == 200

    fail.unlink()
    third = driver.run("added_to_iceberg.py", str(fail), options={"unknown-sinks": "fail"})
    assert third.code != 0, third.log
    assert "sink table lake.db.events: attempt 2 has written it. Writing it again may duplicate rows." in third.log
    assert report(driver)["attempts"][-1]["unrecoverable"]
    assert rows() == 200
