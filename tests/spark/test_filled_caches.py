"""Frames that the script caches: before a write that fills them, and that a retry leaves out, or behind a write."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

from airflow_provider.spark import checkpoint
from airflow_provider.spark.identity.functions import FunctionReader
from airflow_provider.spark.identity.functions.removals import removal_in
from tests.spark.attempts import Attempts
from tests.spark.auto.watched import is_filled
from tests.support.parameters import each_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


REMOVES = "import shutil\nshutil.rmtree('stage')\n"


def in_a_subquery(cached: DataFrame) -> DataFrame:
    cached.createOrReplaceTempView("in_a_subquery")
    return cached.sparkSession.sql("SELECT id FROM range(5) WHERE id <= (SELECT max(id) FROM in_a_subquery)")


PARTS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "all of it": lambda cached: cached,
    "a part": lambda cached: cached.where("id >= 0"),
    "a subquery": in_a_subquery,
}
"""What an output reads of a cached frame."""


def by_writer(df: DataFrame, targets: list[Path]) -> None:
    for target in targets:
        df.write.mode("overwrite").parquet(str(target))


def by_statement(df: DataFrame, targets: list[Path]) -> None:
    df.createOrReplaceTempView("cached_rows")
    for number, target in enumerate(targets):
        df.sparkSession.sql(
            f"CREATE TABLE IF NOT EXISTS filled_{number} USING parquet LOCATION '{target}' AS SELECT * FROM cached_rows"
        )


def by_statement_with_parameters(df: DataFrame, targets: list[Path]) -> None:
    df.createOrReplaceTempView("cached_rows")
    for number, target in enumerate(targets):
        df.sparkSession.sql(f"CREATE TABLE IF NOT EXISTS filled_{number} (id BIGINT) USING parquet LOCATION '{target}'")
        df.sparkSession.sql(f"INSERT INTO filled_{number} SELECT * FROM cached_rows WHERE id < :end", {"end": 9})


def by_several_inserts(df: DataFrame, targets: list[Path]) -> None:
    df.createOrReplaceTempView("cached_rows")
    inserts = ""
    for number, target in enumerate(targets):
        df.sparkSession.sql(f"CREATE TABLE IF NOT EXISTS filled_{number} (id BIGINT) USING parquet LOCATION '{target}'")
        inserts += f" INSERT INTO filled_{number} SELECT id"
    df.sparkSession.sql(f"FROM cached_rows{inserts}")


WRITES: dict[str, Callable[[DataFrame, list[Path]], None]] = {
    "a writer": by_writer,
    "a statement": by_statement,
    "a statement with parameters": by_statement_with_parameters,
    "several inserts": by_several_inserts,
}


@pytest.mark.few(1)
@each_value(writes=[*WRITES], reads=[*PARTS])
def test_a_frame_that_is_cached_outlives_its_source(
    spark: SparkSession,
    attempts: Attempts,
    tmp_path: Path,
    script: Path,
    writes: str,
    reads: str,
) -> None:
    """A script stages rows, writes outputs of a cached frame, and removes what it has staged: the retry, which leaves
    the outputs out, finds the rows in the cache, as each attempt of plain Spark does.
    """
    script.write_text(REMOVES)
    stage, targets = tmp_path / "stage", [tmp_path / "a", tmp_path / "b"]
    try:
        for _ in range(3):
            with attempts.script():
                spark.range(5).write.mode("overwrite").parquet(str(stage))
                cached = spark.read.parquet(str(stage)).cache()
                WRITES[writes](PARTS[reads](cached), targets)
                shutil.rmtree(stage)
                assert sorted(row.id for row in cached.collect()) == [0, 1, 2, 3, 4]
                cached.unpersist()
            found = [sorted(row.id for row in spark.read.parquet(str(target)).collect()) for target in targets]
            assert found == [[0, 1, 2, 3, 4]] * 2
    finally:
        for number in range(2):
            spark.sql(f"DROP TABLE IF EXISTS filled_{number}")


def test_a_frame_that_is_cached_is_not_computed_for_nothing(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, script: Path
) -> None:
    """A script that removes no file fills its cache where it reads it: a retry that leaves out the only output that is
    made of it computes nothing.
    """
    for written in (True, False):
        with attempts.script():
            cached = spark.range(5).cache()
            cached.write.mode("overwrite").parquet(str(tmp_path / "out"))
            assert is_filled(cached) is written
            assert cached.count() == 5
            cached.unpersist()


def test_a_script_that_cannot_be_read_may_remove_files(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, script: Path
) -> None:
    """Its caches are filled."""
    script.unlink()
    for _ in range(2):
        with attempts.script():
            cached = spark.range(5).cache()
            cached.write.mode("overwrite").parquet(str(tmp_path / "out"))
            assert is_filled(cached)
            cached.unpersist()


SCRIPTS = {
    "the script": ({"script.py": REMOVES}, True),
    "a function of it": ({"script.py": "import os\ndef clean(path):\n    os.unlink(path)\n"}, True),
    "Hadoop's file system": ({"script.py": "fs.delete(path, True)\n"}, True),
    "another program": ({"script.py": "import subprocess as sub\nsub.run(['hdfs', 'dfs', '-rm', path])\n"}, True),
    "a module beside it": ({"script.py": "from housekeeping import clean\n", "housekeeping.py": REMOVES}, True),
    "a module that a module imports": (
        {"script.py": "import first\n", "first.py": "import housekeeping\n", "housekeeping.py": REMOVES},
        True,
    ),
    "nothing": ({"script.py": "df.replace('a', 'b').drop('c').write.parquet('out')\n"}, False),
    "a module that it does not import": ({"script.py": "print()\n", "housekeeping.py": REMOVES}, False),
}


@pytest.mark.parametrize("what", SCRIPTS)
def test_what_may_remove_files_is_seen(module_folder: Path, what: str) -> None:
    """By the words of the script, and of the user's own modules that it reaches."""
    files, removes = SCRIPTS[what]
    for name, text in files.items():
        (module_folder / name).write_text(text)
    assert bool(removal_in(FunctionReader({}).words_of(module_folder / "script.py"))) is removes


def newest(df: DataFrame) -> DataFrame:
    latest = Window.partitionBy("key").orderBy("at")
    return df.withColumn("place", F.row_number().over(latest)).where("place = 1")


FRAMES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "certain": lambda df: df.where("id > 3"),
    "one of equal rows": newest,
    "drawn": lambda df: df.withColumn("drawn", F.rand()),
}
BEFORE: dict[str, Callable[[DataFrame, Path], object]] = {
    "count": lambda df, _: df.count(),
    "write": lambda df, target: df.write.mode("overwrite").parquet(str(target)),
    "recovery point": lambda df, _: checkpoint(df, "before"),
}


@pytest.mark.few(1)
@each_value(rows=[*FRAMES], before=[*BEFORE])
def test_a_frame_that_is_cached_behind_its_write_is_read_from_the_cache(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, rows: str, before: str
) -> None:
    """In each attempt, as in plain Spark: what was asked of its plan before does not hold it to one without a cache."""
    for _ in range(2):
        with attempts.script():
            df = FRAMES[rows](spark.range(20).select("id", (F.col("id") % 5).alias("key"), F.lit(7).alias("at")))
            BEFORE[before](df, tmp_path / "out")
            df.cache()
            assert "InMemoryTableScan" in df._jdf.queryExecution().executedPlan().toString()
            df.unpersist()
