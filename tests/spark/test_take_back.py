"""Taking back what a killed write has left, from every state that it may leave on disk."""

from __future__ import annotations

import logging
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from airflow_provider.core.committed_output import doubts, listing_digest, write_of
from airflow_provider.core.errors import AccessDenied, OwnershipUnconfirmed
from airflow_provider.core.job import run_mark
from airflow_provider.core.partitions import FOLDER
from airflow_provider.core.unfinished_write import UnfinishedWrite
from airflow_provider.spark import checkpoint
from airflow_provider.spark.context import RecoveryContext
from airflow_provider.spark.interception import intercepted
from airflow_provider.spark.sinks.fence import confirmed
from airflow_provider.spark.sinks.once import SinksOnce
from airflow_provider.spark.sinks.take_back import OutputAttempt
from airflow_provider.storage.claims import Claims
from airflow_provider.storage.uris import open_store
from tests.spark.attempts import Attempts, dying, vertices
from tests.spark.auto.watched import configured
from tests.support.parameters import each_value
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

OWN, OTHER = str(uuid.uuid4()), str(uuid.uuid4())
NUMBER = 123456


def part(folder: Path, index: int, write: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"part-{index:05}-{write}-c000.csv"
    file.write_text("1\n")
    return file


def unfinished(target: Path, **changes: Any) -> UnfinishedWrite:
    known: dict[str, Any] = {"existed": True, "before": listing_digest([]), "mode": "append", **changes}
    return UnfinishedWrite(title=f"file:{target}", attempt=1, number=NUMBER, location=f"file:{target}", **known)


def left(target: Path) -> set[str]:
    return {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "out"


def die(attempts: Attempts, write: UnfinishedWrite) -> None:
    """An attempt that has begun a write and ends."""
    with attempts.attempt() as context:
        context.master.remember("sink/it", write.to_state())


@pytest.mark.parametrize("known", [(OWN,), ()], ids=["remembered", "seen in pending files"])
def test_killed_inside_the_job_commit(
    spark: SparkSession,
    attempts: Attempts,
    target: Path,
    known: tuple[str, ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two of four tasks' files were moved: those, the others and their folder go. What others have written, or are
    writing at the moment, stays.
    """
    part(target, 0, OWN), part(target / "day=1", 1, OWN)
    part(target / "_temporary" / str(NUMBER) / "task_2", 2, OWN)
    part(target / "_temporary" / str(NUMBER) / "task_3", 3, OWN)
    kept = {part(target, 0, OTHER), part(target / "day=1", 0, OTHER), part(target / "_temporary/0/task_1", 0, OTHER)}
    die(attempts, unfinished(target, writes=known))
    with caplog.at_level(logging.INFO, "airflow_provider"), attempts.writes() as (context, output):
        output.prepare(spark)
        assert left(target) == {str(file.relative_to(target)) for file in kept}
        assert context.master.coordinator("sink/it") == {
            "status": "TAKEN_BACK",
            "attempt": 2,
            "title": f"file:{target}",
            "unnamed": False,
            "reads": [],
        }
        output.prepare(spark)
    assert caplog.text.count("attempt 1 died while it wrote; 2 of its files and its pending tasks removed") == 1
    assert "WARNING" not in caplog.text


def test_a_target_that_was_not_there_goes(spark: SparkSession, attempts: Attempts, target: Path) -> None:
    """With Spark's mark of success and empty folders, so that a mode that wants nothing there passes."""
    part(target / "day=1", 0, OWN)
    (target / "_SUCCESS").touch()
    die(attempts, unfinished(target, existed=False, mode="error", writes=(OWN,)))
    with attempts.writes() as (_, output):
        output.prepare(spark)
        assert not target.exists()
        spark.range(5).write.csv(str(target))
    assert spark.read.csv(str(target)).count() == 5


@pytest.mark.parametrize("strange", ["data.csv", "_temporary/0/task_0/part-0", ".hidden", "day=1/_SUCCESS"])
def test_a_target_with_anything_else_stays(spark: SparkSession, attempts: Attempts, target: Path, strange: str) -> None:
    """A file of whomever, hidden or pending, and whatever is beside it."""
    (target / strange).parent.mkdir(parents=True)
    (target / strange).write_text("theirs")
    part(target, 0, OWN)
    die(attempts, unfinished(target, existed=False, writes=(OWN,)))
    with attempts.writes() as (_, output):
        output.prepare(spark)
    assert left(target) == {strange}


def test_an_overwrite_loses_what_is_pending_alone(spark: SparkSession, attempts: Attempts, target: Path) -> None:
    """What it has put in place is there until it is written again, for whoever reads it; its staging folder, that of
    a dynamic overwrite, goes, and no other's.
    """
    moved = part(target / "day=1", 0, OWN)
    part(target / f".spark-staging-{OWN}" / "day=2", 0, OWN)
    third = str(uuid.uuid4())
    part(target / f".spark-staging-{third}" / "_temporary" / str(NUMBER) / "task_0", 0, third)
    theirs = part(target / f".spark-staging-{OTHER}" / "day=2", 0, OTHER)
    die(attempts, unfinished(target, mode="overwrite", writes=(OWN,)))
    with attempts.writes() as (_, output):
        output.prepare(spark)
    assert left(target) == {str(file.relative_to(target)) for file in (moved, theirs)}


@pytest.mark.few(1)
@each_value(form=["parquet", "json"], parts={"flat": False, "partitioned": True})
def test_a_write_whose_end_was_not_recorded_is_taken_back(
    spark: SparkSession, attempts: Attempts, target: Path, form: str, parts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its rows are there once after the retry, beside what was there before and what others have appended since, equal
    files among that; so they are if the retry dies in the same way.
    """

    def write(rows: int = 20) -> None:
        df = spark.range(0, rows, 1, 3).withColumn("half", F.col("id") % 2)
        writer = df.write.mode("append").format(form)
        (writer.partitionBy("half") if parts else writer).save(str(target))

    write(30)
    for _ in range(2):
        with dying(), attempts.writes():
            write()
    write(40)
    write()
    with caplog.at_level(logging.INFO, "airflow_provider"), attempts.writes():
        write()
    assert spark.read.schema("id BIGINT, half BIGINT").format(form).load(str(target)).count() == 110
    assert re.search(r"attempt 2 died while it wrote; \d of its files removed before it is written again", caplog.text)
    assert "WARNING" not in caplog.text
    with caplog.at_level(logging.INFO, "airflow_provider"), attempts.writes():
        write()
    assert "already written by attempt 3, not written again" in caplog.text


@pytest.mark.parametrize("random", [False, True], ids=["", "random"])
def test_a_folder_that_a_killed_driver_has_made_does_not_refuse_the_retry(
    spark: SparkSession, attempts: Attempts, target: Path, random: bool
) -> None:
    """Spark's default mode refuses to write where something is."""

    def write() -> None:
        df = spark.range(20).withColumn("drawn", F.rand() if random else F.lit(0.5))
        df.write.parquet(str(target))

    with dying(), attempts.writes():
        write()
    with attempts.writes():
        write()
    assert spark.read.parquet(str(target)).count() == 20


def test_what_may_be_somebody_elses_stays(
    spark: SparkSession,
    attempts: Attempts,
    target: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where Spark has no place for the gate before its commits, a killed write has no name. What is there then stays,
    is written again, and a warning says so; it does not where nothing has come.
    """
    monkeypatch.setattr(RecoveryContext, "commit_gate", lambda *_: None)
    with dying(), attempts.writes():
        spark.range(5).write.mode("append").csv(str(target))
    for file in target.iterdir():
        file.unlink()
    with dying(), attempts.writes():
        spark.range(5).write.mode("append").csv(str(target))
    assert "WARNING" not in caplog.text
    with attempts.writes():
        spark.range(5).write.mode("append").csv(str(target))
    assert caplog.text.count("newer files there may or may not be its own") == 1
    assert spark.read.csv(str(target)).count() == 10


def test_a_committed_write_is_nobodys_leftover(spark: SparkSession, attempts: Attempts, target: Path) -> None:
    """A write whose commit is in the store is not removed, though another one that was killed saw its files."""
    with attempts.writes() as (context, _):
        spark.range(5).write.mode("append").csv(str(target))
        seen = write_of(f"/{next(target.glob('part-*.csv')).name}")
        context.master.remember("sink/it", unfinished(target, writes=(seen,)).to_state())
    with attempts.writes() as (_, output):
        output.prepare(spark)
    assert spark.read.csv(str(target)).count() == 5


OF_ONE_RUN = {
    "clock": lambda: F.current_timestamp(),
    "chance": lambda: F.rand(),
    "a moment": lambda: F.lit(datetime.now(UTC)),
    "a moment in words": lambda: F.lit(f"run of {datetime.now():%Y-%m-%d %H:%M:%S}"),  # noqa: DTZ005 - as users do
    "a UUID": lambda: F.lit(str(uuid.uuid4())),
}


@pytest.mark.few(2)
@each_value(mode=["append", "error", "ignore", "append by a script that looks"], mark=[*OF_ONE_RUN])
def test_rows_of_one_run_are_there_once(
    spark: SparkSession, attempts: Attempts, target: Path, mark: str, mode: str
) -> None:
    """Rows that are others in each attempt take the place of those of the attempt before, in all modes; one that adds
    what is newer than what is there, and finds all of it, adds nothing.
    """

    def script() -> None:
        looks = mode.endswith("looks") and target.exists()
        newest = spark.read.parquet(str(target)).agg(F.max("id")).first()[0] if looks else -1  # type: ignore[index]
        rows = spark.range(20).where(F.col("id") > newest).withColumn("mark", OF_ONE_RUN[mark]())
        rows.write.mode(mode.split()[0]).parquet(str(target))

    for _ in range(3):
        with attempts.writes() as (_, output):
            output.prepare(spark)
            script()
        assert sorted(row.id for row in spark.read.parquet(str(target)).collect()) == list(range(20))


@pytest.mark.few(1)
@each_value(parts=[(), ("part",)], reads=["read", "table", "SQL"])
def test_a_frame_that_was_made_before_is_read_without_what_is_taken_back(
    spark: SparkSession, attempts: Attempts, target: Path, parts: tuple[str, ...], reads: str
) -> None:
    """A script that looks behind its append at what was there before finds that, as without a kill."""
    name = "looked_at_before"
    rows = spark.range(20).select("id", (F.col("id") % 3).alias("part"), F.lit(0.5).alias("mark"))
    rows.where("id < 5").write.partitionBy(*parts).parquet(str(target))
    if not parts:
        spark.sql(f"CREATE TABLE {name} USING parquet LOCATION '{target}'")
    made: dict[str, Callable[[], DataFrame]] = {
        "read": lambda: spark.read.parquet(str(target)),
        "table": lambda: spark.table(name),
        "SQL": lambda: spark.sql(f"SELECT * FROM {name} WHERE mark > 0"),
    }
    try:
        for _ in range(3):
            with attempts.writes() as (_, output):
                output.prepare(spark)
                before = made["read" if parts else reads]()
                new = rows.where("id >= 5").withColumn("mark", F.rand())
                new.write.mode("append").partitionBy(*parts).parquet(str(target))
                assert sorted(row.id for row in before.collect()) == [0, 1, 2, 3, 4]
                assert spark.read.parquet(str(target)).count() == 20
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_what_others_have_added_stays(spark: SparkSession, attempts: Attempts, target: Path) -> None:
    """Beside rows that are taken back, those of other jobs, and of what is certain to be the same, stay."""
    spark.range(3).write.mode("append").parquet(str(target))

    def script() -> None:
        spark.range(5).withColumn("mark", F.rand()).select("id").write.mode("append").parquet(str(target))
        spark.range(7).write.mode("append").parquet(str(target))

    with attempts.writes():
        script()
    spark.range(11).write.mode("append").parquet(str(target))
    with attempts.writes() as (_, output):
        output.prepare(spark)
        script()
    assert spark.read.parquet(str(target)).count() == 3 + 5 + 7 + 11


def test_keys_of_a_function_meet(
    spark: SparkSession, attempts: Attempts, target: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two outputs of one cached frame have the same keys of a Python function, which nobody has marked, though the
    first attempt ended between them: the rows that it has added go, and both outputs are written by one attempt.
    """

    def script(outputs: str) -> None:
        frame = spark.range(20).withColumn("key", F.udf(lambda x: f"{x}-{uuid.uuid4()}", "string")("id")).cache()
        for output in outputs:
            frame.write.mode("append").parquet(f"{target}/{output}")
        frame.unpersist()

    with attempts.writes():
        script("a")
    with caplog.at_level(logging.INFO, "airflow_provider"), attempts.writes() as (_, output):
        output.prepare(spark)
        script("ab")
    first, second = (spark.read.parquet(f"{target}/{output}") for output in "ab")
    assert first.count() == second.count() == first.join(second, "key").count() == 20
    assert "is not deterministic: it reaches uuid.uuid4" in caplog.text


@pytest.mark.few(1)
@pytest.mark.parametrize("changed", [False, True])
def test_rows_of_a_write_that_is_not_made_again(
    spark: SparkSession, attempts: Attempts, target: Path, changed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can tell whether a changed script means its rows in the place of those that are there: a warning says that
    rows may be there twice, and report and page keep it. A script that comes to its writes in another order is
    understood.
    """
    for first, second in ((5, 7), (7, 6 if changed else 5)):
        with attempts.attempt() as context:
            sinks = SinksOnce(context, OutputAttempt(context.master))
            with intercepted(sinks.stages()):
                for rows in (first, second, 4):
                    spark.range(rows).write.mode("append").parquet(str(target))
                sinks.unmet()
            found = doubts(context.master.graph.coordinators)
    assert len(found) == caplog.text.count("Rows that both have made are there twice") == int(changed)
    assert spark.read.parquet(str(target)).count() == (22 if changed else 16)


def test_a_script_that_adds_what_is_missing_is_not_warned_of(
    spark: SparkSession, attempts: Attempts, target: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An anti join with what is there, as scripts add each row once, adds none in a retry: nothing is in doubt."""
    for _ in range(2):
        with attempts.attempt() as context:
            sinks = SinksOnce(context, OutputAttempt(context.master))
            with intercepted(sinks.stages()):
                for rows in (5, 8):
                    new = spark.range(rows)
                    if target.exists():
                        new = new.join(spark.read.parquet(str(target)), "id", "left_anti")
                    new.write.mode("append").parquet(str(target))
                sinks.unmet()
            assert not doubts(context.master.graph.coordinators)
    assert "there twice" not in caplog.text
    assert sorted(row.id for row in spark.read.parquet(str(target)).collect()) == list(range(8))


STATEMENTS = {
    "parameters": ("INSERT INTO one_of_two SELECT id, 'ü𝄞' FROM range(9) WHERE id < :most", {"most": 5}),
    "markers": ("INSERT INTO one_of_two SELECT id, s FROM VALUES (?, 'a'), (?, 'b') AS t(id, s)", [1, 2]),
    "two": (
        "FROM range(7) INSERT INTO one_of_two SELECT id, 'a' INSERT INTO two_of_two SELECT id, 'b' WHERE id < 3",
        None,
    ),
    "two of a common table": (
        "WITH seven AS (SELECT id FROM range(7)) "
        "FROM seven INSERT INTO one_of_two SELECT id, 'a' INSERT INTO two_of_two SELECT id, 'b' WHERE id < 3",
        None,
    ),
}


@pytest.mark.few(1)
@each_value(emptied={"": "", "one_of_two": "one_of_two", "both": "both"}, statement=[*STATEMENTS])
def test_statements_with_parameters_or_several_inserts(
    spark: SparkSession, attempts: Attempts, statement: str, emptied: str
) -> None:
    """Each insert happens once: of several, those run again whose rows are gone, and no others."""
    text, arguments = STATEMENTS[statement]

    def counts() -> list[int]:
        return [spark.table(name).count() for name in ("one_of_two", "two_of_two")]

    for name in ("one_of_two", "two_of_two"):
        spark.sql(f"CREATE TABLE {name} (id BIGINT, s STRING) USING parquet")
    try:
        with attempts.writes():
            spark.sql(text, arguments) if arguments else spark.sql(text)  # type: ignore[arg-type]
        first = counts()
        for name in ("one_of_two", "two_of_two"):
            if emptied in (name, "both"):
                spark.sql(f"TRUNCATE TABLE {name}")
        with attempts.writes():
            assert (spark.sql(text, arguments) if arguments else spark.sql(text)).collect() == []  # type: ignore[arg-type]
        assert counts() == first
        assert sum(first) > 0
    finally:
        for name in ("one_of_two", "two_of_two"):
            spark.sql(f"DROP TABLE {name}")


@pytest.mark.parametrize("restarts", ["none", "fixed-delay"])
def test_a_write_whose_neighbour_fails_is_written_again(
    spark: SparkSession,
    attempts: Attempts,
    target: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    restarts: str,
) -> None:
    """Spark removes what is pending of all writes to a folder when one of them fails. That one's error reaches the
    script, as in plain Spark, and a retry has the rows of both, once.
    """
    waits, goes = tmp_path / "waits", tmp_path / "goes"

    def slow(number: int) -> int:
        if number == 1 and not goes.exists():
            waits.touch()
            while not goes.exists():
                time.sleep(0.05)
        return number

    def failing(number: int) -> int:
        if not goes.exists():
            while not waits.exists():
                time.sleep(0.05)
            raise ValueError("for once")
        return number

    def write(function: Callable[[int], int], name: str) -> None:
        rows = spark.range(0, 2, 1, 2 if function is slow else 1).select(F.udf(function, "long")("id").alias("id"))
        rows.withColumn("name", F.lit(name)).write.mode("append").partitionBy("name").parquet(str(target))

    attempts.options = {**attempts.options, "restart_strategy": restarts}
    for number in range(2):
        with attempts.writes() as (_, output):
            output.prepare(spark)
            with ThreadPoolExecutor(1) as pool:
                beside = pool.submit(write, slow, "slow")
                wait_until(lambda: waits.exists(), "a task to wait")
                with nullcontext() if number else pytest.raises(Exception, match="for once"):
                    write(failing, "failing")
                goes.touch()
                beside.result()
    assert sorted(tuple(row) for row in spark.read.parquet(str(target)).collect()) == [
        (0, "failing"),
        (0, "slow"),
        (1, "failing"),
        (1, "slow"),
    ]
    assert caplog.text.count("1 of the 2 files that its tasks have written are gone") == 1


def test_a_statement_whose_end_is_no_statement(
    spark: SparkSession, attempts: Attempts, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Spark is not asked to read what follows the query: it would log an error."""
    spark.sql("CREATE TABLE sorted (id BIGINT) USING parquet")
    try:
        for _ in range(2):
            with attempts.writes() as (_, output):
                output.prepare(spark)
                spark.sql("INSERT INTO sorted SELECT id FROM range(9) WHERE id > :n ORDER BY id LIMIT 3", {"n": 1})
        assert "PARSE_SYNTAX_ERROR" not in capfd.readouterr().err + caplog.text
    finally:
        spark.sql("DROP TABLE sorted")


@pytest.mark.parametrize("format_", ["parquet", "PARQUET"])
def test_the_default_format_in_any_case(spark: SparkSession, attempts: Attempts, target: Path, format_: str) -> None:
    """Spark takes both."""
    with configured(spark, {"spark.sql.sources.default": format_}):
        for _ in range(2):
            with attempts.writes() as (_, output):
                output.prepare(spark)
                spark.range(3).write.mode("append").save(str(target))
    assert spark.read.parquet(str(target)).count() == 3


def test_a_table_keeps_its_rows_once(spark: SparkSession, attempts: Attempts) -> None:
    """Rows that the clock marks, added to a table by SQL and by ``insertInto``; partitions of it included."""
    spark.sql("CREATE TABLE marked (id BIGINT, mark TIMESTAMP, half BIGINT) USING parquet PARTITIONED BY (half)")
    try:
        for _ in range(3):
            with attempts.writes() as (_, output):
                output.prepare(spark)
                spark.sql("INSERT INTO marked SELECT id, current_timestamp(), id % 2 FROM range(10)")
                frame = spark.range(20).select("id", F.lit(datetime.now(UTC)), F.col("id") % 2)
                frame.write.insertInto("marked")
        assert spark.table("marked").count() == 30
    finally:
        spark.sql("DROP TABLE marked")


def _made_if_absent(spark: SparkSession) -> None:
    spark.sql("CREATE TABLE IF NOT EXISTS theirs USING parquet AS SELECT current_timestamp() AS at")


def _ignored(spark: SparkSession) -> None:
    spark.sql("SELECT current_timestamp() AS at").write.mode("ignore").saveAsTable("theirs")


def _refused(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="already exists"):
        spark.sql("SELECT current_timestamp() AS at").write.saveAsTable("theirs")


@pytest.mark.parametrize("write", [_made_if_absent, _ignored, _refused])
def test_a_table_that_was_there_stays(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, write: Callable[[SparkSession], None]
) -> None:
    """Of whatever format it is: a write that makes a table only if there is none has made none."""
    (tmp_path / "theirs").mkdir()
    spark.sql(f"CREATE TABLE theirs USING binaryFile LOCATION '{tmp_path}/theirs'")
    try:
        for _ in range(2):
            with attempts.writes() as (_, output):
                output.prepare(spark)
                assert spark.table("theirs").columns[0] == "path"
                write(spark)
        attempts.fresh = "resume=never"
        with attempts.writes() as (_, output):
            output.prepare(spark)
            assert spark.table("theirs").columns[0] == "path"
    finally:
        spark.sql("DROP TABLE theirs")


@pytest.mark.few(1)
@each_value(
    form=["CREATE", "CREATE with a location", "saveAsTable", "saveAsTable append"],
    killed=["behind its event", "before its event"],
)
def test_a_table_of_one_run_can_be_made_again(
    spark: SparkSession, attempts: Attempts, target: Path, form: str, killed: str
) -> None:
    """A table that an earlier attempt has made with rows of that run goes, so that Spark does not refuse to make it;
    one to which somebody has added since stays, whole where Spark would refuse to make it.
    """

    def script() -> None:
        if form.startswith("save"):
            writer = spark.range(9).withColumn("at", F.current_timestamp()).write
            (writer.mode("append") if form.endswith("append") else writer).saveAsTable("made_again")
            return
        where = f"LOCATION '{target}'" if "location" in form else ""
        spark.sql(f"CREATE TABLE made_again USING parquet {where} AS SELECT id, current_timestamp() at FROM range(9)")

    try:
        for _ in range(3):
            with dying() if killed == "before its event" else nullcontext(), attempts.writes() as (_, output):
                output.prepare(spark)
                script()
                assert spark.table("made_again").count() == 9
        spark.sql("INSERT INTO made_again VALUES (7, now())")
        with attempts.writes() as (_, output):
            output.prepare(spark)
            killed_append = form.endswith("append") and killed == "before its event"
            assert spark.table("made_again").count() == (1 if killed_append else 10)
    finally:
        spark.sql("DROP TABLE IF EXISTS made_again")


@pytest.mark.few(1)
@pytest.mark.parametrize("rows", ["the same", "others"])
def test_a_fresh_start_finds_no_rows_of_the_job(
    spark: SparkSession, attempts: Attempts, target: Path, rows: str
) -> None:
    """What an unfinished job has added goes when nothing of it may be reused; what a finished one has added stays."""

    def script() -> None:
        frame = spark.range(20).withColumn("mark", F.rand() if rows == "others" else F.lit(1.0))
        frame.write.mode("append").parquet(str(target))

    with attempts.writes():
        script()
    attempts.fresh = "somebody asked for it"
    with attempts.writes() as (context, output):
        output.prepare(spark)
        assert not target.exists()
        script()
        context.master.finished()
    with attempts.writes() as (_, output):
        output.prepare(spark)
        assert spark.read.parquet(str(target)).count() == 20


@pytest.mark.few(1)
@each_value(rows=["the same", "others", "a killed write's"], fresh={"told": "it was decided so", "not told": ""})
def test_rows_of_another_run_of_the_same_name_stay(
    spark: SparkSession, attempts: Attempts, target: Path, rows: str, fresh: str
) -> None:
    """Two deployments have a DAG and a run of one name in one event store: the second one neither removes what the
    first one has added nor takes it for its own, though the driver in between died before it had recorded its start.
    """

    def script() -> None:
        frame = spark.range(20).withColumn("mark", F.rand() if rows == "others" else F.lit(1.0))
        frame.write.mode("append").parquet(str(target))

    attempts.run = run_mark(datetime(2026, 1, 1, tzinfo=UTC), 0)
    with dying() if rows == "a killed write's" else nullcontext(), attempts.writes():
        script()
    attempts.run, attempts.fresh = run_mark(datetime(2026, 1, 2, tzinfo=UTC), 0), fresh
    request = attempts.request()
    Claims(open_store(request.event_store), request.job.prefix).claim(run=attempts.run)
    for _ in range(2):
        with attempts.writes() as (_, output):
            output.prepare(spark)
            script()
        assert spark.read.parquet(str(target)).count() == 40
        attempts.fresh = ""


def test_a_retry_of_whatever_kind_takes_back(spark: SparkSession, attempts: Attempts, target: Path) -> None:
    """Also one that starts afresh; with ``sinks=repeat`` the outputs are left to the user."""
    part(target, 0, OWN)
    die(attempts, unfinished(target, writes=(OWN,)))
    attempts.options = {"sinks": "repeat"}
    with attempts.attempt() as context:
        OutputAttempt(context.master).prepare(spark)
    assert len(left(target)) == 1
    attempts.options = {}
    with attempts.writes() as (_, output):
        output.prepare(spark)
    assert left(target) == set()


def test_a_failure_costs_the_write_nothing(
    spark: SparkSession, attempts: Attempts, target: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A target that cannot be reached is said in the log, and looked at again by the next write."""
    write = unfinished(target)
    lost = UnfinishedWrite(**{**write.__dict__, "location": "no-such-system://out"})
    die(attempts, lost)
    with caplog.at_level(logging.INFO, "airflow_provider"), attempts.writes() as (_, output):
        output.prepare(spark)
        spark.range(5).write.csv(str(target))
    assert caplog.text.count("what attempt 1 has left cannot be removed") == 2
    assert spark.read.csv(str(target)).count() == 5


def test_killed_when_the_table_was_made(
    spark: SparkSession,
    attempts: Attempts,
    target: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Spark makes a new table when all of its files are there: the retry registers the partitions that the killed
    driver had not come to, and does not write it again.
    """
    statement = (
        f"CREATE TABLE made_and_died USING parquet PARTITIONED BY (half) LOCATION '{target}' "
        "AS SELECT id, id % 2 half FROM range(9)"
    )
    try:
        with attempts.writes() as (context, _):
            remember = context.master.remember

            def not_the_end(name: str, state: dict[str, Any]) -> bool:
                return state["status"] == "WRITTEN" or remember(name, state)

            monkeypatch.setattr(context.master, "remember", not_the_end)
            spark.sql(statement)
        spark.sql("ALTER TABLE made_and_died DROP PARTITION (half = 0)")
        assert spark.table("made_and_died").count() == 4
        with caplog.at_level(logging.INFO, "airflow_provider"), attempts.writes() as (_, output):
            output.prepare(spark)
            spark.sql(statement)
        assert "attempt 1 has written all of it and died" in caplog.text
        assert "already written by attempt 1" in caplog.text
        assert spark.table("made_and_died").count() == 9
    finally:
        spark.sql("DROP TABLE IF EXISTS made_and_died")


@pytest.mark.few(1)
@each_value(
    kind=["error", "append", "table", "ctas"],
    random={"": False, "random": True},
    killed={"killed before its event": True, "committed": False},
)
def test_a_write_without_rows_is_written_once(
    spark: SparkSession, attempts: Attempts, target: Path, kind: str, random: bool, killed: bool
) -> None:
    """A partitioned write of no rows leaves a folder, or a table, without a file. The retry is not refused where Spark
    refuses to write, and warns of nothing.
    """
    drawn = "rand() > 2" if random else "id > 7"

    def write() -> None:
        df = spark.range(5).withColumn("part", F.col("id") % 2).where(drawn)
        if kind == "table":
            df.write.partitionBy("part").saveAsTable("nothing_written", path=str(target))
        elif kind == "ctas":
            spark.sql(
                f"CREATE TABLE nothing_written USING orc PARTITIONED BY (part) LOCATION '{target}' "
                f"AS SELECT id, id % 2 part FROM range(5) WHERE {drawn}"
            )
        else:
            df.write.mode(kind).partitionBy("part").orc(str(target))

    try:
        with dying() if killed else nullcontext(), attempts.writes():
            write()
        assert left(target) <= {"_SUCCESS", "._SUCCESS.crc"}
        with attempts.writes() as (context, _):
            write()
            assert target.is_dir()
            assert doubts(context.master.graph.coordinators) == []
        with attempts.writes():
            write()
    finally:
        spark.sql("DROP TABLE IF EXISTS nothing_written")


def test_a_write_without_rows_is_written_again_where_its_folder_is_gone(
    spark: SparkSession, attempts: Attempts, target: Path
) -> None:
    """Of no files none is missing; the folder is."""

    def write() -> None:
        spark.range(5).withColumn("part", F.col("id") % 2).where("id > 7").write.partitionBy("part").orc(str(target))

    with attempts.writes():
        write()
    shutil.rmtree(target)
    with attempts.writes():
        write()
    assert target.is_dir()


@pytest.mark.integration
def test_what_is_known_counts_though_nothing_is_recorded(
    spark: SparkSession, attempts: Attempts, target: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A retry's events are refused for longer than a write waits, while nobody else claims the job: what was committed
    is not written again, what is made again is taken back, and rows are added only when their name is recorded.
    """
    refused = threading.Event()

    def before(operation: str, key: str) -> None:
        if refused.is_set() and operation == "put_new" and "/events/" in key:
            raise AccessDenied("events are refused")

    def script() -> None:
        spark.range(5).write.mode("append").parquet(str(target))
        spark.range(7).withColumn("mark", F.rand()).select("id").write.mode("append").parquet(str(target))

    attempts.options = {"ownership_timeout": "2s"}
    attempts.before = before
    with attempts.writes():
        script()
    with caplog.at_level(logging.INFO, "airflow_provider"), attempts.attempt() as context:
        refused.set()
        context.master.vertex_skipped("nothing", "it is only noted")
        owned, sinks = confirmed(context.master.check_now), SinksOnce(context, OutputAttempt(context.master))
        wait_until(lambda: not context.master.usable, "the outage")
        began = time.monotonic()
        context.master.check_now()
        assert time.monotonic() - began > 1.9
        flushed = time.monotonic()
        context.master.check_now()
        assert time.monotonic() - flushed < 1.9
        with intercepted(owned, sinks.stages(), owned):
            with pytest.raises(OwnershipUnconfirmed, match="has not recorded within 2 s what attempt 2 is"):
                script()
            assert spark.read.parquet(str(target)).count() == 5
            spark.range(3).write.mode("overwrite").parquet(str(target / "replaced"))
    assert "already written by attempt 1, not written again" in caplog.text
    assert spark.read.parquet(str(target / "replaced")).count() == 3


def test_rows_of_a_recovery_point_that_could_not_be_stored(
    spark: SparkSession, attempts: Attempts, target: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The store took no partitions in the attempt that wrote them, and takes them in the retry, which does not add the
    same rows again. What is stored above such a point is used again.
    """

    def write() -> DataFrame:
        rows = checkpoint(spark.range(100).withColumn("rest", F.col("id") % 7), "rows")
        rows.write.mode("append").parquet(str(target))
        return rows

    with attempts.writes() as (context, _):
        refused = attempts.folder / context.master.prefix / FOLDER
        refused.touch()  # no folder of partitions can be made where a file is
        rows = write()
        refused.unlink()
        assert checkpoint(rows.groupBy("rest").count(), "rests").count() == 7
    assert "checkpoint 'rows' is not stored" in caplog.text
    with attempts.writes() as (context, _):
        assert checkpoint(write().groupBy("rest").count(), "rests").count() == 7
    assert spark.read.parquet(str(target)).count() == 100
    assert vertices(context)["rests"].computed == 0
