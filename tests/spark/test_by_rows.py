"""Python functions over what was stored end on Spark 4.2, which can hang over batches of columns of Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from airflow_provider.spark import checkpoint
from airflow_provider.spark.jvm.execution import cut_for
from airflow_provider.spark.jvm.relation import COLUMNAR_INPUT, native_relation
from airflow_provider.spark.jvm.scala import items
from tests.spark.attempts import Attempts, vertices

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PARTITION_BYTES = "spark.sql.files.maxPartitionBytes"


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session as Spark 4.2 begins it, unlike that of other tests."""
    session = spark.newSession()
    session.conf.set(COLUMNAR_INPUT, "true")
    yield session
    session.conf.unset(COLUMNAR_INPUT)


def scans(df: DataFrame) -> list[Any]:
    leaves = items(df._jdf.queryExecution().sparkPlan().collectLeaves())
    return [leaf for leaf in leaves if leaf.getClass().getSimpleName() == "FileSourceScanExec"]


def settings(session: SparkSession) -> dict[str, str]:
    return {row["key"]: row["value"] for row in session.sql("SET").collect()}


@pytest.mark.integration
def test_a_function_over_a_recovery_point_ends_and_no_setting_changes(
    session: SparkSession, attempts: Attempts
) -> None:
    """In the first attempt, in a retry that reads, in one that computes what is lost, also as if on other cores."""
    before = settings(session)
    twice = F.udf(lambda number: number * 2, "long")
    for lost in (0, 0, 1):
        for name in ("numbers", "doubled"):
            for file in sorted(path for path in attempts.folder.rglob("*.parquet") if name in str(path))[:lost]:
                file.unlink()
        with attempts.attempt() as context:
            kept = checkpoint(session.range(5000).repartition(2, "id"), "numbers")
            doubled = kept.withColumn("twice", twice("id"))
            assert [scan.supportsColumnar() for scan in scans(doubled)] == [False]
            assert [scan.supportsColumnar() for scan in scans(cut_for(doubled, 3)[0])] == [False]
            assert doubled.selectExpr("sum(twice)").collect() == [(4999 * 5000,)]
            assert checkpoint(doubled, "doubled").count() == 5000
            assert settings(session) == before
    assert vertices(context)["numbers"].reused == 1


def test_what_is_read_by_rows_is_read_as_before(session: SparkSession, tmp_path: Path) -> None:
    """Schema, rows, metadata of files and cuts are those of a scan that gives batches, and the session's plan is its
    own.
    """
    written = session.range(0, 900, 1, 3).selectExpr("id", "named_struct('text', string(id), 'some', array(id)) AS s")
    written.write.parquet(str(tmp_path / "written"))
    files = {path.name: path.stat().st_size for path in sorted((tmp_path / "written").glob("*.parquet"))}
    session.conf.set(PARTITION_BYTES, "4k")
    seen = []
    for batches in ("true", "false"):
        session.conf.set(COLUMNAR_INPUT, batches)
        read = native_relation(session, f"file://{tmp_path}/written", files, written.schema)
        session.conf.set(COLUMNAR_INPUT, "false")
        shown = read.select("*", "_metadata.file_name", "_metadata.file_size").where("id > 10 AND s.text <> '99'")
        assert read.sparkSession is session
        assert read._jdf.sparkSession().equals(session._jsparkSession)
        (scan,) = scans(shown)
        assert scan.relation().fileFormat().getClass().getSimpleName() == "ParquetFileFormat"
        seen.append(
            (
                shown.schema.json(),
                [field.nullable for field in read.schema],
                shown.rdd.getNumPartitions(),
                sorted(shown.collect()),
                scan.dataFilters().mkString().count("isnotnull"),
                str(read._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()),
            )
        )
    assert seen[0] == seen[1]
    assert seen[0][2] > 1
    session.conf.unset(PARTITION_BYTES)
