"""An action whose Spark job fails is restarted inside the application, if nothing of it has come to anybody."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from airflow_provider.core.committed_output import doubts
from airflow_provider.core.unfinished_write import UnfinishedWrite
from airflow_provider.spark import checkpoint
from airflow_provider.spark.jvm.commit_gate import Watched
from tests.spark.attempts import Attempts
from tests.spark.failing_queries import QUICK, ROWS, FailingQuery, forget_accumulators, hundred, restarts, rows
from tests.spark.failing_tasks import Task, ids, stored
from tests.support.parameters import each_value, thinned
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    return Attempts(tmp_path / "store", dict(QUICK))


@pytest.fixture(autouse=True)
def own_accumulators() -> Iterator[None]:
    """Those of other tests in this process are not this script's."""
    forget_accumulators()
    yield
    forget_accumulators()


@pytest.fixture
def query(tmp_path: Path) -> FailingQuery:
    return FailingQuery(tmp_path / "runs")


ACTIONS: dict[str, Callable[[DataFrame], Any]] = {
    "collect": rows,
    "count": lambda df: df.count(),
    "toPandas": lambda df: sorted(map(tuple, df.toPandas().to_numpy().tolist())),  # type: ignore[attr-defined]
    "take": lambda df: sorted(map(tuple, df.take(10))),
    "tail": lambda df: sorted(map(tuple, df.tail(10))),
    "first": lambda df: tuple(df.orderBy("key").first() or ()),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("action", thinned(ACTIONS, 2))
def test_an_action_that_fails_by_chance_is_restarted(
    spark: SparkSession, attempts: Attempts, query: FailingQuery, action: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its script gets the rows, the log says what has happened, and the attempt counts one restart."""
    df = query.fails(1).of(hundred(spark))
    with caplog.at_level(logging.INFO, "airflow_provider"), attempts.script() as context:
        assert ACTIONS[action](df) == {"count": 5, "first": ROWS[0]}.get(action, ROWS)
        assert restarts(context) == 1
        memory = context.master.coordinator("restart-strategy")
        assert memory is not None
        assert memory["failures"] == 1
    assert query.ran("reduce") == {0: 2}
    (line,) = [record.getMessage() for record in caplog.records if "failed: " in record.getMessage()]
    assert re.search(r"RuntimeError: by chance\. Restarting (co|tail)", line)


def test_is_empty_is_restarted(spark: SparkSession, attempts: Attempts, tmp_path: Path) -> None:
    """Its query is Spark's own, and begins anew."""
    task = Task(tmp_path / "runs", "first", failures=1, fails_in=0)
    with attempts.script() as context:
        assert not task.apply(spark.range(0, 4, 1, 2), 1).isEmpty()
        assert restarts(context) == 1
    assert task.count()["0"] == 2


def test_show_prints_once(
    spark: SparkSession, attempts: Attempts, query: FailingQuery, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it has got when it runs again."""
    df = query.fails(1).of(hundred(spark)).where("key = 3")
    with attempts.script() as context:
        df.show()
        assert restarts(context) == 1
    assert capsys.readouterr().out == "+---+-----+\n|key|count|\n+---+-----+\n|  3|   20|\n+---+-----+\n\n"
    assert query.ran("reduce") == {0: 2}


def test_a_frame_whose_query_has_failed_can_be_asked_again(
    spark: SparkSession, attempts: Attempts, query: FailingQuery
) -> None:
    """What is left of a failed adaptive plan does not fail the frame's later actions, nor what is made of it."""
    df = query.fails(1).of(hundred(spark))
    with attempts.script() as context:
        assert rows(df) == ROWS
        assert rows(df) == ROWS
        assert df.where(df["key"] == 3).join(df, "key").count() == 1
        assert restarts(context) == 1


def told(error: BaseException) -> str:
    """The first line of an error, without the numbers of stages and tasks."""
    return str(error).splitlines()[0].partition(" in stage ")[0]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("options", "tries"),
    [
        ({"restart_strategy": "none"}, 1),
        ({"restart_strategy": "fixed-delay"}, 2),
        ({"restart_strategy": "failure-rate", "restart_strategy_failure_rate_max_failures_per_interval": "2"}, 3),
        (
            {
                "restart_strategy": "exponential-delay",
                "restart_strategy_exponential_delay_attempts_before_reset_backoff": "3",
            },
            4,
        ),
    ],
    ids=lambda value: value["restart_strategy"] if isinstance(value, dict) else "",
)
def test_a_bug_fails_after_the_restarts_that_are_allowed_as_in_plain_spark(
    spark: SparkSession, attempts: Attempts, query: FailingQuery, options: dict[str, str], tries: int
) -> None:
    """The script gets the error that Spark has raised, and can go on behind it."""
    with pytest.raises(Exception, match="by chance") as plain:
        query.fails(100).of(hundred(spark)).collect()
    (query.folder / "reduce").unlink()
    attempts.options |= options
    df = query.of(hundred(spark))
    with attempts.script() as context:
        with pytest.raises(type(plain.value)) as raised:
            df.collect()
        assert told(raised.value) == told(plain.value)
        assert type(raised.value.__context__) is type(plain.value.__context__)
        assert raised.traceback[0].path == Path(__file__)
        assert query.ran("reduce") == {0: tries}
        assert hundred(spark).count() == 100
        assert restarts(context) == tries - 1


def test_the_count_is_that_of_the_whole_job(spark: SparkSession, attempts: Attempts, query: FailingQuery) -> None:
    """One restart is allowed over the life of the job: an attempt that has used it leaves none to the next one."""
    for tries in (2, 3):
        with attempts.script(), pytest.raises(Exception, match="by chance"):
            query.fails(100).of(hundred(spark)).collect()
        assert query.ran("reduce") == {0: tries}


def test_an_error_that_comes_back_whatever_happens_is_not_answered(
    spark: SparkSession, attempts: Attempts, query: FailingQuery
) -> None:
    """A name that is not there, in a function of a worker."""
    query = FailingQuery(query.folder, error="NameError: no such name")
    with attempts.script() as context:
        with pytest.raises(Exception, match="no such name"):
            query.fails(100).of(hundred(spark)).collect()
        assert restarts(context) == 0
    assert query.ran("reduce") == {0: 1}


NO_FAILURES_OF_JOBS: dict[str, Callable[[SparkSession, Path], Any]] = {
    "a plan that does not resolve": lambda spark, _: spark.range(1).select("nothing").collect(),
    "a wrong argument": lambda spark, _: spark.range(1).tail("x"),  # type: ignore[arg-type]
    "a constant": lambda spark, _: spark.range(1).select(F.raise_error(F.lit("on the driver"))).limit(0).collect(),
    "a folder that is there": lambda spark, folder: spark.range(1).write.parquet(str(folder)),
}


@pytest.mark.parametrize("what", NO_FAILURES_OF_JOBS)
def test_what_fails_before_a_job_runs_is_the_scripts(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, what: str
) -> None:
    """No failure is counted."""
    with attempts.script() as context:
        with suppress(Exception):  # whether and how it fails is Spark's matter
            NO_FAILURES_OF_JOBS[what](spark, tmp_path)
        assert context.master.coordinator("restart-strategy") is None


def test_a_job_that_the_script_cancels_is_not_restarted(
    spark: SparkSession, attempts: Attempts, tmp_path: Path
) -> None:
    """It has what it wanted."""
    begun = tmp_path / "begun"
    path = str(begun)

    def wait(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import time

        Path(path).touch()
        yield from frames
        time.sleep(600)

    def run() -> None:
        spark.sparkContext.setJobGroup("mine", "mine", interruptOnCancel=True)
        spark.range(0, 1, 1, 1).mapInPandas(wait, "id long").collect()

    with attempts.script() as context:
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(run)
            wait_until(begun.exists, "its task runs")
            spark.sparkContext.cancelJobGroup("mine")
            with pytest.raises(Exception, match="cancelled"):
                running.result(timeout=60)
        assert context.master.coordinator("restart-strategy") is None


@pytest.mark.integration
def test_what_gives_more_than_rows_is_not_restarted(
    spark: SparkSession, attempts: Attempts, query: FailingQuery, caplog: pytest.LogCaptureFixture
) -> None:
    """Observed rows, accumulators, rows that the script has got already, functions that run for what they do."""
    from pyspark.sql import Observation

    df = query.of(hundred(spark))
    with caplog.at_level(logging.INFO, "airflow_provider"), attempts.script() as context:
        query.fails(1)
        with pytest.raises(Exception, match="by chance"):
            df.observe(Observation("seen"), F.count("*")).collect()
        assert "collect failed, and is not run again: its rows are observed" in caplog.text
        query.fails(1)
        with pytest.raises(Exception, match="by chance"):
            query.of(hundred(spark)).foreach(lambda _: None)
        query.fails(1)
        spark.sparkContext.accumulator(0)
        with pytest.raises(Exception, match="by chance"):
            query.of(hundred(spark)).collect()
        assert "its functions may have added to accumulators" in caplog.text
        assert context.master.coordinator("restart-strategy") is None
        assert spark.range(3).count() == 3


def test_rows_that_the_script_has_got_are_not_computed_again(
    spark: SparkSession, attempts: Attempts, tmp_path: Path
) -> None:
    """``toLocalIterator`` fails at the partition that fails, behind the rows of those before it."""
    task = Task(tmp_path / "runs", "rows", failures=1, fails_in=1)
    with attempts.script() as context:
        left = task.apply(spark.range(0, 4, 1, 2), 1).toLocalIterator()
        with pytest.raises(Exception, match="by chance"):
            list(left)
        assert restarts(context) == 0
    assert task.count()["1"] == 1


def test_actions_of_several_threads_fail_at_once(spark: SparkSession, attempts: Attempts, tmp_path: Path) -> None:
    """Each is restarted by itself, and each failure counts."""
    attempts.options["restart_strategy_fixed_delay_attempts"] = "3"
    queries = [FailingQuery(tmp_path / name).fails(1) for name in "abc"]
    barrier = threading.Barrier(3)

    def run(query: FailingQuery) -> list[tuple[int, int]]:
        df = query.of(hundred(spark))
        barrier.wait()
        return rows(df)

    with attempts.script() as context:
        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(run, queries)) == [ROWS] * 3
        assert restarts(context) == 3
    assert [query.ran("reduce") for query in queries] == [{0: 2}] * 3


@pytest.mark.few(1)
@pytest.mark.parametrize("action", ["collect", "count", "write"])
def test_a_lost_partition_that_an_action_reads_is_computed_again_by_its_own_vertex(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, action: str
) -> None:
    """It alone; then the action runs, and what the script still holds reads the new one, without another failure."""
    task, out = Task(tmp_path / "runs", "upper"), str(tmp_path / "out")
    with attempts.script() as context:
        upper = checkpoint(task.apply(spark.range(0, 40, 1, 4), 2), "upper")
        below = upper.where("id >= 0")
        stored(context, "upper")[2].unlink()
        if action == "collect":
            assert ids(below) == list(range(0, 80, 2))
        elif action == "count":
            assert below.count() == 40
        else:
            below.write.mode("append").parquet(out)
            assert ids(spark.read.parquet(out)) == list(range(0, 80, 2))
        assert task.count() == {"0": 1, "1": 1, "2": 2, "3": 1}
        assert ids(upper) == ids(upper.where("id < 100")) == list(range(0, 80, 2))
        upper.write.parquet(f"{out}-2")
        assert restarts(context) == 1


def test_an_action_over_a_lost_incarnation_is_not_restarted(
    spark: SparkSession, attempts: Attempts, query: FailingQuery
) -> None:
    """What was derived from it may have reached the script; a query over what draws anew is restarted."""
    with attempts.script() as context:
        noise = checkpoint(spark.range(0, 40, 1, 4).selectExpr("id", "rand() AS r"), "noise")
        drawn = query.fails(1).of(hundred(spark).withColumn("r", F.rand()))
        assert rows(drawn) == ROWS
        stored(context, "noise")[1].unlink()
        with pytest.raises(Exception, match="noise-"):
            noise.collect()
        assert restarts(context) == 1


def test_full_restarts_all_recovery_points_for_an_action(
    spark: SparkSession, attempts: Attempts, query: FailingQuery, tmp_path: Path
) -> None:
    """Not only what has failed."""
    attempts.options["failover_strategy"] = "full"
    task = Task(tmp_path / "runs2", "upper")
    with attempts.script() as context:
        upper = checkpoint(task.apply(spark.range(0, 40, 1, 4), 2), "upper")
        old = stored(context, "upper")
        assert rows(query.fails(1).of(hundred(spark))) == ROWS
        assert set(task.count().values()) == {2}
        assert not set(old) & set(stored(context, "upper"))
        assert ids(upper) == list(range(0, 80, 2))


# -- writes ---------------------------------------------------------------------------------------------------------


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_")))


def left_pending(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.name.startswith(("_temporary", ".spark-staging"))]


def written(spark: SparkSession, folder: Path) -> list[int]:
    return sorted(row.id for row in spark.read.schema("id long").parquet(str(folder)).collect())


@pytest.mark.few(1)
@each_value(mode=["append", "error", "overwrite", "ignore"], algorithm=["1", "2"])
def test_a_write_that_fails_is_made_again(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, mode: str, algorithm: str
) -> None:
    """One task fails when others have committed: in the end there are the rows of one write, nothing else."""
    out = tmp_path / "out"
    before = [-1] if mode == "append" else []
    if mode in ("append", "overwrite"):
        spark.range(-1, 0, 1, 1).write.parquet(str(out))
    task = Task(tmp_path / "runs", "write", failures=1, fails_in=3)
    with attempts.script() as context:
        writer = task.apply(spark.range(0, 40, 1, 4), 1).write.mode(mode)
        writer.option("mapreduce.fileoutputcommitter.algorithm.version", algorithm).parquet(str(out))
        assert written(spark, out) == [*before, *range(40)]
        assert len(files(out)) == 4 + len(before)
        assert left_pending(out) == []
        assert restarts(context) == 1
        (state,) = [s for name, s in context.master.graph.coordinators.items() if name.startswith("sink/")]
        assert (state["status"], state["files"]) == ("WRITTEN", 4)
    assert task.count()["3"] == 2
    with attempts.script():
        task.apply(spark.range(0, 40, 1, 4), 1).write.mode(mode).option(
            "mapreduce.fileoutputcommitter.algorithm.version", algorithm
        ).parquet(str(out))
        assert written(spark, out) == [*before, *range(40)]
    assert task.count()["3"] == 2  # it was written already


@pytest.mark.few(1)
@pytest.mark.parametrize("how", thinned(["insertInto", "saveAsTable", "CREATE TABLE AS", "INSERT"], 2))
def test_a_table_whose_write_fails_is_written_again(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, how: str
) -> None:
    """By the writer and by SQL, into a new table and one that is there."""
    name = f"restarted_{how.replace(' ', '_').lower()}"
    task = Task(tmp_path / "runs", "write", failures=1, fails_in=3)
    try:
        with attempts.script() as context:
            df = task.apply(spark.range(0, 40, 1, 4), 1)
            df.createOrReplaceTempView("restarted_rows")
            if how in ("insertInto", "INSERT"):
                spark.sql(f"CREATE TABLE {name} (id BIGINT) USING parquet")
            if how == "saveAsTable":
                df.write.saveAsTable(name)
            elif how == "insertInto":
                df.write.insertInto(name)
            elif how == "INSERT":
                spark.sql(f"INSERT INTO {name} SELECT id FROM restarted_rows")
            else:
                spark.sql(f"CREATE TABLE {name} USING parquet AS SELECT id FROM restarted_rows")
            assert ids(spark.table(name)) == list(range(40))
            assert restarts(context) == 1
            assert doubts(context.master.graph.coordinators) == []
        assert task.count()["3"] == 2
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_a_write_that_was_about_to_commit_is_not_made_again(
    spark: SparkSession,
    attempts: Attempts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Something of it may be there: here a folder stands where Hadoop wants to leave its mark of success."""
    monkeypatch.setattr("airflow_provider.spark.points.restarted_actions.of_a_job", lambda _: True)
    (tmp_path / "out" / "_SUCCESS" / "x").mkdir(parents=True)
    with attempts.script() as context, caplog.at_level(logging.INFO, "airflow_provider"):
        with pytest.raises(Exception, match="_SUCCESS"):
            spark.range(0, 4, 1, 2).write.mode("append").parquet(str(tmp_path / "out"))
        assert "is not run again: it was about to commit" in caplog.text
        assert restarts(context) == 0


def test_a_write_that_nobody_watches_is_not_made_again(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Several inserts of one statement, and what goes to a place of which only its format knows."""
    task = Task(tmp_path / "runs", "write", failures=100)
    with attempts.script() as context, caplog.at_level(logging.INFO, "airflow_provider"):
        with pytest.raises(Exception, match="by chance"):
            task.apply(spark.range(0, 4, 1, 2), 1).write.format("noop").mode("append").save()
        assert restarts(context) == 0
    assert task.count()["1"] == 1


def test_a_task_that_commits_behind_its_failed_job_leaves_nothing(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file bears the name of the try that has failed, and goes when the write has returned."""
    out = tmp_path / "out"
    task = Task(tmp_path / "runs", "write", failures=1, fails_in=3)
    late: list[Path] = []

    def watching(context: Any) -> None:
        write = next(
            UnfinishedWrite.from_state(state)
            for name, state in context.master.graph.coordinators.items()
            if name.startswith("sink/")
        )
        assert write is not None
        if write.failed and not late:
            late.append(out / f"part-00009-{write.failed[0]}-c000.snappy.parquet")
            spark_range.rename(late[0])

    made = tmp_path / "made"
    spark.range(500, 501, 1, 1).write.parquet(str(made))
    (spark_range,) = made.glob("part-*.parquet")
    with attempts.script() as context:
        check = context.master.check_now
        monkeypatch.setattr(context.master, "check_now", lambda: (check(), out.exists() and watching(context)))
        task.apply(spark.range(0, 40, 1, 4), 1).write.mode("append").parquet(str(out))
        assert late
        assert not late[0].exists()
        assert written(spark, out) == list(range(40))


def test_what_has_asked_to_commit_is_known(spark: SparkSession, attempts: Attempts, tmp_path: Path) -> None:
    """Of a write that goes through, and of one that fails before."""
    with attempts.attempt() as context:
        gate = context.commit_gate(spark)
        assert gate is not None
        seen: list[Watched] = []
        for failures in (0, 100):
            out = tmp_path / f"out-{failures}"
            task = Task(tmp_path / f"runs-{failures}", "write", failures=failures)
            with gate.watching(f"file:{out}", lambda _: None, lambda: None) as watched:
                seen.append(watched)
                with suppress(PySparkException, Py4JJavaError):
                    task.apply(spark.range(0, 4, 1, 2), 1).write.parquet(str(out))
        assert [each.commits for each in seen] == [True, False]
