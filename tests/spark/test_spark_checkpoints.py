"""Spark's own ``df.checkpoint()`` in a retry: what an earlier attempt has written is read, and never anything else."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from airflow_provider.core.events import CHECKPOINT
from airflow_provider.core.faults import AFTER_CHECKPOINT_RECORDED, AFTER_SPARK_CHECKPOINT
from airflow_provider.spark.jvm.checkpoint_files import folder_behind
from tests.spark.attempts import Attempts
from tests.spark.auto.watched import auto_attempt, configured, tasks_run
from tests.spark.s3_driver import s3a_settings
from tests.support.driver import JOBS, DriverHarness
from tests.support.jars import SPARK
from tests.support.s3_gateway import S3Server
from tests.support.sparks import spark_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider.spark.context import RecoveryContext

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def checkpoints(spark: SparkSession, tmp_path: Path, attempts: Attempts) -> Iterator[Path]:
    """The checkpoint directory; attempts are in auto mode. What a test has cached is gone after it."""
    folder = tmp_path / "checkpoints"
    spark.sparkContext.setCheckpointDir(str(folder))
    attempts.options = {"recovery_points": "auto"}
    yield folder
    spark.catalog.clearCache()


def totals(spark: SparkSession, orders: Path) -> DataFrame:
    from pyspark.sql import functions as F

    return spark.read.parquet(str(orders)).groupBy("customer").agg(F.sum("amount").alias("total"))


def recorded(context: RecoveryContext) -> list[dict[str, Any]]:
    return [state for name, state in context.master.graph.coordinators.items() if name.startswith(CHECKPOINT)]


def checkpointed(
    attempts: Attempts, spark: SparkSession, frame: Callable[[], DataFrame], **how: bool
) -> tuple[DataFrame, int]:
    """The checkpoint that an attempt makes of a frame, and how many tasks it ran for it."""
    made: list[DataFrame] = []
    with attempts.script():
        tasks = tasks_run(spark, lambda: made.append(frame().checkpoint(**how)))
    return made[0], tasks


def test_a_retry_reads_what_an_earlier_attempt_has_written(
    spark: SparkSession, orders: Path, attempts: Attempts
) -> None:
    """No task runs; rows, their order, partitions, column identities and the plan above are those of the first one."""
    from pyspark.sql import functions as F

    first, ran = checkpointed(attempts, spark, lambda: totals(spark, orders))
    df = totals(spark, orders)
    second, again = checkpointed(attempts, spark, lambda: df)
    assert ran > 0
    assert again == 0
    assert folder_behind(second) == folder_behind(first)
    assert second.rdd.glom().collect() == first.rdd.glom().collect()
    assert second.schema == first.schema
    assert second.where(df["total"] > 100).count() == first.where(F.col("total") > 100).count() > 0
    joined = [one.join(one.select("customer"), "customer") for one in (first, second)]
    assert [one._jdf.queryExecution().stringWithStats() for one in joined]
    assert len({str(one._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()) for one in joined}) == 1


def test_a_loop_goes_on_where_it_was(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """Each round reads the checkpoint of the round before; only those that no attempt has made run."""
    from pyspark.sql import functions as F

    read = totals(spark, orders)

    def rounds(count: int) -> DataFrame:
        ranks = read
        for number in range(count):
            halves = ranks.groupBy((F.col("customer") % (100 - number)).alias("customer"))
            ranks = halves.agg(F.max("total").alias("total")).checkpoint()
        return ranks

    with attempts.script():
        rounds(2)
    made: list[DataFrame] = []
    with attempts.script() as context:
        assert tasks_run(spark, lambda: rounds(2)) == 0
        assert len(recorded(context)) == 2
        assert tasks_run(spark, lambda: made.append(rounds(3))) > 0
    assert sorted(made[0].collect()) == sorted(rounds(3).collect())


def test_a_shuffle_above_a_checkpoint_is_kept(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """It is found again if the retry reads the same files; if the checkpoint had to be made anew, it runs again."""

    def above() -> DataFrame:
        return totals(spark, orders).checkpoint().groupBy("total").count()

    with auto_attempt(attempts, spark) as first:
        df = above()
        rows = sorted(df.collect())
        assert first.keep(df) == ["shuffle(total)"]
    with auto_attempt(attempts, spark) as second:
        assert sorted(above().collect()) == rows
        assert list(second.put_back()) == ["shuffle(total)"]
        (state,) = recorded(second.context)
    shutil.rmtree(f"{spark.sparkContext._jsc.sc().getCheckpointDir().get()}/../{state['folder']}".removeprefix("file:"))
    with auto_attempt(attempts, spark) as third:
        assert sorted(above().collect()) == rows
        assert third.put_back() == {}


def test_without_adaptive_execution_it_is_divided_as_its_plan_says(
    spark: SparkSession, orders: Path, attempts: Attempts
) -> None:
    """What is joined by the same key needs no shuffle, as in the first attempt; with another number of shuffle
    partitions the checkpoint is made anew.
    """
    read = totals(spark, orders)
    with configured(spark, {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "3"}):
        first, _ = checkpointed(attempts, spark, lambda: read.select("*"))
        second, again = checkpointed(attempts, spark, lambda: read.select("*"))
        assert again == 0
        for made in (first, second):
            plan = made.groupBy("customer").count()._jdf.queryExecution().executedPlan().toString()
            assert "Exchange" not in plan
        with configured(spark, {"spark.sql.shuffle.partitions": "5"}):
            third, again = checkpointed(attempts, spark, lambda: read.select("*"))
        assert again > 0
        assert sorted(third.collect()) == sorted(second.collect())


LOST: dict[str, Callable[[Path], object]] = {
    "folder": shutil.rmtree,
    "last file": lambda folder: sorted(folder.glob("part-*"))[-1].unlink(),
    "first file": lambda folder: (folder / "part-00000").unlink(),
    "written again": lambda folder: os.utime(folder / "part-00000", (1, 1)),
    "cut": lambda folder: (folder / "part-00000").write_bytes((folder / "part-00000").read_bytes()[:-1]),
}


@pytest.mark.parametrize("lost", LOST)
def test_files_that_are_not_as_they_were_are_not_read(
    spark: SparkSession, orders: Path, attempts: Attempts, checkpoints: Path, lost: str
) -> None:
    """The checkpoint is made anew, and the next attempt reads that one."""
    read = totals(spark, orders)
    first, _ = checkpointed(attempts, spark, lambda: read)
    rows = sorted(first.collect())
    (folder,) = checkpoints.glob(f"*/{folder_behind(first).partition('/')[2]}")
    LOST[lost](folder)
    second, again = checkpointed(attempts, spark, lambda: read)
    assert again > 0
    assert sorted(second.collect()) == rows
    third, again = checkpointed(attempts, spark, lambda: read)
    assert again == 0
    assert sorted(third.collect()) == rows


def drawn(df: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return df.withColumn("draw", F.rand())


def chosen_for_all(df: DataFrame) -> DataFrame:
    """The script's other queries read the same choice."""
    return df.dropDuplicates(["total"]).cache()


def timed(df: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return df.withColumn("at", F.current_timestamp())


def observed(df: DataFrame) -> DataFrame:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    return df.observe(Observation("rows"), F.count(F.lit(1)))


@pytest.mark.parametrize("vary", [drawn, chosen_for_all, timed, observed], ids=lambda vary: vary.__name__)
def test_a_plan_whose_rows_may_be_others_is_checkpointed_again(
    spark: SparkSession, orders: Path, attempts: Attempts, vary: Callable[[DataFrame], DataFrame]
) -> None:
    """The script may use the frame beside its checkpoint, or wait for what the query says."""
    read = totals(spark, orders)
    checkpointed(attempts, spark, lambda: vary(read))
    _, again = checkpointed(attempts, spark, lambda: vary(read))
    assert again > 0


def test_what_each_query_chooses_is_kept_as_it_was_chosen(
    spark: SparkSession, orders: Path, attempts: Attempts
) -> None:
    """Plain Spark may take other rows even in the next query over the same frame."""
    read = totals(spark, orders).dropDuplicates(["total"]).limit(20)
    first, _ = checkpointed(attempts, spark, lambda: read)
    second, again = checkpointed(attempts, spark, lambda: read)
    assert again == 0
    assert second.collect() == first.collect()


def test_a_changed_input_is_checkpointed_again(
    spark: SparkSession, orders: Path, attempts: Attempts, tmp_path: Path
) -> None:
    """As is the same plan over files that were written again, and another plan."""
    folder = tmp_path / "orders"
    shutil.copytree(orders, folder)
    checkpointed(attempts, spark, lambda: totals(spark, folder))
    read = totals(spark, folder)
    assert checkpointed(attempts, spark, lambda: read.where("total > 10"))[1] > 0
    assert checkpointed(attempts, spark, lambda: read)[1] == 0
    os.utime(next(folder.glob("*.parquet")), (2, 2))
    read = totals(spark, folder)
    assert checkpointed(attempts, spark, lambda: read)[1] > 0


@pytest.mark.parametrize("how", ["lazy", "local", "named points", "disabled", "cleaned", "elsewhere"])
def test_what_each_attempt_checkpoints(
    spark: SparkSession, orders: Path, attempts: Attempts, tmp_path: Path, how: str
) -> None:
    """Lazy and local checkpoints, those without auto mode, those that Spark cleans up, and those in another directory
    are Spark's own in each attempt.
    """
    read, conf = totals(spark, orders), spark.sparkContext._jsc.sc().conf()
    attempts.options |= {"named points": {"recovery_points": "explicit"}, "disabled": {"enabled": "false"}}.get(how, {})
    make: dict[str, Callable[[], DataFrame]] = {
        "lazy": lambda: read.checkpoint(eager=False),
        "local": read.localCheckpoint,
    }
    rows = sorted(read.collect())
    try:
        if how == "cleaned":
            conf.set("spark.cleaner.referenceTracking.cleanCheckpoints", "true")
        for attempt in range(2):
            if how == "elsewhere":
                spark.sparkContext.setCheckpointDir(str(tmp_path / f"of-{attempt}"))
            with attempts.script():
                made = make.get(how, read.checkpoint)()
                assert tasks_run(spark, lambda: make.get(how, read.checkpoint)().count()) > 1
                assert sorted(made.collect()) == rows
    finally:
        conf.remove("spark.cleaner.referenceTracking.cleanCheckpoints")


def test_an_attempt_that_reuses_nothing_makes_it_anew(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """The next one reads that."""
    read = totals(spark, orders)
    first, _ = checkpointed(attempts, spark, lambda: read)
    attempts.fresh = "somebody has asked for it"
    second, again = checkpointed(attempts, spark, lambda: read)
    assert again > 0
    attempts.fresh = ""
    third, again = checkpointed(attempts, spark, lambda: read)
    assert again == 0
    assert folder_behind(third) == folder_behind(second) != folder_behind(first)


@pytest.mark.parametrize("folder", ["../../elsewhere", "", "0/rdd-1", "/tmp", None])
def test_a_record_that_names_another_folder_is_not_followed(
    spark: SparkSession, orders: Path, attempts: Attempts, folder: object
) -> None:
    """Whoever can write to the event store cannot make a driver read rows from elsewhere."""
    read = totals(spark, orders)
    checkpointed(attempts, spark, lambda: read)
    with attempts.script() as context:
        ((name, state),) = (
            pair for pair in context.master.graph.coordinators.items() if pair[0].startswith(CHECKPOINT)
        )
        context.master.remember(name, {**state, "folder": folder})
    made, again = checkpointed(attempts, spark, lambda: read)
    assert again > 0
    assert sorted(made.collect()) == sorted(read.collect())


def test_each_round_of_a_function_is_its_own(
    spark: SparkSession, orders: Path, attempts: Attempts, tmp_path: Path
) -> None:
    """A function may give other rows each time that the script calls it, with the same plan."""
    from pyspark.sql import functions as F

    said = str(tmp_path / "said")

    @F.udf("string")
    def read_out(customer: int) -> str:
        return f"{customer} {Path(said).read_text()}"

    df = spark.range(3).select(read_out("id").alias("text"))

    def texts(*words: str) -> list[list[str]]:
        found = []
        with attempts.script():
            for word in words:
                Path(said).write_text(word)
                found.append([row.text for row in df.checkpoint().collect()])
        return found

    assert texts("a", "b") == [["0 a", "1 a", "2 a"], ["0 b", "1 b", "2 b"]]
    assert texts("x", "y", "z") == [["0 a", "1 a", "2 a"], ["0 b", "1 b", "2 b"], ["0 z", "1 z", "2 z"]]


def test_a_checkpoint_that_failed_does_not_count(
    spark: SparkSession, orders: Path, attempts: Attempts, tmp_path: Path
) -> None:
    """A script that tries again by itself finds the same checkpoint in a retry that does not fail."""
    from pyspark.sql import functions as F

    switch = str(tmp_path / "switch")

    @F.udf("long")
    def failing(number: int) -> int:
        if not Path(switch).exists():
            raise ValueError("not now")
        return number

    attempts.options |= {"restart_strategy": "none"}
    df = spark.range(3).select(failing("id").alias("id"))
    with attempts.script():
        with pytest.raises(Exception, match="not now"):
            df.checkpoint()
        Path(switch).touch()
        df.checkpoint()
    assert checkpointed(attempts, spark, lambda: df)[1] == 0


class Rounds:
    """Attempts at ``jobs/rounds.py``, of five rounds behind a checkpoint of the links."""

    def __init__(self, driver: DriverHarness, checkpoints: str) -> None:
        self.driver, self.checkpoints, self.folder = driver, checkpoints, driver.folder
        self.options = {"recovery-points": "auto", "overhead-budget": "1e6"}

    def run(self, fault: str = "") -> list[tuple[str, str]]:
        """An attempt; the checkpoints that it read, each with the attempt that wrote it."""
        arguments = (self.checkpoints, str(self.folder / "out"), "5")
        ended = self.driver.run("rounds.py", *arguments, options=self.options, fault=fault)
        assert ended.code == (-signal.SIGKILL if fault else 0), ended.log
        return re.findall(r"df\.checkpoint\(\) (\d): already written by attempt (\d)", ended.log)

    def plain(self) -> None:
        """The same, by plain Spark."""
        script, out = str(JOBS / "rounds.py"), str(self.folder / "plain")
        subprocess.run(
            [self.driver.python, script, str(self.folder / "plain-checkpoints"), out, "5"],
            env=self.driver.env(),
            cwd=self.folder,
            check=True,
            timeout=120,
        )

    def rows(self, out: str) -> list[tuple[int, ...]]:
        """What is written, in order."""
        columns = {"ranks": ["page", "rank"], "links": ["target", "count"]}
        tables = [pq.read_table(self.folder / out / name, columns=read) for name, read in columns.items()]
        return sorted(tuple(row.values()) for table in tables for row in table.to_pylist())

    def kept_shuffles(self) -> int:
        """How many shuffles are in the store, whole or not."""
        return sum("shuffle" in vertex for vertex in self.driver.store.survivors())


@pytest.mark.process
@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_killed_loop_goes_on_round_by_round(tmp_path: Path) -> None:
    """Drivers are killed as Spark has written a checkpoint, and as that is recorded; each attempt reads those recorded
    before, and makes the others. The rows are those of plain Spark. What is below a checkpoint stays in the store: the
    next attempt may run on another machine, without these files.
    """
    job = Rounds(DriverHarness(tmp_path, f"file://{tmp_path}/store"), str(tmp_path / "checkpoints"))
    assert job.run(f"{AFTER_CHECKPOINT_RECORDED}@3") == []
    assert job.kept_shuffles() > 0
    assert job.run(f"{AFTER_SPARK_CHECKPOINT}@2") == [("1", "1"), ("2", "1"), ("3", "1")]
    assert job.run() == [("1", "1"), ("2", "1"), ("3", "1"), ("4", "2")]
    job.plain()
    assert job.rows("out") == job.rows("plain")
    assert len(job.rows("out")) == 800


@pytest.mark.process
@pytest.mark.walk
@pytest.mark.timeout(900)
def test_a_killed_loop_goes_on_from_checkpoints_in_a_bucket(tmp_path: Path, s3_gateway: S3Server) -> None:
    """With Spark 3.5 and ``s3a://``. Shuffles below a checkpoint are not needed any more, and go."""
    s3_gateway.create_bucket("rounds")
    driver = DriverHarness(tmp_path, f"file://{tmp_path}/store", python=spark_python(SPARK))
    driver.environment, driver.settings = s3_gateway.environment, s3a_settings(s3_gateway)
    job = Rounds(driver, "s3a://rounds/checkpoints")
    assert job.run(f"{AFTER_CHECKPOINT_RECORDED}@3") == []
    assert job.run(f"{AFTER_CHECKPOINT_RECORDED}@2") == [("1", "1"), ("2", "1"), ("3", "1")]
    assert job.run() == [("1", "1"), ("2", "1"), ("3", "1"), ("4", "2"), ("5", "2")]
    assert job.kept_shuffles() == 0
    job.plain()
    assert job.rows("out") == job.rows("plain")
