"""Writes of which nobody can tell whether an earlier attempt has committed them."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from airflow_provider.core.failure import UnrecoverableError
from airflow_provider.core.report import format_report
from airflow_provider.spark.interception import intercepted
from airflow_provider.spark.jvm.sql_commands import changed_in_place
from airflow_provider.spark.sinks.once import SinksOnce
from airflow_provider.spark.sinks.take_back import OutputAttempt
from tests.spark.attempts import Attempts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Write = Callable[["SparkSession", str], object]
DERBY = "org.apache.derby.jdbc.EmbeddedDriver"


def jdbc(spark: SparkSession, folder: str) -> None:
    options = {"driver": DERBY}
    spark.range(3).write.jdbc(f"jdbc:derby:{folder}/db;create=true", "added", "append", options)


def jdbc_format(spark: SparkSession, folder: str) -> None:
    writer = spark.range(3).write.format("jdbc").mode("append").option("driver", DERBY)
    writer.options(url=f"jdbc:derby:{folder}/db;create=true", dbtable="added").save()


def with_a_frame(spark: SparkSession, folder: str) -> None:
    spark.sql(f"CREATE TABLE IF NOT EXISTS with_a_frame (id BIGINT) USING parquet LOCATION '{folder}/table'")
    spark.sql("INSERT INTO with_a_frame SELECT id FROM {rows}", rows=spark.range(3))


def scripted(spark: SparkSession, folder: str) -> None:
    spark.sql(f"CREATE TABLE IF NOT EXISTS with_a_frame (id BIGINT) USING parquet LOCATION '{folder}/table'")
    spark.sql("BEGIN INSERT INTO with_a_frame SELECT id FROM range(3); END")


def with_connect(_: SparkSession, __: str) -> None:
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    ConnectSession("sc://localhost:1").client.close()  # it asks no server before it is used


def attempt(attempts: Attempts, spark: SparkSession, write: Write) -> None:
    with attempts.attempt() as context, intercepted(SinksOnce(context, OutputAttempt(context.master)).stages()):
        write(spark, str(attempts.folder / "out"))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("write", "title"),
    [
        (jdbc, "jdbc table added of a database"),
        (jdbc_format, "jdbc added"),
        (with_a_frame, "of a statement with parameters"),
        (scripted, "of a SQL script"),
        (with_connect, "of a Spark Connect session"),
    ],
)
def test_a_repeated_append_is_said(
    spark: SparkSession, attempts: Attempts, caplog: pytest.LogCaptureFixture, write: Write, title: str
) -> None:
    """With its name, in a warning, from the second attempt on; the first one says nothing."""
    (attempts.folder / "out").mkdir()
    with caplog.at_level(logging.WARNING, "airflow_provider"):
        attempt(attempts, spark, write)
        assert "rows may be there twice" not in caplog.text
        assert attempts.report().doubts == []
        attempt(attempts, spark, write)
    spark.sql("DROP TABLE IF EXISTS with_a_frame")
    doubt = f"sink {title}: attempt 1 has written it. It is written again; rows may be there twice."
    assert doubt in caplog.text
    assert attempts.report().doubts == [doubt]
    assert f"  warning: {doubt}" in format_report(attempts.report())


def test_what_nobody_can_look_for_is_not_looked_for(
    spark: SparkSession, attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    """The address of a database is no table's name: the log speaks of no look that failed."""
    (attempts.folder / "out").mkdir()
    with caplog.at_level(logging.INFO, "airflow_provider"):
        attempt(attempts, spark, jdbc)
        attempt(attempts, spark, jdbc)
    assert "attempt 1 has written it. It is written again" in caplog.text
    assert "it is unknown whether" not in caplog.text


@pytest.mark.parametrize("mode", ["append", "error"])
def test_xml_is_written_once(
    spark: SparkSession, attempts: Attempts, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    """Like other files, however the script names the mode; in the mode ``error`` no retry fails."""

    def write(spark: SparkSession, folder: str) -> None:
        spark.range(3).write.xml(f"{folder}/xml", "row", mode)

    with caplog.at_level(logging.INFO, "airflow_provider"):
        attempt(attempts, spark, write)
        attempt(attempts, spark, write)
    assert sorted(row.id for row in spark.read.xml(f"{attempts.folder}/out/xml", rowTag="row").collect()) == [0, 1, 2]
    assert "already written by attempt 1, not written again" in caplog.text


def test_what_adds_nothing_is_not_said(
    spark: SparkSession, attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    """An overwrite, a format that keeps nothing, and two writes of one attempt."""

    def write(spark: SparkSession, folder: str) -> None:
        spark.range(3).write.mode("append").format("noop").save()
        spark.range(3).write.mode("overwrite").format("noop").save()

    with caplog.at_level(logging.WARNING, "airflow_provider"):
        attempt(attempts, spark, write)
        attempt(attempts, spark, write)
    assert "rows may be there twice" not in caplog.text


def test_a_retry_may_fail_there(spark: SparkSession, attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``unknown_sinks=fail`` nothing is written again, and no retry is asked for; an attempt that died inside of
    the write may have committed.
    """
    attempts.options = {"unknown_sinks": "fail"}
    (attempts.folder / "out").mkdir()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    from pyspark.sql import DataFrameWriter

    with monkeypatch.context() as patch:
        patch.setattr(DataFrameWriter, "jdbc", killed)
        with pytest.raises(KeyboardInterrupt):
            attempt(attempts, spark, jdbc)
    with pytest.raises(UnrecoverableError, match="attempt 1 died while it wrote, and may have committed"):
        attempt(attempts, spark, jdbc)
    assert not (attempts.folder / "out" / "db").exists()


def to_files(spark: SparkSession, folder: str) -> None:
    spark.range(3).write.mode("append").parquet(f"{folder}/files")


def to_a_table(spark: SparkSession, folder: str) -> None:
    spark.sql(f"CREATE TABLE IF NOT EXISTS looked_at (id BIGINT) USING parquet LOCATION '{folder}/files'")
    spark.sql("INSERT INTO looked_at SELECT id FROM range(3)")


def into_a_table(spark: SparkSession, folder: str) -> None:
    spark.sql(f"CREATE TABLE IF NOT EXISTS looked_at (id BIGINT) USING parquet LOCATION '{folder}/files'")
    spark.range(3).write.insertInto("looked_at")


def instead(spark: SparkSession, folder: str) -> None:
    spark.range(3).write.mode("overwrite").parquet(f"{folder}/files")


LOOKS = {"its files": "sink_identity.output_files", "its identity": "sink_identity.fingerprint"}
"""What a look at an output asks, and may fail."""


@contextmanager
def failing_once(look: str) -> Iterator[None]:
    """The first look inside fails."""
    name = f"airflow_provider.spark.sinks.{LOOKS[look]}"
    module, _, member = name.rpartition(".")
    asked = getattr(importlib.import_module(module), member)
    failures = iter([OSError("no answer from the file system")])

    def fail_once(*args: object, **kwargs: object) -> object:
        for failure in failures:
            raise failure
        return asked(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name, fail_once)
        yield


def rows(spark: SparkSession, attempts: Attempts) -> int:
    return spark.read.parquet(str(attempts.folder / "out" / "files")).count()


@pytest.mark.few(2)
@pytest.mark.parametrize("look", ["its files", "its identity"])
@pytest.mark.parametrize("write", [to_files, to_a_table, into_a_table])
def test_an_output_that_cannot_be_looked_at_is_said(
    spark: SparkSession, attempts: Attempts, caplog: pytest.LogCaptureFixture, write: Write, look: str
) -> None:
    """In a retry the file system does not answer when it is asked whether rows are there: log, report and page warn
    that they may be there twice, or the task fails and adds none.
    """
    try:
        attempt(attempts, spark, write)
        attempts.options = {"unknown_sinks": "fail"}
        with failing_once(look), pytest.raises(UnrecoverableError, match="no answer from the file system"):
            attempt(attempts, spark, write)
        assert rows(spark, attempts) == 3
        attempts.options = {}
        with caplog.at_level(logging.WARNING, "airflow_provider"), failing_once(look):
            attempt(attempts, spark, write)
        assert rows(spark, attempts) == 6
        (doubt,) = attempts.report().doubts
        assert "it is unknown whether an earlier attempt has written it (" in doubt
        assert "no answer from the file system). It is written again; rows may be there twice." in doubt
        assert doubt in caplog.text
        attempt(attempts, spark, write)
        assert rows(spark, attempts) == 6
    finally:
        spark.sql("DROP TABLE IF EXISTS looked_at")


@pytest.mark.parametrize(("write", "said"), [(to_files, 1), (instead, 0)])
def test_a_first_attempt_that_could_not_look(
    spark: SparkSession, attempts: Attempts, caplog: pytest.LogCaptureFixture, write: Write, said: int
) -> None:
    """It has nothing to warn of. What it has added nobody can tell from others, so that the retry warns; what it has
    replaced is replaced again.
    """
    with caplog.at_level(logging.WARNING, "airflow_provider"), failing_once("its files"):
        attempt(attempts, spark, write)
    assert "WARNING" not in caplog.text
    with caplog.at_level(logging.WARNING, "airflow_provider"):
        attempt(attempts, spark, write)
    assert caplog.text.count("written again; rows may be there twice") == len(attempts.report().doubts) == said


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("MERGE INTO lake.t AS old USING new ON old.id = new.id WHEN NOT MATCHED THEN INSERT *", "table `lake`.`t`"),
        ("-- daily\nMERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN UPDATE SET *", "table `t`"),
        ("UPDATE lake.t SET a = a + 1", "table `lake`.`t`"),
        ("LOAD DATA LOCAL INPATH '/new' INTO TABLE lake.t PARTITION (day = 1)", "table `lake`.`t`"),
        ("LOAD DATA INPATH '/new' OVERWRITE INTO TABLE t", ""),
        ("BEGIN INSERT INTO t VALUES (1); END", "of a SQL script"),
        ("daily: BEGIN DECLARE n INT; INSERT INTO t VALUES (n); END", "of a SQL script"),
        ("EXECUTE IMMEDIATE 'INSERT INTO t VALUES (1)'", "of a SQL script"),
        ("INSERT INTO t PARTITION (day = :day) SELECT 1", "of a statement with parameters"),
        ("INSERT INTO t SELECT * FROM {df}", "of a statement with parameters"),
        ("BEGIN SELECT 1; END", ""),
        ("SELECT 1", ""),
        ("DELETE FROM t", ""),
        ("MERGE this", "of a statement with parameters"),
    ],
)
def test_what_changes_rows_in_place_is_named(spark: SparkSession, text: str, named: str) -> None:
    """Whatever stands before it; other statements change nothing if they are repeated."""
    assert changed_in_place(spark, text) == named


def test_a_v2_append_is_said(spark: SparkSession, attempts: Attempts, caplog: pytest.LogCaptureFixture) -> None:
    """``writeTo(…).append()`` with its table's name, whether or not it succeeds."""
    from pyspark.errors import AnalysisException

    def write(spark: SparkSession, folder: str) -> None:
        with pytest.raises(AnalysisException):
            spark.range(3).writeTo("nowhere.at_all").append()

    with caplog.at_level(logging.WARNING, "airflow_provider"):
        attempt(attempts, spark, write)
        attempt(attempts, spark, write)
    assert "sink table nowhere.at_all: attempt 1 died while it wrote, and may have committed" in caplog.text
