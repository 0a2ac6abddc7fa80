"""A write goes on where an earlier attempt's was cut off, and only there: which tasks a retry keeps, and which it does
not, in one JVM. What a kill leaves is the picture that the last task takes of the target before it fails.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

from airflow_provider.core.report import format_report
from airflow_provider.spark.interception import intercepted
from airflow_provider.spark.sinks.once import SinksOnce
from airflow_provider.spark.sinks.take_back import OutputAttempt
from tests.spark.attempts import Attempts
from tests.support.parameters import each_value, thinned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

pytestmark = pytest.mark.spark

TASKS, ROWS = 4, 400
PER_TASK = ROWS // TASKS
ALGORITHM = "mapreduce.fileoutputcommitter.algorithm.version"
READERS: dict[str, Callable[[SparkSession, str], DataFrame]] = {
    "parquet": lambda spark, path: spark.read.parquet(path),
    "orc": lambda spark, path: spark.read.orc(path),
    "csv": lambda spark, path: spark.read.csv(path),
    "json": lambda spark, path: spark.read.json(path),
    "text": lambda spark, path: spark.read.text(path),
    "xml": lambda spark, path: spark.read.xml(path, rowTag="ROW"),
}


@dataclass
class Cut:
    """A job whose write is cut off when all of its tasks but the last have committed.

    :ivar change: what is done to the plan of the rows
    :ivar number: of the next attempt as Hadoop sees it; drawn if it is 0
    """

    spark: SparkSession
    folder: Path
    attempts: Attempts
    change: Callable[[DataFrame], DataFrame] = field(default=lambda df: df)
    number: int = 0

    @property
    def target(self) -> Path:
        return self.folder / "lake" / "out"

    @property
    def picture(self) -> Path:
        return self.folder / "picture"

    def rows(self, last: int = 300, source: DataFrame | None = None) -> DataFrame:
        """400 rows, which come to the function in four tasks.

        :param last: the number whose task takes the picture, as long as there is a file that says so
        """
        target, picture, computed, cuts = self.target, self.picture, self.folder / "computed", self.folder / "cut"

        def through(number: int) -> int:
            with computed.open("a") as file:
                file.write(f"{number}\n")
            if number == last and cuts.exists() and not picture.exists():
                for _ in range(100_000):
                    kept = list(target.parent.glob(".spark-recovery-*/*/task_*"))
                    if len([*kept, *target.glob("_temporary/*/task_*")]) >= int(cuts.read_text()):
                        break
                    os.sched_yield()
                shutil.copytree(target, picture, ignore=shutil.ignore_patterns("attempt_*"))  # tasks that may end now
                raise RuntimeError("cut off")
            return number

        source = source if source is not None else self.spark.range(0, ROWS, 1, TASKS)
        return self.change(source).select(F.udf(through, "long")("id").alias("id"), (F.col("id") % 2).alias("half"))

    @contextmanager
    def attempt(self) -> Iterator[SinksOnce]:
        (self.folder / "computed").write_text("")
        with self.attempts.attempt() as context:
            output = OutputAttempt(context.master)
            output.number = self.number or output.number
            sinks = SinksOnce(context, output)
            with intercepted(sinks.stages()):
                output.prepare(self.spark)
                yield sinks

    def cut_off(self, write: Callable[[], object], committed: int = TASKS - 1) -> None:
        """An attempt that dies in a write.

        :param committed: how many folders of tasks there have to be then
        """
        (self.folder / "cut").write_text(str(committed))
        with self.attempt(), pytest.raises(Exception, match="cut off"):
            write()
        (self.folder / "cut").unlink()
        shutil.copytree(self.picture, self.target, dirs_exist_ok=True)
        shutil.rmtree(self.picture)

    def retry(self, write: Callable[[], object]) -> None:
        with self.attempt():
            write()

    @property
    def computed(self) -> set[int]:
        """The tasks whose rows the last attempt has computed."""
        return {int(line) // PER_TASK for line in (self.folder / "computed").read_text().split()}

    @property
    def left_over(self) -> list[str]:
        return [path.name for path in self.folder.rglob("*") if path.name.startswith((".spark-", "_temporary"))]

    def ids(self, kind: str = "parquet") -> Counter[int]:
        found = READERS[kind](self.spark, str(self.target))
        column = "id" if "id" in found.columns else found.columns[0]
        return Counter(int(row[column]) for row in found.collect())


ONCE = Counter(range(ROWS))


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Cut:
    return Cut(spark, tmp_path, Attempts(tmp_path, options={"restart_strategy": "none"}))


def test_only_the_task_that_was_missing_runs(job: Cut, caplog: pytest.LogCaptureFixture) -> None:
    """The files of both attempts are those of one write, and nothing is left beside them; a third attempt knows that it
    is written.
    """

    def write() -> None:
        job.rows().write.parquet(str(job.target))

    job.cut_off(write)
    assert job.computed == {0, 1, 2, 3}
    with caplog.at_level(logging.INFO, "airflow_provider"):
        job.retry(write)
    assert job.computed == {3}
    assert job.ids() == ONCE
    assert job.left_over == []
    assert len({path.name[11:47] for path in job.target.glob("part-*")}) == 1
    assert "attempt 1 died while it wrote; 3 of its tasks had committed and are kept" in caplog.text
    assert "3 of its 4 tasks were committed by earlier attempts and are kept, 1 are written" in caplog.text
    told = f"output file:{job.target} goes on: 3 of its 4 tasks had been committed by earlier attempts"
    report = job.attempts.report()
    assert report.going_on == [told]
    assert f"  {told}" in format_report(report).splitlines()
    job.retry(write)
    assert job.attempts.report().going_on == []
    assert job.computed == set()


@pytest.mark.few(1)
@pytest.mark.parametrize("numbers", [(1, 2, 3), (3, 2, 1)], ids=str)
def test_an_attempt_that_goes_on_is_cut_off_itself(job: Cut, numbers: tuple[int, int, int]) -> None:
    """It has left out its first task, for which Spark writes a file of no rows all the same. That is never taken for
    the task's, whatever Hadoop's random numbers of the attempts are.
    """

    def write() -> None:
        job.rows().write.parquet(str(job.target))

    job.number = numbers[0]
    job.cut_off(write)
    job.number = numbers[1]
    job.cut_off(write, committed=TASKS)
    assert job.computed == {3}
    job.number = numbers[2]
    job.retry(write)
    assert job.computed == {3}
    assert job.ids() == ONCE
    assert job.left_over == []
    assert job.ids() == ONCE


@pytest.mark.few(3)
@pytest.mark.integration
@each_value(
    mode=["append", "overwrite", "error", "ignore"],
    kind=["parquet", "orc", "csv", "json", "text", "xml"],
    parts=[False, True],
)
def test_all_modes_and_formats(job: Cut, mode: str, kind: str, parts: bool) -> None:
    """Also beside what was there before, and where the rows are spread over folders: a task has several files."""
    before: Counter[int] = Counter()
    if mode in ("append", "overwrite"):
        old = job.spark.range(1000, 1010).select("id", (F.col("id") % 2).alias("half"))
        _write(old, kind, parts).save(str(job.target))
        before = Counter(range(1000, 1010)) if mode == "append" else Counter()

    def write() -> None:
        _write(job.rows(), kind, parts).mode(mode).save(str(job.target))

    job.cut_off(write)
    job.retry(write)
    assert job.computed == {3}
    assert job.ids(kind) == ONCE + before
    assert job.left_over == []


def _write(rows: DataFrame, kind: str, parts: bool) -> DataFrameWriter:
    if kind == "text":
        rows = rows.select(F.col("id").cast("string").alias("id"), *(["half"] if parts else []))
    return (rows.write.partitionBy("half") if parts else rows.write).format(kind).option("rowTag", "ROW")


@pytest.mark.integration
def test_the_target_looks_as_before_until_the_write(job: Cut) -> None:
    """A script that asks whether it is there finds nothing."""

    def write() -> None:
        job.rows().write.parquet(str(job.target))

    job.cut_off(write)
    assert job.target.exists()
    with job.attempt():
        assert not job.target.exists()
        write()
    assert job.ids() == ONCE


def by_key(df: DataFrame) -> DataFrame:
    return df.repartition(TASKS, "id")


def test_behind_a_shuffle(job: Cut) -> None:
    """A row is always in the partition that its key's hash says. The function stands behind the shuffle."""
    source = job.spark.range(0, ROWS, 1, 3)
    places = by_key(source).select("id", F.spark_partition_id().alias("place")).collect()
    last = max(row.id for row in places if row.place == TASKS - 1)
    job.change = by_key

    def write() -> None:
        job.rows(last, job.spark.range(0, ROWS, 1, 3)).write.parquet(str(job.target))

    job.cut_off(write)
    job.retry(write)
    computed = {int(line) for line in (job.folder / "computed").read_text().split()}
    assert computed == {row.id for row in places if row.place == TASKS - 1}
    assert job.ids() == ONCE


@contextmanager
def setting(spark: SparkSession, **values: Any) -> Iterator[None]:
    names = {name.replace("__", "."): value for name, value in values.items()}
    before = {name: spark.conf.get(name, None) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, old) if old is not None else spark.conf.unset(name)


def grouped(df: DataFrame) -> DataFrame:
    """By what Spark does not know to be in order already."""
    return df.select(F.abs("id").alias("id")).groupBy("id").agg(F.count("*")).select("id")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("partitions", "kept"), [(8, True), (6, False)], ids=["cut alike again", "another number of reducers"]
)
def test_adaptive_execution_cuts_otherwise(
    job: Cut, caplog: pytest.LogCaptureFixture, partitions: int, kept: bool
) -> None:
    """What the first attempt read with a task for each reducer, a retry that would read all with one task reads so,
    too; where the shuffle itself is another one, all is written.
    """
    job.change = grouped
    adaptive = "spark.sql.adaptive."
    fine = {
        f"{adaptive}coalescePartitions.parallelismFirst": "false",
        f"{adaptive}coalescePartitions.minPartitionSize": "1",
        f"{adaptive}advisoryPartitionSizeInBytes": "1",
    }
    coarse = {**fine, f"{adaptive}advisoryPartitionSizeInBytes": "1g"}
    seen = grouped(job.spark.range(0, ROWS, 1, TASKS)).repartition(8, "id")
    places = seen.select("id", F.spark_partition_id().alias("place")).collect()
    last = max(row.id for row in places if row.place == 7)

    def write() -> None:
        job.rows(last).write.parquet(str(job.target))

    with setting(job.spark, **{"spark.sql.shuffle.partitions": "8", **fine}):
        job.cut_off(write)
    with (
        caplog.at_level(logging.INFO, "airflow_provider"),
        setting(job.spark, **{"spark.sql.shuffle.partitions": str(partitions), **coarse}),
    ):
        job.retry(write)
    assert job.ids() == ONCE
    assert job.left_over == []
    computed = len((job.folder / "computed").read_text().split())
    assert (computed < ROWS) is kept
    assert ("its rows are now divided among tasks differently" in caplog.text) is not kept


CHANGES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "more rows": lambda df: df.union(df.sparkSession.range(ROWS, ROWS + 1, 1, 1)),
    "draws": lambda df: df.where(F.rand() >= 0),
    "sorted": lambda df: df.repartitionByRange(TASKS, F.abs("id")),
    "dealt out": lambda df: df.repartition(TASKS),
    "sums": lambda df: (
        df.groupBy("id").agg(F.sum(F.col("id") * 1.0).alias("sum")).repartition(TASKS, "sum").select("id")
    ),
    "equal in its order": lambda df: (
        df.withColumn("place", F.row_number().over(Window.orderBy(F.col("id") < 0)))
        .repartition(TASKS, "place")
        .select("id")
    ),
}


@pytest.mark.integration
@pytest.mark.parametrize("change", thinned(["draws", "sorted", "dealt out", "sums", "equal in its order"], 2))
def test_where_rows_may_be_elsewhere_all_is_written(job: Cut, change: str) -> None:
    """Drawn rows, bounds of a sort, which are drawn, rows that are dealt out in the order of their arrival, sums whose
    last digit depends on it, and rows that are spread by their place among equals.
    """
    job.change = CHANGES[change]
    taken = job.spark.range(0, ROWS, 1, TASKS)
    places = job.change(taken).select("id", F.spark_partition_id().alias("place")).collect()
    spread = len({row.place for row in places})
    assert spread == TASKS, "as many tasks as the picture waits for"
    last = next(row.id for row in places if row.place == TASKS - 1)

    def write() -> None:
        job.rows(last).write.parquet(str(job.target))

    job.cut_off(write)
    job.retry(write)
    assert len((job.folder / "computed").read_text().split()) == ROWS
    assert job.ids() == ONCE
    assert job.left_over == []


@pytest.mark.integration
def test_another_plan_is_another_write(job: Cut) -> None:
    """It writes all of its rows, and what was kept for the first one goes when the script has succeeded."""
    job.cut_off(lambda: job.rows().write.parquet(str(job.target)))
    job.change = CHANGES["more rows"]
    with job.attempt() as sinks:
        job.rows().write.parquet(str(job.target))
        sinks.unmet()
    assert job.computed == {0, 1, 2, 3, 4}
    assert job.ids() == Counter(range(ROWS + 1))
    assert job.left_over == []


def test_what_functions_have_read_for_is_not_kept_once_the_task_was_cleared(
    job: Cut, caplog: pytest.LogCaptureFixture
) -> None:
    """What a function reads by itself may be something else by then: all tasks run, and nothing of before is left."""
    job.cut_off(lambda: job.rows().write.parquet(str(job.target)))
    job.attempts.series = "cleared"
    with caplog.at_level(logging.INFO, "airflow_provider"):
        job.retry(lambda: job.rows().write.parquet(str(job.target)))
    assert job.computed == {0, 1, 2, 3}
    assert job.ids() == ONCE
    assert job.left_over == []
    assert "had committed and are kept" not in caplog.text


@pytest.mark.integration
def test_a_changed_source_is_another_write(job: Cut) -> None:
    """A row was added to a file that is read."""
    source = str(job.folder / "source")
    job.spark.range(0, ROWS, 1, TASKS).write.parquet(source)

    def write() -> None:
        job.rows(source=job.spark.read.parquet(source)).write.parquet(str(job.target))

    with setting(job.spark, **{"spark.sql.files.openCostInBytes": "1g"}):  # a task for each file
        job.cut_off(write)
        job.spark.range(ROWS, ROWS + 1, 1, 1).write.mode("append").parquet(source)
        job.retry(write)
    assert job.ids() == Counter(range(ROWS + 1))
    assert {0, 1, 2, 3} <= job.computed


@pytest.mark.integration
@pytest.mark.parametrize("which", thinned(["first", "retry", "both"], 3))
def test_where_tasks_move_their_files_all_is_written(job: Cut, which: str) -> None:
    """Hadoop's algorithm 2, in either attempt: of the first one files stand in the target, of a retry the job commits
    no folders.
    """
    hadoop = job.spark.sparkContext._jsc.hadoopConfiguration()
    before = hadoop.get(ALGORITHM)

    def write() -> None:
        job.rows().write.mode("append").parquet(str(job.target))

    try:
        hadoop.set(ALGORITHM, "1" if which == "retry" else "2")
        if which == "retry":
            job.cut_off(write)
        else:
            self_moved(job, write)
        hadoop.set(ALGORITHM, "1" if which == "first" else "2")
        job.retry(write)
    finally:
        hadoop.set(ALGORITHM, before)
    assert job.computed == {0, 1, 2, 3}
    assert job.ids() == ONCE
    assert job.left_over == []


def self_moved(job: Cut, write: Callable[[], object]) -> None:
    """Cut off where three tasks have moved their files into the target: the picture waits for folders."""
    for place in range(3):
        (job.target / "_temporary" / str(place) / f"task_{place}").mkdir(parents=True)
    job.cut_off(write)
    for place in range(3):
        shutil.rmtree(job.target / "_temporary" / str(place))


def only(paths: Iterator[Path]) -> Path:
    (path,) = paths
    return path


@pytest.mark.integration
@pytest.mark.parametrize("what", thinned(["a file is gone", "a strange file", "a file was moved", "it commits"], 2))
def test_a_folder_that_is_not_whole_is_not_kept(job: Cut, what: str) -> None:
    """A file was removed from a task's folder, or moved into place by a job that had begun to commit; or something else
    lies there. Rows are neither missing nor there twice.
    """

    def write() -> None:
        job.rows().write.partitionBy("half").parquet(str(job.target))

    job.cut_off(write)
    task = only(job.target.glob("_temporary/*/task_*_m_000001"))
    file = only((task / "half=0").glob("part-*"))
    if what == "a file is gone":
        file.unlink()
    elif what == "a file was moved":
        (job.target / "half=0").mkdir()
        file.rename(job.target / "half=0" / file.name)
    elif what == "it commits":
        (task.parent / "_temporary" / "committing").mkdir()
        file.unlink()
    else:
        (task / "half=0" / "data.parquet").write_bytes(file.read_bytes())
    job.retry(write)
    assert job.computed == ({1, 3} if what in ("a file is gone", "a strange file") else {0, 1, 2, 3})
    assert job.ids() == ONCE
    assert job.left_over == []


@pytest.mark.integration
def test_what_is_kept_outlives_a_failure(job: Cut) -> None:
    """A retry's own Spark job fails: Spark clears away what its tasks have committed, and the kept ones are there for
    the next attempt.
    """

    def write() -> None:
        job.rows().write.parquet(str(job.target))

    job.cut_off(write)
    (job.folder / "cut").write_text("3")
    with job.attempt(), pytest.raises(Exception, match="cut off"):
        write()
    (job.folder / "cut").unlink()
    assert job.computed == {3}
    shutil.rmtree(job.picture)
    job.retry(write)
    assert job.computed == {3}
    assert job.ids() == ONCE
    assert job.left_over == []


@pytest.mark.integration
def test_a_write_that_is_made_again_in_its_attempt_is_whole(job: Cut) -> None:
    """Late tasks of the try that has failed would be taken for those of the next one: it gets a name of its own."""

    def write() -> None:
        job.rows().write.parquet(str(job.target))

    job.cut_off(write)
    job.attempts.options = {"restart_strategy": "fixed-delay", "restart_strategy_fixed_delay_delay": "0 s"}
    (job.folder / "cut").write_text("3")

    with job.attempt():
        write()  # the first try leaves a picture, which is there already when the second one comes to it
    shutil.rmtree(job.picture)
    assert job.computed == {0, 1, 2, 3}
    assert job.ids() == ONCE
    assert job.left_over == []


@pytest.mark.integration
def test_two_writes_to_one_target(job: Cut) -> None:
    """The first one is there and stays, the second one goes on."""

    def write() -> None:
        job.spark.range(1000, 1010).select("id", (F.col("id") % 2).alias("half")).write.parquet(str(job.target))
        job.rows().write.mode("append").parquet(str(job.target))

    job.cut_off(write)
    job.retry(write)
    assert job.computed == {3}
    assert job.ids() == ONCE + Counter(range(1000, 1010))


@pytest.mark.integration
def test_a_fresh_start_keeps_nothing(job: Cut) -> None:
    """Also of what an attempt between has kept."""

    def write() -> None:
        job.rows().write.parquet(str(job.target))

    job.cut_off(write)
    with job.attempt():
        assert [name for name in job.left_over if name.startswith(".spark-recovery-")]
    job.attempts.fresh = "the user asked for it"
    job.retry(write)
    assert job.computed == {0, 1, 2, 3}
    assert job.ids() == ONCE
    assert job.left_over == []


@pytest.mark.integration
def test_a_write_that_is_made_by_sql(job: Cut) -> None:
    """``INSERT INTO`` a table of files, which is not partitioned."""
    job.spark.sql(f"CREATE TABLE kept_tasks (id BIGINT, half BIGINT) USING parquet LOCATION '{job.target}'")
    try:

        def write() -> None:
            job.rows().createOrReplaceTempView("rows_to_keep")
            job.spark.sql("INSERT INTO kept_tasks SELECT * FROM rows_to_keep")

        job.cut_off(write)
        job.retry(write)
        assert job.computed == {3}
        assert job.spark.table("kept_tasks").count() == ROWS
    finally:
        job.spark.sql("DROP TABLE kept_tasks")
    assert job.ids() == ONCE
