"""What a user may rely on at a recovery point, seen inside one Spark session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.spark import checkpoint
from tests.spark.attempts import Attempts, vertices
from tests.spark.auto.watched import job_group, jobs_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

pytestmark = pytest.mark.spark


def test_without_a_recovery_context_nothing_happens(spark: SparkSession) -> None:
    """In a notebook or a unit test the very same DataFrame comes back."""
    df = spark.range(10)
    assert checkpoint(df, "any") is df
    assert df.transform(checkpoint, "any") is df


def test_columns_taken_before_still_resolve(spark: SparkSession, attempts: Attempts, reading: str) -> None:
    """``df["id"]``, an alias's ``a.id`` and a self join work after the checkpoint as before it."""
    left = spark.range(10).withColumn("v", _twice("id")).alias("a")
    right = spark.range(5, 15).alias("b")
    with attempts.attempt():
        kept = checkpoint(left, "left")
        assert kept.select(left["id"], "a.v").orderBy("id").first() == (0, 0)
        joined = kept.join(right, kept["id"] == right["id"])
        assert joined.select("a.id", "b.id").count() == 5
        assert kept.join(kept.alias("other"), "id").count() == 10
        both = checkpoint(left.join(right, left["id"] == right["id"]), "both")
        assert both.select(left["id"], right["id"]).count() == 5


def test_no_python_worker_stores_or_reads_a_recovery_point(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts a worker is counted: storing, computing the missing partitions and reading start none, a Python
    function does.
    """
    python, counted = tmp_path / "python", tmp_path / "counted"
    python.write_text(f'#!/bin/sh\necho >> {counted}\nexec {spark.sparkContext.pythonExec} "$@"\n')
    python.chmod(0o755)
    df = spark.range(0, 100, 1, 4).selectExpr("id * 2 AS id")
    for computed in (4, 1):
        with attempts.attempt() as context, monkeypatch.context() as patched:
            checkpoint(spark.range(1), "asked once what executors have")
            patched.setattr(spark.sparkContext, "pythonExec", str(python))
            assert checkpoint(df, "doubled").count() == 100
            assert vertices(context)["doubled"].computed == computed
        next(file for file in sorted(attempts.folder.rglob("*.parquet")) if "doubled-" in str(file)).unlink()
    assert not counted.exists()
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    assert spark.range(1).rdd.map(lambda row: row.id).collect() == [0]
    assert counted.exists()


def test_no_spark_job_lists_what_is_stored(spark: SparkSession, attempts: Attempts) -> None:
    """Spark lists more than 32 paths in a job of as many tasks; what is stored is known without."""
    df = spark.range(0, 80, 1, 40)
    for jobs in (1, 0):
        with attempts.attempt(), job_group(spark, f"storing and reading, {jobs}"):
            kept = checkpoint(df, "forty")
            assert kept.rdd.getNumPartitions() > 1
            assert jobs_of(spark, f"storing and reading, {jobs}") == jobs
        assert sorted(kept.collect()) == sorted(df.collect())


def test_a_spark_without_the_writer_that_is_expected(
    spark: SparkSession, attempts: Attempts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A vendor's Spark may have another one: the job runs, and the log says that nothing is stored."""
    monkeypatch.setattr(
        "airflow_provider.spark.jvm.partition_write.PartitionWriter._description",
        lambda writer: spark._jvm.org.apache.spark.sql.execution.datasources.WriteJobDescription("of fewer"),  # type: ignore[union-attr]
    )
    with attempts.attempt():
        assert checkpoint(spark.range(0, 9, 1, 3), "nine").count() == 9
    assert "checkpoint 'nine' is not stored" in caplog.text


def _twice(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(name) * 2


def test_empty_partitions_and_empty_frames(spark: SparkSession, attempts: Attempts, reading: str) -> None:
    """Partitions without rows are stored like any other, and a frame without rows keeps its schema."""
    with attempts.attempt() as context:
        sparse = checkpoint(spark.range(0, 2, 1, 8).filter("id = 1"), "sparse")
        empty = checkpoint(spark.range(10).filter("id < 0").selectExpr("id", "'x' AS t"), "empty")
        assert [row.id for row in sparse.collect()] == [1]
        assert (empty.count(), empty.columns) == (0, ["id", "t"])
        assert vertices(context)["sparse"].partitions == 8


def test_a_frame_without_partitions(spark: SparkSession, attempts: Attempts, reading: str) -> None:
    """Spark finds while it runs that there is nothing to aggregate: nothing is stored, and the schema is kept."""

    def script() -> tuple[list[tuple[str, str]], int]:
        none = (
            spark.range(100)
            .selectExpr("id % 7 AS k", "array(timestamp_seconds(id)) AS t")
            .repartition(3)
            .where("k > 7")
        )
        kept = checkpoint(none.groupBy("k", "t").count(), "nothing")
        return kept.dtypes, checkpoint(kept.groupBy("t").sum("k"), "summed").count()

    for _ in range(2):
        with attempts.attempt() as context:
            assert script() == ([("k", "bigint"), ("t", "array<timestamp>"), ("count", "bigint")], 0)
            assert vertices(context)["nothing"].partitions == 0


def test_one_stored_partition_is_one_partition(
    spark: SparkSession, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read through Arrow, partition i of the stored vertex is partition i of the DataFrame."""
    monkeypatch.setattr("airflow_provider.spark.points.reading.readable_by_jvm", lambda spark, path: False)
    df = spark.range(0, 100, 1, 7)
    with attempts.attempt():
        kept = checkpoint(df, "seven")
        assert kept.rdd.glom().map(lambda rows: [row.id for row in rows]).collect() == (
            df.rdd.glom().map(lambda rows: [row.id for row in rows]).collect()
        )


def test_a_second_attempt_reuses_everything(spark: SparkSession, attempts: Attempts) -> None:
    """A complete vertex, and one on top of it, are found again; nothing is computed."""

    def script() -> list[tuple[int, int]]:
        base = checkpoint(spark.range(0, 100, 1, 4).withColumn("k", _modulo("id", 5)), "base")
        sums = checkpoint(base.groupBy("k").sum("id"), "sums")
        return sorted(map(tuple, sums.collect()))

    with attempts.attempt() as context:
        first = script()
        assert all(vertex.reused == 0 for vertex in vertices(context).values())
    with attempts.attempt() as context:
        assert script() == first
        assert {name: (v.reused, v.computed) for name, v in vertices(context).items()} == {
            "base": (4, 0),
            "sums": (vertices(context)["sums"].partitions, 0),
        }


def _modulo(name: str, n: int) -> Column:
    from pyspark.sql import functions as F

    return F.col(name) % n


def test_a_lost_partition_alone_is_computed_again(spark: SparkSession, attempts: Attempts) -> None:
    """Of a finished vertex only the partition whose object is gone is computed."""

    def script() -> Any:
        return (
            checkpoint(spark.range(0, 100, 1, 4).withColumn("k", _modulo("id", 5)), "base")
            .selectExpr("sum(id * k)")
            .collect()[0][0]
        )

    with attempts.attempt():
        first = script()
    objects = sorted(attempts.folder.rglob("*.parquet"))
    objects[2].unlink()
    with attempts.attempt() as context:
        assert script() == first
        assert (vertices(context)["base"].reused, vertices(context)["base"].computed) == (3, 1)


@pytest.mark.few(1)
@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_partition_is_never_read(spark: SparkSession, attempts: Attempts, damage: str) -> None:
    """A truncated object, or one with a flipped bit and the same size, is computed again."""

    def script() -> Any:
        return (
            checkpoint(spark.range(0, 1000, 1, 4).withColumn("k", _modulo("id", 5)), "base")
            .selectExpr("sum(id * k)")
            .collect()[0][0]
        )

    with attempts.attempt():
        first = script()
    victim = sorted(attempts.folder.rglob("*.parquet"))[1]
    body = bytearray(victim.read_bytes())
    if damage == "truncated":
        body = body[:-7]
    else:
        body[len(body) // 2] ^= 1
    victim.chmod(0o644)
    victim.write_bytes(body)
    with attempts.attempt() as context:
        assert script() == first
        assert (vertices(context)["base"].reused, vertices(context)["base"].computed) == (3, 1)


@pytest.mark.integration
def test_another_plan_input_or_setting_is_not_reused(spark: SparkSession, attempts: Attempts, tmp_path: Path) -> None:
    """A changed literal, literal type, input file or time zone leads to a new computation."""
    source = tmp_path / "in.parquet"
    spark.range(20).write.parquet(str(source))

    def reused(df: DataFrame) -> int:
        with attempts.attempt() as context:
            checkpoint(df, "point").count()
            return vertices(context)["point"].reused

    def read() -> DataFrame:
        return spark.read.parquet(str(source))

    assert reused(read().selectExpr("id + 1 AS x")) == 0
    assert reused(read().selectExpr("id + 1 AS x")) > 0
    assert reused(read().selectExpr("id + 2 AS x")) == 0
    assert reused(read().selectExpr("'1' AS x", "id")) == 0
    assert reused(read().selectExpr("CAST(1 AS STRING) AS x", "id")) == 0
    spark.range(20, 30).write.mode("append").parquet(str(source))
    assert reused(read().selectExpr("id + 1 AS x")) == 0
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        assert reused(read().selectExpr("id + 1 AS x")) == 0
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")


def test_local_rows_are_compared_by_content(spark: SparkSession, attempts: Attempts) -> None:
    """``createDataFrame`` with the same rows is reused, with other rows it is not, also where text looks alike."""

    def reused(rows: list[tuple[str, str]]) -> int:
        with attempts.attempt() as context:
            checkpoint(spark.createDataFrame(rows, "a string, b string"), "rows").count()
            return vertices(context)["rows"].reused

    assert reused([("x,y", "z")]) == 0
    assert reused([("x,y", "z")]) > 0
    assert reused([("x", "y,z")]) == 0


def test_an_rdd_is_never_reused(spark: SparkSession, attempts: Attempts) -> None:
    """What cannot be fingerprinted is computed the ordinary way, a retry sees other rows, and the report says why."""
    attempts.series = ""
    for rows in ([(1,), (2,)], [(1,), (2,), (3,)]):
        with attempts.attempt() as context:
            df = spark.sparkContext.parallelize(rows).toDF(["x"])
            assert checkpoint(df, "rdd").count() == len(rows)
            skipped = context.master.graph.newest.skipped  # type: ignore[union-attr]
            assert [(skip.name, "RDD" in skip.reason) for skip in skipped] == [("rdd", True)]


@pytest.mark.parametrize("name", ["", "  ", None, 3])
def test_a_name_is_needed(spark: SparkSession, attempts: Attempts, name: object) -> None:
    """A missing name is one clear error."""
    with attempts.attempt(), pytest.raises(ConfigurationError, match="name"):
        checkpoint(spark.range(1), name)  # type: ignore[arg-type]


@pytest.mark.integration
def test_random_rows_are_kept_whole_or_not_at_all(spark: SparkSession, attempts: Attempts) -> None:
    """Of a vertex that is not deterministic no single partition is kept, and what was derived from it goes too."""
    from pyspark.sql import functions as F

    def script() -> tuple[list[float], float]:
        noise = checkpoint(spark.range(0, 100, 1, 4).withColumn("r", F.rand(seed=3)), "noise")
        total = checkpoint(noise.groupBy((F.col("id") % 3).alias("k")).agg(F.max("r").alias("m")), "total")
        return sorted(row.r for row in noise.collect()), max(row.m for row in total.collect())

    with attempts.attempt():
        first = script()
        assert first[1] == first[0][-1]
    with attempts.attempt() as context:
        assert script() == first
        assert vertices(context)["noise"].reused == 4
    next(file for file in sorted(attempts.folder.rglob("*.parquet")) if "noise-" in str(file)).unlink()
    with attempts.attempt() as context:
        values, top = script()
        assert top == values[-1]
        assert vertices(context)["noise"].reused == 0
        assert vertices(context)["total"].reused == 0


def test_one_name_for_two_frames(spark: SparkSession, attempts: Attempts) -> None:
    """A name used twice gives two vertices; the same frame twice gives one."""
    with attempts.attempt() as context:
        for n in (1, 2, 1):
            assert checkpoint(spark.range(n * 10), "loop").count() == n * 10
        assert sorted(vertices(context)) == ["loop", "loop#2"]


def test_a_python_udf_above_a_recovery_point_runs(spark: SparkSession, attempts: Attempts, reading: str) -> None:
    """A plain Python UDF may read what was stored, however it is read back."""
    from pyspark.sql import functions as F

    twice = F.udf(lambda x: x * 2, "long")
    with attempts.attempt():
        kept = checkpoint(spark.range(5000).repartition(2, "id"), "numbers")
        assert kept.withColumn("twice", twice("id")).selectExpr("sum(twice)").first()[0] == 4999 * 5000  # type: ignore[index]
        above = checkpoint(kept.withColumn("twice", twice("id")), "doubled")
        assert above.count() == 5000


def test_a_common_table_expression_is_found_again(spark: SparkSession, attempts: Attempts) -> None:
    """The ids that a session counts up are no part of a fingerprint, whatever else the session has done before."""
    query = (
        "WITH t AS (SELECT id % 3 AS k, count(*) AS n FROM range(50) GROUP BY 1) "
        "SELECT t.*, (SELECT max(n) FROM t) FROM t"
    )
    with attempts.attempt():
        checkpoint(spark.sql(query), "cte")
    spark.sql("WITH other AS (SELECT 1 AS x) SELECT * FROM other, other AS again").count()
    with attempts.attempt() as context:
        assert checkpoint(spark.sql(query), "cte").count() == 3
        assert vertices(context)["cte"].computed == 0
