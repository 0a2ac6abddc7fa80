"""A real Iceberg table, with Spark 3.5."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider.core import faults
from tests.spark.killed_jobs import KILLED
from tests.support.driver import DriverHarness, Outcome
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
import sys, time
from pyspark.sql import SparkSession, functions as F
from airflow_provider.spark import checkpoint

spark = SparkSession.builder.getOrCreate()
if sys.argv[1] == "made":
    spark.sql(
        "CREATE TABLE lake.db.lines (id BIGINT, key BIGINT) USING iceberg TBLPROPERTIES ("
        "'format-version'='2', 'write.delete.mode'='merge-on-read', 'read.split.open-file-cost'='134217728')"
    )
    for number in range(12):
        rows = spark.range(number * 100, number * 100 + 100, 1, 1).selectExpr("id", "id % 7 AS key")
        rows.writeTo("lake.db.lines").append()
elif sys.argv[1] == "deleted":
    spark.sql("DELETE FROM lake.db.lines WHERE id < 10")
elif sys.argv[1] == "renamed":
    spark.sql("ALTER TABLE lake.db.lines RENAME COLUMN key TO old")
    spark.sql("ALTER TABLE lake.db.lines ADD COLUMN key BIGINT")
few = checkpoint(spark.table("lake.db.lines").where("id < 20").coalesce(1), "few")
print("few", few.count(), few.where("key = 1").count())
slowly = F.udf(lambda key: time.sleep(0.005) or key, "long")
table = spark.table("lake.db.lines")
lines = table.where("id >= 500").unionAll(table.where("id < 500")).withColumn("key", slowly("key"))
sums = lines.groupBy("key").agg(F.sum("id").alias("ids"), F.count("*").alias("rows"))
print("sums", [tuple(row) for row in sorted(sums.collect())])
while sys.argv[1] == "made":
    time.sleep(0.1)
sys.exit(1)
"""
FILES = 12
CHANGED = {"deleted": (range(10, 1200), True), "renamed": (range(1200), False)}
"""What the script does to the table before it reads it: which numbers it then has, and whether they have keys."""


def said(numbers: range, *, keyed: bool = True) -> str:
    """What the script says of a table of these numbers."""
    few = [number for number in numbers if number < 20]
    of_key = {key: [number for number in numbers if number % 7 == key] for key in range(7)}
    sums = of_key if keyed else {None: list(numbers)}
    return (
        f"few {len(few)} {sum(number % 7 == 1 for number in few) if keyed else 0}\n"
        f"sums {[(key, sum(each), len(each)) for key, each in sums.items()]}\n"
    )


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


def printed(outcome: Outcome) -> str:
    """What a script has printed, without the log."""
    return "".join(f"{line}\n" for line in outcome.log.splitlines() if line.startswith(("few ", "sums ")))


@pytest.mark.parametrize("change", ["deleted", pytest.param("renamed", marks=pytest.mark.walk)])
def test_what_reads_a_table_is_reused_while_it_is_the_same(tmp_path: Path, change: str) -> None:
    """Though on Spark 3.5 no table tells a version: a recovery point, and single map outputs of a killed driver by what
    their tasks have covered, because a table with several manifests is planned in an order of chance. Rows deleted
    since by a file of deletes, and a column of the same name with another id, are seen.
    """
    driver = with_iceberg(tmp_path)
    (tmp_path / "job.py").write_text(READS)
    options = {"recovery-points": "auto", "overhead-budget": "1e6"}

    killed = driver.run(tmp_path / "job.py", "made", fault=f"{faults.AFTER_PARTITION_EVENT}@6", options=options)
    assert killed.code == KILLED, killed.log
    again = driver.run(tmp_path / "job.py", "as it was", options=options)
    changed = driver.run(tmp_path / "job.py", change, options=options)

    assert said(range(1200)) in printed(again)
    assert "checkpoint 'few': all 1 partitions reused, nothing to compute" in again.log
    assert again.put_back("shuffle(key)"), again.log
    back, missing = again.put_back("shuffle(key)")[0]
    assert 0 < back < FILES
    assert back + missing == FILES
    numbers, keyed = CHANGED[change]
    assert said(numbers, keyed=keyed) in printed(changed)
    assert "reused, nothing to compute" not in changed.log
    assert "put back" not in changed.log


MADE = [(key, sum(range(key, 3000, 20)), 150) for key in range(20)]
"""The rows that ``tables_every_way.py`` writes."""
ADDING = ("append", "insertInto", "INSERT", "saveAsTable, appending", "save, appending")
REPLACING = (
    "overwrite", "overwritePartitions", "create", "replace", "createOrReplace", "insertInto, overwriting",
    "saveAsTable", "saveAsTable, overwriting", "INSERT OVERWRITE", "CREATE", "REPLACE",
)  # fmt: skip
TABLES = {
    **dict.fromkeys(ADDING, sorted([*MADE, (1, 1, 1)])),
    **dict.fromkeys(REPLACING, MADE),
    "MERGE": [(key, ids, 1 if key == 1 else many) for key, ids, many in MADE],
}
"""What is in the table afterwards, which had one row before, by the way to write it."""


def tables(outcome: Outcome) -> dict[str, Any]:
    """The tables that the script has written, by way."""
    lines = (line for line in outcome.log.splitlines() if line.startswith("written "))
    return {way: ast.literal_eval(rows) for way, rows in (line.removeprefix("written ").split(": ") for line in lines)}


def retried(folder: Path, dies: str, way: str) -> Outcome:
    """The retry of a driver that died while it wrote in the way *dies*."""
    driver = with_iceberg(folder)
    options = {"recovery-points": "auto", "overhead-budget": "1e6"}
    arguments = ("tables_every_way.py", dies, "lake", "iceberg")
    killed = driver.run(*arguments, fault=faults.AFTER_PARTITION_EVENT, options=options)
    assert killed.code == KILLED, killed.log
    retry = driver.run("tables_every_way.py", way, "lake", "iceberg", options=options)
    assert retry.code == 0, retry.log
    return retry


@pytest.mark.timeout(300)
def test_every_way_to_write_a_table_starts_from_what_survived(tmp_path: Path) -> None:
    """``df.write``, ``df.writeTo`` and SQL, to new and to existing tables; the first attempt dies in one of them."""
    retry = retried(tmp_path, "create", "every way")
    assert tables(retry) == TABLES
    parts = re.split(r"^written ([^:]+):.*$", retry.log, flags=re.MULTILINE)
    back = {way: "map outputs put back" in before for before, way in zip(parts[::2], parts[1::2], strict=False)}
    assert back == dict.fromkeys(TABLES, True)


@pytest.mark.walk
@pytest.mark.parametrize("way", TABLES)
def test_what_is_shuffled_for_a_table_is_kept(tmp_path: Path, way: str) -> None:
    """A driver that dies while it fills the table leaves the shuffle of its rows to the same call of the retry."""
    retry = retried(tmp_path, way, way)
    assert tables(retry) == {way: TABLES[way]}
    assert "map outputs put back" in retry.log


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
