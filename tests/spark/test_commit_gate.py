"""The gate before file writes: nothing of a write is there before its name is known, or without leave."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from airflow_provider.core.committed_output import write_of
from airflow_provider.core.errors import Fenced, OwnershipUnconfirmed
from airflow_provider.spark.jvm.commit_gate import CommitGate
from tests.support.parameters import each_value
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PROTOCOL = "spark.sql.sources.commitProtocolClass"
PLAIN = "org.apache.spark.internal.io.HadoopMapReduceCommitProtocol"

WRITES: dict[str, Callable[[DataFrame, str], object]] = {
    "append": lambda df, target: df.write.mode("append").parquet(target),
    "error": lambda df, target: df.write.orc(target),
    "overwrite": lambda df, target: df.write.mode("overwrite").json(target),
    "partitions": lambda df, target: df.write.partitionBy("half").csv(target),
    "dynamic": lambda df, target: (
        df.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy("half").parquet(target)
    ),
    "table": lambda df, target: df.write.saveAsTable("gated", path=target),
    "buckets": lambda df, target: df.write.bucketBy(2, "id").saveAsTable("gated", path=target),
    "sql": lambda df, target: df.sparkSession.sql(
        f"CREATE TABLE gated USING parquet LOCATION '{target}' AS SELECT * FROM {{df}}", df=df
    ),
    "insert": lambda df, target: df.sparkSession.sql("INSERT INTO gated SELECT * FROM {df}", df=df),
    "insertInto": lambda df, target: df.write.insertInto("gated"),
    "directory": lambda df, target: df.sparkSession.sql(
        f"INSERT OVERWRITE DIRECTORY '{target}' USING parquet SELECT * FROM {{df}}", df=df
    ),
}


@pytest.fixture
def gate(spark: SparkSession) -> CommitGate:
    return CommitGate(spark, lambda: 3600.0)


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Behind a shuffle: Spark 4 runs the write in a thread of its own then."""
    return spark.range(0, 20, 1, 3).groupBy("id").count().select("id", (F.col("id") % 2).alias("half"))


@pytest.fixture
def plain_rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, 20, 1, 3).withColumn("half", F.col("id") % 2)


@pytest.fixture(autouse=True)
def without_table(spark: SparkSession) -> Any:
    yield
    spark.sql("DROP TABLE IF EXISTS gated")


def names_in(target: Path) -> set[str]:
    return {write_of(f"/{path.name}") for path in target.rglob("part-*")}


def pending(target: Path) -> list[Path]:
    return [path for path in target.rglob("*") if path.name.startswith(("_temporary", ".spark-staging", "part-"))]


@each_value(kind=[*WRITES], algorithm=["1", "2"])
def test_a_write_is_named_before_anything_of_it_is_there(
    spark: SparkSession, gate: CommitGate, rows: DataFrame, tmp_path: Path, kind: str, algorithm: str
) -> None:
    """By the name of its files, however it is made, and by both of Hadoop's algorithms, of which the second moves files
    before the job commits.
    """
    target = tmp_path / "out"
    if kind in ("insert", "insertInto"):
        spark.sql(f"CREATE TABLE gated (id BIGINT, half BIGINT) USING parquet LOCATION '{target}'")
    seen: list[tuple[str, list[Path]]] = []
    committing: list[list[Path]] = []
    hadoop, setting = spark.sparkContext._jsc.hadoopConfiguration(), "mapreduce.fileoutputcommitter.algorithm.version"
    own = hadoop.get(setting)
    hadoop.set(setting, algorithm)
    try:
        with gate.watching(
            f"file:{target}",
            lambda name: seen.append((name, pending(target))),
            lambda: committing.append(pending(target)),
        ):
            WRITES[kind](rows, str(target))
    finally:
        hadoop.set(setting, own)
    ((name, there),) = seen
    assert there == []
    assert len(committing) == 1
    assert committing[0], "its tasks have written"
    assert names_in(target) == {name}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "error", [Fenced("replaced"), OwnershipUnconfirmed("no answer")], ids=["fenced", "unconfirmed"]
)
@pytest.mark.parametrize("step", ["begin", "commit"])
def test_without_leave_nothing_is_written(
    gate: CommitGate, rows: DataFrame, plain_rows: DataFrame, tmp_path: Path, step: str, error: Exception
) -> None:
    """What forbids it is what the script gets; the rows that are there stay, and what another driver has pending in the
    same folder, and nothing else is left.
    """
    target = tmp_path / "out"
    rows.write.parquet(str(target))
    for theirs in (target / "_temporary" / "77" / "task_1", target / ".spark-staging-theirs"):
        theirs.mkdir(parents=True)
        (theirs / "part-0.parquet").touch()
    before = sorted(target.rglob("*"))

    def refuse(*_: object) -> None:
        raise error

    began, commits = (refuse, lambda: None) if step == "begin" else (lambda _: None, refuse)
    for more in (rows, plain_rows):
        with pytest.raises(type(error)) as caught, gate.watching(f"file:{target}", began, commits):
            more.write.mode("append").parquet(str(target))
        assert caught.value is error
    assert sorted(target.rglob("*")) == before


def test_a_write_that_fails_fails_as_before(
    spark: SparkSession, gate: CommitGate, rows: DataFrame, tmp_path: Path
) -> None:
    """With Spark's own error, and the thread that answers ends."""
    failing = rows.select(F.raise_error(F.lit("no such row")).alias("id"))
    with pytest.raises(Exception, match="no such row"), gate.watching("file:/out", lambda _: None, lambda: None):
        failing.write.parquet(str(tmp_path / "out"))
    with pytest.raises(ValueError, match="of the script"), gate.watching("file:/out", lambda _: None, lambda: None):
        raise ValueError("of the script")
    assert not [thread for thread in threading.enumerate() if thread.name == "commit-gate"]


@pytest.mark.parametrize("owned", [True, False], ids=["owned", "replaced"])
def test_a_write_that_fails_clears_away_what_it_may(
    spark: SparkSession, gate: CommitGate, tmp_path: Path, owned: bool
) -> None:
    """All that is pending in the folder, as in Spark; of a driver that was replaced only what is its own, since its
    successor may be at work there. The error is Spark's.
    """
    target = tmp_path / "out"
    left_by_another_driver(target, "77")

    def leave() -> None:
        if not owned:
            raise Fenced("replaced")

    with pytest.raises(Exception, match="no such row"), gate.watching(f"file:{target}", lambda _: None, leave):
        failing(spark).write.mode("append").parquet(str(target))
    left = {path.name for path in target.rglob("*")}
    assert left == (set() if owned else {"_temporary", "77", "task_1", "part-0.parquet"})


def failing(spark: SparkSession) -> DataFrame:
    """One task: another one would still run, and make its folder anew, while Spark clears away."""
    return spark.range(0, 3, 1, 1).select(F.raise_error(F.lit("no such row")).alias("id"))


def left_by_another_driver(target: Path, number: str) -> Path:
    """What the task of another application attempt has pending in a folder."""
    task = target / "_temporary" / number / "task_1"
    task.mkdir(parents=True)
    (task / "part-0.parquet").touch()
    return task / "part-0.parquet"


@pytest.mark.parametrize("algorithm", ["1", "2"])
@pytest.mark.parametrize("ends", ["commits", "fails"])
def test_what_a_successor_has_pending_stays(
    spark: SparkSession, gate: CommitGate, rows: DataFrame, tmp_path: Path, ends: str, algorithm: str
) -> None:
    """A driver may be paused at any moment behind its leave to commit, or to clear away. When it wakes, its successor
    may be at work in the same folder. What a dead driver had pending before goes, as in Spark.
    """
    target = tmp_path / "out"
    left_by_another_driver(target, "66")
    pending: list[Path] = []

    def leave() -> None:
        pending.append(left_by_another_driver(target, "77"))

    frame = rows if ends == "commits" else failing(spark)
    with (
        nullcontext() if ends == "commits" else pytest.raises(Exception, match="no such row"),
        gate.watching(f"file:{target}", lambda _: None, leave),
    ):
        (
            frame.write.mode("append")
            .option("mapreduce.fileoutputcommitter.algorithm.version", algorithm)
            .parquet(str(target))
        )
    assert pending[0].exists()
    assert [path.name for path in (target / "_temporary").iterdir()] == ["77"]
    assert (target / "_SUCCESS").exists() == (ends == "commits")
    if ends == "commits":
        assert spark.read.parquet(str(target)).count() == 20


@pytest.mark.few(1)
@pytest.mark.parametrize("lapsed", [0.0, 3600.0], ids=["just now", "long ago"])
@pytest.mark.parametrize("algorithm", ["1", "2"])
def test_tasks_commit_only_while_the_lease_lasts(
    spark: SparkSession, tmp_path: Path, algorithm: str, lapsed: float
) -> None:
    """Where that moves their files to their place, which is Hadoop's algorithm 2: they wait, or run again, until the
    lease is confirmed. Algorithm 1 waits with the job's commit.
    """
    target, marks = tmp_path / "out", tmp_path / "marks"
    marks.mkdir()
    left = [-lapsed]
    committing = threading.Event()
    confirmed = threading.Event()

    def commits() -> None:
        committing.set()
        assert confirmed.wait(60)

    def marked(value: int) -> int:
        (marks / str(value)).touch()
        return value

    def write() -> None:
        marking = F.udf(marked, "long")
        writer = spark.range(0, 4, 1, 2).select(marking("id").alias("id")).write
        with CommitGate(spark, lambda: left[0]).watching(f"file:{target}", lambda _: None, commits):
            writer.option("mapreduce.fileoutputcommitter.algorithm.version", algorithm).parquet(str(target))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        wait_until(lambda: len([*marks.iterdir()]) == 4, "the tasks to compute their rows")
        if algorithm == "1":
            assert committing.wait(60)
        assert not list(target.glob("part-*"))
        assert committing.is_set() == (algorithm == "1")
    finally:
        left[0] = 3600.0
        confirmed.set()
        thread.join(60)
    assert sorted(row.id for row in spark.read.parquet(str(target)).collect()) == [0, 1, 2, 3]


def test_writes_of_several_threads_are_told_apart(
    spark: SparkSession, gate: CommitGate, rows: DataFrame, tmp_path: Path
) -> None:
    """Each has its own name, and one that nobody watches asks nobody."""
    seen: dict[str, list[str]] = {"one": [], "two": []}

    def write(target: str) -> None:
        with gate.watching(f"file:{tmp_path / target}", seen[target].append, lambda: None):
            for _ in range(2):
                rows.write.mode("append").parquet(str(tmp_path / target))

    threads = [threading.Thread(target=write, args=(target,)) for target in seen]
    for thread in threads:
        thread.start()
    rows.write.parquet(str(tmp_path / "three"))
    for thread in threads:
        thread.join()
    for target, names in seen.items():
        assert names_in(tmp_path / target) == set(names)
        assert len(names) == 2


def test_a_statement_that_writes_to_two_folders(
    spark: SparkSession, gate: CommitGate, rows: DataFrame, tmp_path: Path
) -> None:
    """Each of its writes is known by its own folder."""
    seen: dict[str, list[str]] = {"one": [], "two": []}
    rows.createOrReplaceTempView("gated_rows")
    for table in seen:
        spark.sql(f"CREATE TABLE gated_{table} (id BIGINT) USING parquet LOCATION '{tmp_path / table}'")
    try:
        with (
            gate.watching(f"file:{tmp_path / 'one'}", seen["one"].append, lambda: None),
            gate.watching(f"file:{tmp_path / 'two'}", seen["two"].append, lambda: None),
        ):
            spark.sql("FROM gated_rows INSERT INTO gated_one SELECT id INSERT INTO gated_two SELECT half")
        for table, names in seen.items():
            assert names_in(tmp_path / table) == set(names)
    finally:
        for table in seen:
            spark.sql(f"DROP TABLE gated_{table}")


def test_no_setting_changes_and_any_protocol_is_watched(
    spark: SparkSession, gate: CommitGate, rows: DataFrame, tmp_path: Path
) -> None:
    """A session reads what it has set, or Spark's default, while a write runs and behind it."""

    def settings() -> list[Any]:
        return [*sorted(spark.sql("SET").collect()), spark.conf.get(PROTOCOL)]

    seen: list[str] = []
    during: list[Any] = []
    before = settings()
    with gate.watching(f"file:{tmp_path / 'one'}", seen.append, lambda: during.extend(settings())):
        rows.write.parquet(str(tmp_path / "one"))
    assert before == during == settings()
    spark.conf.set(PROTOCOL, PLAIN)
    try:
        with gate.watching(f"file:{tmp_path / 'two'}", seen.append, lambda: None):
            assert spark.conf.get(PROTOCOL) == PLAIN
            rows.write.parquet(str(tmp_path / "two"))
    finally:
        spark.conf.unset(PROTOCOL)
    assert [names_in(tmp_path / "one"), names_in(tmp_path / "two")] == [{name} for name in seen]


def test_no_thread_and_no_connection_is_left(spark: SparkSession, gate: CommitGate, tmp_path: Path) -> None:
    """A script may write thousands of times: neither Python nor the JVM keeps anything of a write."""

    def connections() -> int:
        names = [str(thread.getName()) for thread in spark._jvm.java.lang.Thread.getAllStackTraces().keySet()]  # type: ignore[union-attr]
        return sum(name.startswith("Thread-") for name in names)

    def write() -> None:
        with gate.watching(f"file:{tmp_path / 'written'}", lambda _: None, lambda: None):
            spark.range(1).write.mode("overwrite").parquet(str(tmp_path / "written"))

    write()
    before = connections()
    for _ in range(20):
        write()
    wait_until(lambda: connections() <= before + 1, "the connections to end")
    assert not [thread for thread in threading.enumerate() if thread.name == "commit-gate"]
