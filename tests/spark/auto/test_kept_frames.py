"""What the script has cached is kept, partition by partition, and a retry computes only what is missing of it."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider.spark.auto import kept_frames
from airflow_provider.spark.auto.frame_vertex import FrameVertex
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.relation import cached_as
from airflow_provider.spark.points.partition_io import Place
from airflow_provider.spark.points.reading import location
from airflow_provider.spark.shuffles.cached_partition import Batches, store_batches
from airflow_provider.storage.partition_store import file_checksum
from tests.spark.attempts import Attempts
from tests.spark.auto.sales import FILES, PARTITIONS, SETTINGS, by_key, cached, table, write_sales
from tests.spark.auto.watched import AutoAttempt, auto_attempt, configured, is_filled, tasks_run
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("script")]


@pytest.fixture
def sales(tmp_path: Path, spark: SparkSession) -> Iterator[Path]:
    with configured(spark, SETTINGS):
        yield write_sales(tmp_path / "sales")


def scanned(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F

    return table(spark, folder).withColumn("double", F.col("id") * 2)


def with_function(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F

    return table(spark, folder).withColumn("double", F.udf(lambda number: number * 2, "int")("id"))


def averages(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F

    return table(spark, folder).groupBy("key").agg(F.avg("amount").alias("amount"))


@contextmanager
def attempt_with(
    attempts: Attempts,
    spark: SparkSession,
    sales: Path,
    made: Callable[..., DataFrame],
    level: str = "MEMORY_AND_DISK_DESER",
) -> Iterator[tuple[AutoAttempt, DataFrame]]:
    """An attempt, and a frame that it has cached."""
    with auto_attempt(attempts, spark) as attempt:
        frame = made(spark, sales)
        with cached(frame, level=level):
            yield attempt, frame


def size_of(frame: DataFrame) -> list[str]:
    """The rows and bytes that Spark counts of a cached frame."""
    stats = cached_as(frame).computeStats()
    return [str(stats.rowCount()), str(stats.sizeInBytes())]


def drawn(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F

    return table(spark, folder).withColumn("draw", F.rand(7))


def observed(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F

    return table(spark, folder).observe("seen", F.count(F.lit(1)).alias("rows"))


def of_all_types(spark: SparkSession, folder: Path) -> DataFrame:
    return table(spark, folder).selectExpr(
        "id",
        "cast(id as string) as text",
        "cast(amount as decimal(30, 4)) as exact",
        "date_add(date'2020-01-01', id) as day",
        "timestamp_seconds(id) as moment",
        "id % 2 = 0 as even",
        "if(id % 5 = 0, null, id) as gaps",
        "cast(cast(id as string) as binary) as bytes",
        "array(id, key) as both",
        "map(key, kind) as pairs",
        "struct(id, array(cast(key as string)) as keys) as nested",
        "cast(null as string) as nothing",
        "make_dt_interval(id) as days",
    )


def name_of_frame(attempt: AutoAttempt) -> str:
    (name,) = (name for name in attempt.kept() if name.startswith("cached("))
    return name


def fill(attempt: AutoAttempt, frame: DataFrame) -> int:
    """``count()``, as many scripts begin, and looks at it."""
    rows = frame.count()
    attempt.see(frame)
    attempt.look()
    return rows


def stored_of(attempt: AutoAttempt) -> set[int]:
    """The partitions of frames that are in the store, as far as this attempt knows."""
    return {index for vertex in frames_of(attempt) for index in vertex.stored}


def frames_of(attempt: AutoAttempt) -> list[FrameVertex]:
    return [each for each in attempt.application.registry.vertices.values() if isinstance(each, FrameVertex)]


@pytest.mark.parametrize(
    ("made", "level"),
    [
        (by_key, "MEMORY_AND_DISK_DESER"),
        (scanned, "DISK_ONLY"),
        (with_function, "MEMORY_AND_DISK"),
        (averages, "MEMORY_ONLY"),
        (of_all_types, "MEMORY_AND_DISK_DESER"),
        (of_all_types, "DISK_ONLY"),
    ],
)
def test_a_cached_frame_is_not_computed_again(
    spark: SparkSession, sales: Path, attempts: Attempts, made: Callable[..., DataFrame], level: str
) -> None:
    """``cache()`` and ``count()``: a retry runs no task of the frame, and its rows are those of the first attempt."""
    with attempt_with(attempts, spark, sales, made, level) as (first, frame):
        rows = fill(first, frame)
        assert name_of_frame(first)
        counted = [vertex.rows for vertex in attempts.report().vertices if vertex.name == name_of_frame(first)]
        assert counted == [None], "Spark does not say how many rows are in which partition"
        held, shown = sorted(map(str, frame.collect())), size_of(frame)
    plain = tasks_run(spark, lambda: made(spark, sales).count())
    with attempt_with(attempts, spark, sales, made, level) as (second, frame):
        found = list[Any]()
        tasks = tasks_run(spark, lambda: found.append(frame.count()))
        assert found == [rows]
        assert is_filled(frame)
        (vertex,) = frames_of(second)
        assert len(vertex.stored) == vertex.maps
        assert tasks <= vertex.maps + 1 <= plain, "those that count the rows of each partition, and their sum"
        assert sorted(map(str, frame.collect())) == held
        assert size_of(frame) == shown


def test_missing_and_damaged_partitions_are_computed(
    spark: SparkSession, sales: Path, attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a frame that has survived in part, the other partitions are filled by the tasks that read them."""
    caplog.set_level("INFO", logger="airflow_provider")
    with attempt_with(attempts, spark, sales, with_function) as (first, frame):
        fill(first, frame)
        held = sorted(frame.collect())
        first.lose(name_of_frame(first), 1)
        damaged = next(path for path in first.stored_files() if re.match(r"000002-.*\.blocks$", path.name))
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    with attempt_with(attempts, spark, sales, with_function) as (second, frame):
        assert frame.count() == len(held)
        assert f"{FILES - 2} partitions put back, 2 to compute" in caplog.text
        assert "damaged" in caplog.text
        assert sorted(frame.collect()) == held
        second.look()
        assert stored_of(second) == set(range(FILES))
    with attempt_with(attempts, spark, sales, with_function) as (_, frame):
        assert frame.count() == len(held)
        assert f"{FILES} partitions put back, 0 to compute" in caplog.text


@pytest.mark.parametrize(
    ("level", "linked"), [("DISK_ONLY", True), ("MEMORY_AND_DISK", False), ("MEMORY_AND_DISK_DESER", None)]
)
def test_what_spark_has_written_need_not_be_worth_writing(
    spark: SparkSession,
    sales: Path,
    attempts: Attempts,
    monkeypatch: pytest.MonkeyPatch,
    level: str,
    linked: bool | None,
) -> None:
    """Spark's own files are linked, and bytes in memory copied, even if writing objects for it may cost nothing."""
    monkeypatch.setattr(kept_frames, "_SHARE", 0.0)
    with attempt_with(attempts, spark, sales, scanned, level) as (first, frame):
        fill(first, frame)
        assert stored_of(first) == (set(range(FILES)) if linked is not None else set())
        blocks = [path for path in first.stored_files() if path.suffix == ".blocks"]
        assert {path.stat().st_nlink for path in blocks} == (set() if linked is None else {1 + linked})
        held = sorted(frame.collect())
    with attempt_with(attempts, spark, sales, scanned, level) as (second, frame):
        assert sorted(frame.collect()) == held
        assert len(stored_of(second)) == len(blocks)


@pytest.mark.parametrize(("codec", "why"), [("none", r"java\.util\.Date"), ("snappy", "uncompress"), ("zstd", "zstd")])
def test_objects_that_are_no_batches_are_not_read(
    spark: SparkSession,
    sales: Path,
    attempts: Attempts,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    codec: str,
    why: str,
) -> None:
    """Whoever can write to the store cannot let a retry's JVM make objects of any other class, or stop the rest."""
    planted, java = tmp_path / "planted", jvm_of(spark).java
    with attempt_with(attempts, spark, sales, scanned) as (first, frame):
        fill(first, frame)
        held = sorted(frame.collect())
        (vertex,) = frames_of(first)
        first.lose(vertex.name, 1)
        out = java.io.ObjectOutputStream(java.io.FileOutputStream(str(planted)))
        out.writeObject(java.util.Date())
        out.close()
        place = Place(vertex.vertex, vertex.layout, 1, vertex.maps, first.context.master.epoch, 1)
        batches = Batches(codec, planted.stat().st_size, int(file_checksum(planted), 16))
        store_batches(location(first.context).open(), place, planted, batches, 1.0)
    with attempt_with(attempts, spark, sales, scanned) as (second, frame):
        assert sorted(frame.collect()) == held
        assert stored_of(second) == set(range(FILES)) - {1}
        assert re.search(f"holds no batches of a cached DataFrame: .*{why}", caplog.text, re.IGNORECASE)
        caplog.clear()
    with attempt_with(attempts, spark, sales, scanned) as (third, frame):
        assert sorted(frame.collect()) == held
        assert stored_of(third) == set(range(FILES)) - {1}
        assert "holds no batches" not in caplog.text, "it is marked"


def test_a_frame_of_missing_files_stops_nothing(spark: SparkSession, sales: Path, attempts: Attempts) -> None:
    """A script may cache rows of files that do not exist, and go on without them: the others are kept."""
    with attempt_with(attempts, spark, sales, scanned) as (first, frame):
        lines = spark.sparkContext.textFile(str(sales / "missing")).map(lambda line: (line,))
        missing = spark.createDataFrame(lines, "line string").cache()
        with pytest.raises(Exception, match="does not exist"):
            missing.count()
        fill(first, frame)
        stored, skipped = stored_of(first), first.skipped()
        (sales / "missing").mkdir()  # else Spark drops no other frame, either
        missing.unpersist()
    assert stored == set(range(FILES))
    assert "does not exist" in skipped


def test_frames_that_a_loop_drops_are_forgotten(spark: SparkSession, sales: Path, attempts: Attempts) -> None:
    """A loop that caches a frame in each round holds nothing for those of earlier rounds."""
    with auto_attempt(attempts, spark) as first:
        for _ in range(3):
            with cached(scanned(spark, sales)):
                first.look()
        gc.collect()

        def dropped() -> bool:
            jvm_of(spark).java.lang.System.gc()
            first.look()
            return not first.application._frames._frames

        wait_until(dropped, "the JVM drops the frames")
        assert not first.context.application.frames
        under = first.context.application.cached_under.values()
        assert (len(under), len({id(settings) for settings in under})) == (3, 1), "equal settings are kept once"


def test_a_filter_on_a_frame_skips_the_same_batches(spark: SparkSession, sales: Path, attempts: Attempts) -> None:
    """Spark leaves out batches by their statistics, which come back with them."""
    with attempt_with(attempts, spark, sales, scanned) as (first, frame):
        fill(first, frame)
        rows = sorted(frame.where("id between 17 and 60 and kind = 1").collect())
    with attempt_with(attempts, spark, sales, scanned) as (second, frame):
        assert sorted(frame.where("id between 17 and 60 and kind = 1").collect()) == rows
        assert frames_of(second)[0].stored


def limited(spark: SparkSession, folder: Path) -> DataFrame:
    return table(spark, folder).limit(10)


def ordered(spark: SparkSession, folder: Path) -> DataFrame:
    return table(spark, folder).orderBy("amount")


@pytest.mark.parametrize(
    ("made", "why"), [(drawn, "rand"), (observed, "observed"), (limited, "limit"), (ordered, "rangepartitioning")]
)
def test_what_must_run_in_each_attempt_is_not_kept(
    spark: SparkSession, sales: Path, attempts: Attempts, made: Callable[..., DataFrame], why: str
) -> None:
    """Rows of two draws, or choices, are never mixed, and what is observed has to pass."""
    with attempt_with(attempts, spark, sales, made) as (first, frame):
        fill(first, frame)
        assert not frames_of(first)
        assert why in first.skipped().lower()


def test_a_changed_file_gives_new_rows(spark: SparkSession, sales: Path, attempts: Attempts) -> None:
    """A frame of files that have changed is another one."""
    with attempt_with(attempts, spark, sales, scanned) as (first, frame):
        fill(first, frame)
        assert name_of_frame(first)
    (sales / "new.csv").write_text("1000,1,1,1.0\n")
    expected = sorted(scanned(spark, sales).collect())
    with attempt_with(attempts, spark, sales, scanned) as (second, frame):
        assert sorted(frame.collect()) == expected
        assert not frames_of(second)


def test_a_frame_that_was_filled_under_other_settings_is_not_kept(
    spark: SparkSession, sales: Path, attempts: Attempts
) -> None:
    """Its tasks may have read these."""
    with attempt_with(attempts, spark, sales, scanned) as (first, frame):
        with configured(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
            frame.count()
        first.look()
        assert not frames_of(first)
        assert "has changed since its query began" in first.skipped()


def test_a_frame_over_a_frame_comes_back(spark: SparkSession, sales: Path, attempts: Attempts) -> None:
    """Adaptive execution plans the upper one when the lower one is there: neither is computed."""
    from pyspark.sql import functions as F

    def two() -> tuple[DataFrame, DataFrame]:
        below = by_key(spark, sales)
        return below, below.withColumn("more", F.col("rows") + 1)

    with auto_attempt(attempts, spark) as first:
        below, above = two()
        with cached(below, above):
            fill(first, above)
            held = sorted(above.collect())
            assert len(frames_of(first)) == 2, first.skipped()
    with auto_attempt(attempts, spark) as second:
        below, above = two()
        with cached(below, above):
            assert sorted(above.collect()) == held
            assert [len(vertex.stored) for vertex in frames_of(second)] == [PARTITIONS] * 2
            assert is_filled(above)


@pytest.mark.parametrize("words", ["TABLE held", "LAZY TABLE held OPTIONS ('storageLevel' 'DISK_ONLY')"])
def test_what_sql_caches_comes_back(spark: SparkSession, sales: Path, attempts: Attempts, words: str) -> None:
    """``CACHE TABLE … AS SELECT``: a retry's statement puts back what it would compute, or the first query does."""

    def frame_of(attempt: AutoAttempt) -> DataFrame:
        by_key(spark, sales).createOrReplaceTempView("made")
        assert spark.sql(f"CACHE {words} AS SELECT * FROM made WHERE rows > 1").columns == []
        return spark.table("held")

    with auto_attempt(attempts, spark) as first:
        frame = frame_of(first)
        assert is_filled(frame) is ("LAZY" not in words)
        rows = sorted(frame.collect())
        first.see(frame)
        first.look()
        assert stored_of(first) == set(range(PARTITIONS)), first.skipped()
        spark.catalog.dropTempView("held")
    with auto_attempt(attempts, spark) as second:
        tasks = tasks_run(spark, lambda: frame_of(second))
        frame = spark.table("held")
        assert tasks == (PARTITIONS + 1 if "LAZY" not in words else 0)
        assert sorted(frame.collect()) == rows
        assert [len(vertex.stored) for vertex in frames_of(second)] == [PARTITIONS]
        spark.catalog.dropTempView("held")


def test_what_cannot_be_cached_is_left_as_spark_leaves_it(spark: SparkSession, sales: Path, attempts: Attempts) -> None:
    """``CACHE TABLE`` whose count fails, with and without a retry's two calls: nothing is cached, and no view made."""
    fails = "SELECT assert_true(id < 0) AS wrong FROM made"

    def left() -> list[object]:
        table(spark, sales).createOrReplaceTempView("made")
        spark.sql(fails).createOrReplaceTempView("failing")
        for statement in ("failing", f"selected AS {fails}", "nowhere"):
            with pytest.raises(Exception, match=r"not true|cannot be found"):
                spark.sql(f"CACHE TABLE {statement}")
        views = [view.name for view in spark.catalog.listTables() if view.name in ("failing", "selected")]
        return [views, spark.catalog.isCached("failing"), spark.catalog.isCached("made")]

    plain = left()
    with attempt_with(attempts, spark, sales, scanned) as (first, frame):
        fill(first, frame)
    with auto_attempt(attempts, spark) as second:
        assert second.wanted
        assert left() == plain == [["failing"], False, False]
    spark.catalog.dropTempView("failing")


def test_a_frame_stays_empty_if_nothing_has_to_read_it(spark: SparkSession, sales: Path, attempts: Attempts) -> None:
    """The shuffle above it has survived whole."""

    def query(frame: DataFrame) -> DataFrame:
        return frame.groupBy("kind").count()

    with attempt_with(attempts, spark, sales, by_key) as (first, frame):
        rows = sorted(query(frame).collect())
        first.see(query(frame))
        df = query(frame)
        df.collect()
        first.see(df)
        first.look()
        assert name_of_frame(first)
        assert "shuffle(kind)" in first.kept()
    with attempt_with(attempts, spark, sales, by_key) as (second, frame):
        assert sorted(query(frame).collect()) == rows
        assert "shuffle(kind)" in second.put_back()
        assert not is_filled(frame)
