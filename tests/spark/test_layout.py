"""Single partitions are reused where they cover the same rows, on a cluster of another size too, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.core import faults
from airflow_provider.spark import checkpoint
from tests.spark.attempts import Attempts, vertices
from tests.support.driver import DriverHarness
from tests.support.sparks import EACH_OR_OLDEST, spark_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.mark.integration
@pytest.mark.process
@pytest.mark.parametrize(
    "kind", [pytest.param("files", marks=pytest.mark.walk), pytest.param("range", marks=pytest.mark.walk), "shuffle"]
)
def test_a_retry_with_another_number_of_cores_computes_only_what_is_missing(driver: DriverHarness, kind: str) -> None:
    """Killed on two cores, resumed on three: the rows are cut as before, and the stored partition is kept."""
    source, gate, target = (driver.folder / name for name in ("source", "gate", "target"))
    source.mkdir()
    for part in range(6):
        pq.write_table(pa.table({"id": [*range(part * 66, part * 66 + 66)]}), source / f"part-{part}.parquet")
    small = {"spark.sql.adaptive.coalescePartitions.minPartitionSize": "1b"}  # so that the cores decide
    driver.settings = small
    arguments = ("cut.py", kind, str(source), str(gate), str(target))
    keep = {"keep-partitions": ""}
    first = driver.run(*arguments, fault=f"{faults.AFTER_PARTITION_EVENT}@1", options=keep)
    assert first.code == -9, first.log
    [stored] = driver.partitions("doubled")
    assert stored.index == 0
    assert (stored.parallelism == 2) or kind == "shuffle"  # there adaptive execution decides
    gate.touch()
    driver.settings = {**small, "spark.master": "local[3]"}
    second = driver.run(*arguments, options=keep)
    assert second.code == 0, second.log
    assert f"{stored.parallelism} partitions, 1 reused, {stored.parallelism - 1} to compute" in second.log
    assert second.tasks["checkpoint doubled"] == stored.parallelism - 1
    assert sorted(pq.read_table(target)["id"].to_pylist()) == [2 * i for i in range(396 if kind == "files" else 400)]


@pytest.mark.integration
@pytest.mark.process
@pytest.mark.parametrize("version", EACH_OR_OLDEST)
def test_a_recovery_point_is_cut_as_before_and_nobody_sees_it(tmp_path: Path, version: str) -> None:
    """While tasks of a recovery point run, on two cores and in the retry on three, another thread finds the session's
    setting and the cluster's own cut; views, registered functions and what is cached are the session's.
    """
    driver = DriverHarness(tmp_path, f"file://{tmp_path}/store", python=spark_python(version))
    folder, target = tmp_path / "job", tmp_path / "target"
    (folder / "source").mkdir(parents=True)
    for part in range(6):
        pq.write_table(
            pa.table({"id": [*range(part * 50, part * 50 + 50)]}), folder / "source" / f"part-{part}.parquet"
        )
    keep = {"keep-partitions": ""}
    (folder / "attempt").write_text("1")
    arguments = ("looked_on.py", str(folder), str(target))
    first = driver.run(*arguments, fault=f"{faults.AFTER_PARTITION_EVENT}@1", options=keep)
    assert first.code == -9, first.log
    assert [stored.parallelism for stored in driver.partitions("held")] == [6]
    (folder / "gate").touch()
    (folder / "attempt").write_text("2")
    driver.settings = {"spark.master": "local[3]"}
    second = driver.run(*arguments, options=keep)
    assert second.code == 0, second.log
    seen = [json.loads((folder / f"{attempt}.seen").read_text()) for attempt in (1, 2)]
    assert seen == [{"setting": None, "partitions": 2}, {"setting": None, "partitions": 3}]
    assert "6 partitions, 1 reused, 5 to compute" in second.log
    assert second.tasks["checkpoint held"] == 5
    assert len(list(folder.glob("2.*.call"))) == 3, "what is cached was computed again"
    wanted = [*range(1, 301), *range(1000, 1040), *range(2000, 2004), *range(2, 302)]
    assert sorted(pq.read_table(target)["id"].to_pylist()) == sorted(wanted)


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    return Attempts(tmp_path)


def sums(spark: SparkSession) -> DataFrame:
    return checkpoint(spark.range(0, 1000, 1, 4).selectExpr("id", "id % 50 AS k").groupBy("k").sum("id"), "sums")


@pytest.mark.spark
def test_what_the_user_sets_is_not_pinned(
    spark: SparkSession, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With other shuffle partitions an unfinished vertex is computed again, as asked for, and the setting is named."""
    spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    try:
        with attempts.attempt():
            first = sorted(map(tuple, sums(spark).collect()))
        next(iter(sorted(attempts.folder.rglob("*.parquet")))).unlink()
        spark.conf.set("spark.sql.shuffle.partitions", "6")
        with attempts.attempt() as context:
            assert sorted(map(tuple, sums(spark).collect())) == first
            report = vertices(context)["sums"]
        assert (report.partitions, report.reused) == (6, 0)
        assert "spark.sql.shuffle.partitions was 4, is 6" in report.because[0]
        with attempts.attempt() as context:
            sums(spark)
            assert vertices(context)["sums"].reused == 6
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "4")
        spark.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")


@pytest.mark.spark
def test_adaptive_execution_switched_off(spark: SparkSession, attempts: Attempts) -> None:
    """A complete vertex is reused whole; of an incomplete one nothing is mixed, and the rows are right."""
    with attempts.attempt():
        first = sorted(map(tuple, sums(spark).collect()))
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        with attempts.attempt() as context:
            sums(spark)
            assert vertices(context)["sums"].computed == 0
        next(iter(sorted(attempts.folder.rglob("*.parquet")))).unlink()
        with attempts.attempt() as context:
            assert sorted(map(tuple, sums(spark).collect())) == first
            assert (vertices(context)["sums"].reused, vertices(context)["sums"].computed) == (0, 4)
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
