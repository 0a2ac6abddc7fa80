"""What is shuffled above cached frames is kept, if a retry fills these with the same rows, to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.attempts import Attempts
from tests.spark.auto.sales import FILES, SETTINGS, by_key, cached, table, write_sales
from tests.spark.auto.watched import AutoAttempt, auto_attempt, configured, is_filled, tasks_run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("script")]

FRAME = "cached(key, kind, rows, ids)"
"""What :func:`by_key` makes."""


@pytest.fixture
def sales(tmp_path: Path, spark: SparkSession) -> Iterator[Path]:
    with configured(spark, SETTINGS):
        yield write_sales(tmp_path / "sales")


def by_kind(cached: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return cached.groupBy("kind").agg(F.sum("rows").alias("rows"), F.max("ids").alias("most"))


@contextmanager
def over_cached(
    attempts: Attempts, spark: SparkSession, sales: Path, made: Callable[..., DataFrame] = by_key
) -> Iterator[tuple[AutoAttempt, DataFrame]]:
    """An attempt, and a frame that it has cached."""
    with auto_attempt(attempts, spark) as attempt:
        frame = made(spark, sales)
        with cached(frame):
            yield attempt, frame


def kept_of(first: AutoAttempt, df: DataFrame) -> tuple[list[Any], list[str]]:
    """Run a query of the first attempt; return its rows, and what is kept of it."""
    rows = sorted(df.collect())
    return rows, first.keep(df)


def test_what_was_shuffled_above_a_cached_frame_is_put_back_and_the_frame_stays_empty(
    spark: SparkSession, sales: Path, attempts: Attempts
) -> None:
    """A retry whose last output reads nothing but what survived computes no partition of the frame."""
    held = sorted(by_key(spark, sales).collect())
    with over_cached(attempts, spark, sales) as (first, frame):
        rows, kept = kept_of(first, by_kind(frame))
        assert kept == [FRAME, "shuffle(key, kind)", "shuffle(kind)"], first.skipped()
    with over_cached(attempts, spark, sales) as (second, frame):
        found, again = list[Any](), by_kind(frame)
        tasks = tasks_run(spark, lambda: found.extend(sorted(again.collect())))
        assert found == rows
        assert second.put_back() == {"shuffle(key, kind)": FILES, "shuffle(kind)": 3}
        assert tasks == 3  # its reducers
        assert not is_filled(frame)
        assert sorted(frame.collect()) == held


def test_missing_map_outputs_fill_their_part_of_the_frame(spark: SparkSession, sales: Path, attempts: Attempts) -> None:
    """Of a shuffle that is stored in part, missing map tasks read the frame, and compute what they need of it."""
    with over_cached(attempts, spark, sales) as (first, frame):
        rows, _ = kept_of(first, by_kind(frame))
        first.lose("shuffle(kind)", 1)
        first.lose(FRAME)
    with over_cached(attempts, spark, sales) as (second, frame):
        found, again = list[Any](), by_kind(frame)
        tasks = tasks_run(spark, lambda: found.extend(sorted(again.collect())))
        assert found == rows
        assert second.put_back() == {"shuffle(key, kind)": FILES, "shuffle(kind)": 2}
        assert tasks == 4
        assert not is_filled(frame)


def test_a_frame_that_the_script_fills_first_changes_nothing(
    spark: SparkSession, sales: Path, attempts: Attempts
) -> None:
    """``cache()`` and ``count()``, as many scripts begin: what is above is put back all the same."""
    with over_cached(attempts, spark, sales) as (first, frame):
        frame.count()
        first.keep(frame)
        rows, kept = kept_of(first, by_kind(frame))
        assert "shuffle(kind)" in kept, first.skipped()
    with over_cached(attempts, spark, sales) as (second, frame):
        frame.count()
        assert is_filled(frame)
        assert sorted(by_kind(frame).collect()) == rows
        assert second.put_back()["shuffle(kind)"] == 3


def test_a_script_that_may_remove_files_gets_its_frame_filled(
    spark: SparkSession, sales: Path, attempts: Attempts, script: Path
) -> None:
    """It may remove what the frame is made of once an action has filled it."""
    with over_cached(attempts, spark, sales) as (first, frame):
        rows, _ = kept_of(first, by_kind(frame))
    script.write_text("import shutil\nshutil.rmtree('sales')\n")
    with over_cached(attempts, spark, sales) as (second, frame):
        assert sorted(by_kind(frame).collect()) == rows
        assert second.put_back() == {"shuffle(key, kind)": FILES, "shuffle(kind)": 3}
        assert is_filled(frame)


def narrow(spark: SparkSession, folder: Path) -> DataFrame:
    return table(spark, folder).where("id % 2 = 0").selectExpr("key", "kind", "id AS ids", "1 AS rows")


def decimals(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F

    amount = F.col("amount").cast("decimal(12, 2)")
    return table(spark, folder).groupBy("key", "kind").agg(F.avg(amount).alias("ids"), F.sum(amount).alias("rows"))


def joined(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F

    names = table(spark, folder).select("key", "kind").distinct().withColumn("weight", F.col("key") * 2)
    return by_key(spark, folder).join(names, ["key", "kind"])


def with_broadcast(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F

    few = spark.range(5).select(F.col("id").cast("int").alias("key"))
    return by_key(spark, folder).join(F.broadcast(few), "key")


def function_below(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F

    twice = F.udf(lambda value: value * 2, "int")
    return by_key(spark, folder).union(
        table(spark, folder)
        .select(twice("id").alias("id"), "key", "kind")
        .groupBy("key", "kind")
        .agg(F.count("*").alias("rows"), F.max("id").alias("ids"))
    )


def chosen_below(spark: SparkSession, folder: Path) -> DataFrame:
    """The shuffle below the frame has chosen rows; what is made of it is bound to what it has chosen."""
    return (
        table(spark, folder)
        .dropDuplicates(["key"])
        .repartition(3, "id")
        .selectExpr("key", "kind", "id AS ids", "1 AS rows")
    )


@pytest.mark.few(3)
@pytest.mark.parametrize("made", [narrow, decimals, joined, with_broadcast, function_below, chosen_below])
def test_a_frame_is_the_same_again_if_what_it_is_made_of_is(
    spark: SparkSession, sales: Path, attempts: Attempts, made: Callable[..., DataFrame]
) -> None:
    """Files, joins, broadcasts, whole numbers: what is shuffled above them is kept. So it is if functions and choices
    have come to their end below the shuffles that the frame reads.
    """
    with over_cached(attempts, spark, sales, made) as (first, frame):
        rows, kept = kept_of(first, by_kind(frame))
        assert "shuffle(kind)" in kept, first.skipped()
    with over_cached(attempts, spark, sales, made) as (second, frame):
        assert sorted(by_kind(frame).collect()) == rows
        assert second.put_back().get("shuffle(kind)"), second.skipped()
        assert not is_filled(frame)


def test_a_chain_of_cached_frames_goes_on_from_the_last_one(
    spark: SparkSession, sales: Path, attempts: Attempts
) -> None:
    """An algorithm in rounds, each of which caches its result: a retry begins with the shuffle of the last round."""
    from pyspark.sql import functions as F

    def rounds() -> list[DataFrame]:
        frames = [by_key(spark, sales)]
        for _ in range(3):
            last = frames[-1].withColumn("key", (F.col("key") * 3 + 1) % 5)
            frames.append(last.groupBy("key", "kind").agg(F.sum("rows").alias("rows"), F.max("ids").alias("ids")))
            frames[-2].cache()
        return frames

    def forget(frames: list[DataFrame]) -> None:
        for frame in frames:
            frame.unpersist(blocking=True)

    with auto_attempt(attempts, spark) as first:
        frames = rounds()
        rows, kept = kept_of(first, frames[-1])
        forget(frames)
        assert len([name for name in kept if name.startswith("shuffle")]) == 4, first.skipped()
    with auto_attempt(attempts, spark) as second:
        frames = rounds()
        found = list[Any]()
        try:
            tasks = tasks_run(spark, lambda: found.extend(sorted(frames[-1].collect())))
            assert found == rows
            assert len(second.application.registry.put_back) == 4
            assert tasks == 3
        finally:
            forget(frames)


def float_sums(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F

    return table(spark, folder).groupBy("key", "kind").agg(F.count("*").alias("rows"), F.sum("amount").alias("ids"))


def averages(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F

    return table(spark, folder).groupBy("key", "kind").agg(F.count("*").alias("rows"), F.avg("id").alias("ids"))


def function_inside(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F

    return by_key(spark, folder).withColumn("ids", F.udf(lambda value: value + 1, "long")("ids"))


def chosen_inside(spark: SparkSession, folder: Path) -> DataFrame:
    return table(spark, folder).dropDuplicates(["key"]).selectExpr("key", "kind", "id AS ids", "1 AS rows")


def drawn(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F

    return by_key(spark, folder).withColumn("ids", F.rand(3))


def with_subquery(spark: SparkSession, folder: Path) -> DataFrame:
    by_key(spark, folder).createOrReplaceTempView("sums_by_key")
    return spark.sql("SELECT * FROM sums_by_key WHERE ids > (SELECT avg(ids) FROM sums_by_key)")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("made", "why"),
    [
        (float_sums, "which has a result of Sum"),
        (averages, "which has a result of Average"),
        (function_inside, "which calls a Python function"),
        (chosen_inside, "it depends on the order of rows"),
        (drawn, "it draws random numbers"),
        (with_subquery, "which has a subquery"),
    ],
)
def test_what_reads_a_frame_that_may_be_another_is_computed_again(
    spark: SparkSession, sales: Path, attempts: Attempts, made: Callable[..., DataFrame], why: str
) -> None:
    """The script may compare what it has computed of a cached frame with the frame: both must be of one filling."""
    with over_cached(attempts, spark, sales, made) as (first, frame):
        rows, kept = kept_of(first, by_kind(frame))
        assert "shuffle(kind)" not in kept
        assert why in first.skipped()
    with over_cached(attempts, spark, sales, made) as (second, frame):
        assert sorted(by_kind(frame).collect()) == rows
        assert "shuffle(kind)" not in second.put_back()


def test_what_is_further_up_is_reached_through_a_frame_that_is_filled(
    spark: SparkSession, sales: Path, attempts: Attempts
) -> None:
    """The shuffle right above the frame is not kept, so a retry fills it and runs that one before it finds the next."""

    def query(frame: DataFrame) -> DataFrame:
        return by_kind(frame).groupBy("rows").count()

    with over_cached(attempts, spark, sales, function_inside) as (first, frame):
        rows, kept = kept_of(first, query(frame))
        assert kept == [FRAME, "shuffle(key, kind)", "shuffle(rows)"]
        first.lose(FRAME)
    with over_cached(attempts, spark, sales, function_inside) as (second, frame):
        assert sorted(query(frame).collect()) == rows
        assert second.put_back() == {"shuffle(key, kind)": FILES, "shuffle(rows)": 3}
        assert is_filled(frame)


def test_what_reads_a_frame_that_was_cached_under_other_settings_is_computed_again(
    spark: SparkSession, sales: Path, attempts: Attempts
) -> None:
    """Spark plans a frame when it is cached, with the settings of then."""
    with auto_attempt(attempts, spark) as first:
        frame = by_key(spark, sales)
        with configured(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
            frame.cache()
        with cached(frame):
            _, kept = kept_of(first, by_kind(frame))
        assert "shuffle(kind)" not in kept
        assert "other settings" in first.skipped()


def test_a_changed_file_below_a_cached_frame_gives_new_rows(
    spark: SparkSession, sales: Path, attempts: Attempts
) -> None:
    """What was made of the old rows is not put back."""
    for made in (by_key, narrow):
        with over_cached(attempts, spark, sales, made) as (first, frame):
            _, kept = kept_of(first, by_kind(frame))
            assert "shuffle(kind)" in kept
        (sales / f"{made.__name__}.csv").write_text("1000,1,1,1.0\n")
        expected = sorted(by_kind(made(spark, sales)).collect())
        with over_cached(attempts, spark, sales, made) as (second, frame):
            assert sorted(by_kind(frame).collect()) == expected
            assert "shuffle(kind)" not in second.put_back()


def test_a_frame_made_of_map_outputs_that_were_computed_again_counts_for_nothing(
    spark: SparkSession, sales: Path, attempts: Attempts
) -> None:
    """A part of the frame may be older than what its shuffle holds now."""
    with over_cached(attempts, spark, sales) as (first, frame):
        frame.count()
        assert first.keep(frame) == [FRAME, "shuffle(key, kind)"]
        below = next(each for each in first.application.registry.vertices.values() if each.reducers)
        stored, task = below.stored[0], below.tasks[0]
        below.forget([0])  # as a look does that finds another task's output; the next one stores that
        below.take(stored, task)
        _, kept = kept_of(first, by_kind(frame))
        assert "shuffle(kind)" not in kept
        assert "computed again" in first.skipped()
