"""Outputs that a script reads back, and writes elsewhere: a retry that makes them again adds nothing twice."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from airflow_provider.core.committed_output import doubts
from airflow_provider.core.faults import AFTER_SINK_COMMIT
from airflow_provider.spark.interception import intercepted
from airflow_provider.spark.sinks.once import SinksOnce
from airflow_provider.spark.sinks.take_back import OutputAttempt
from tests.spark.attempts import Attempts
from tests.support.parameters import each_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Change = Callable[["DataFrame"], "DataFrame"]
ROWS: dict[str, Change] = {
    "certain": lambda df: df.withColumn("mark", F.col("id") * 0.5),
    "drawn": lambda df: df.withColumn("mark", F.rand()),
    "loaded now": lambda df: df.withColumn("mark", F.unix_micros(F.current_timestamp()) * 1.0 + F.col("id")),
}


class Staging:
    """A script that writes to a folder and adds what it reads there to a log.

    :ivar stage: where it writes first
    :ivar rows: what it writes
    :ivar moves: whether it moves that folder elsewhere, and reads it there
    """

    def __init__(self, spark: SparkSession, attempts: Attempts, folder: Path) -> None:
        self.spark, self.attempts, self.folder = spark, attempts, folder
        self.stage = folder / "stage"
        self.rows, self.moves = "certain", False

    @property
    def read(self) -> Path:
        return self.folder / "moved" if self.moves else self.stage

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def run(self, before_reading: Callable[[], object] = lambda: None) -> list[str]:
        """An attempt; returns what it is in doubt of."""
        with self.attempts.writes() as (context, output):
            output.prepare(self.spark)
            staged = ROWS[self.rows](self.spark.range(0, 6, 1, 2).repartition(2, "id"))
            staged.write.mode("overwrite").partitionBy("id").parquet(str(self.stage))
            if self.moves:
                shutil.rmtree(self.read, ignore_errors=True)
                shutil.move(self.stage, self.read)
            before_reading()
            found = self.spark.read.parquet(str(self.read))
            found.where("id > 0").write.mode("append").parquet(str(self.log))
            return doubts(context.master.graph.coordinators)

    def marks(self, place: Path) -> list[tuple[int, float]]:
        found = self.spark.read.schema("id long, mark double").parquet(str(place)).where("id > 0")
        return sorted((row.id, row.mark) for row in found.collect())


@pytest.fixture
def staging(spark: SparkSession, attempts: Attempts, tmp_path: Path) -> Staging:
    return Staging(spark, attempts, tmp_path)


@pytest.mark.few(1)
@each_value(rows=[*ROWS], how=["moved", "another folder in each attempt", "in place"])
def test_what_is_read_back_is_added_once(staging: Staging, rows: str, how: str) -> None:
    """Also where the folder was moved away, and is written again, or has other rows in each attempt: the log has those
    of the last one.
    """
    staging.rows, staging.moves = rows, how == "moved"
    for number in range(3):
        if how == "another folder in each attempt":
            staging.stage = staging.folder / f"stage-{number}"
        assert staging.run() == []
        assert [row for row, _ in staging.marks(staging.log)] == [1, 2, 3, 4, 5]
        assert staging.marks(staging.log) == staging.marks(staging.read)


BY_ITSELF = ["pandas", "an RDD", "INSERT OVERWRITE DIRECTORY", "rows that cannot be told"]


@pytest.mark.few(1)
@each_value(how=BY_ITSELF)
def test_what_a_script_writes_by_itself_and_reads_back_is_added_once(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, how: str
) -> None:
    """Files that no write is remembered for, and that each attempt makes anew: those that hold the same are the same.
    Once they hold something else, the rows of both are there.
    """
    read, added = tmp_path / "lookup", tmp_path / "added"

    def run(rows: int) -> None:
        with attempts.writes() as (_, output):
            output.prepare(spark)
            if how == "pandas":
                pd.DataFrame({"id": range(rows)}).to_csv(read, index=False, header=False)
            elif how == "an RDD":
                shutil.rmtree(read, ignore_errors=True)
                spark.sparkContext.range(rows).map(str).saveAsTextFile(str(read))
            elif how == "INSERT OVERWRITE DIRECTORY":
                spark.sql(f"INSERT OVERWRITE DIRECTORY '{read}' USING csv SELECT id FROM range({rows})")
            else:
                spark.range(rows).localCheckpoint().write.mode("overwrite").csv(str(read))
            spark.read.schema("id long").csv(str(read)).write.mode("append").parquet(str(added))

    for rows, expected in ((4, 4), (4, 4), (4, 4), (5, 9)):
        run(rows)
        assert spark.read.parquet(str(added)).count() == expected


@pytest.mark.few(1)
@pytest.mark.parametrize("harm", ["a file of others", "a changed file", "a lost file"])
def test_what_others_have_changed_there_is_something_else(staging: Staging, harm: str) -> None:
    """It is read as it is: rows of others, and of files that they have replaced, are added as in plain Spark."""
    staging.moves = True
    staging.run()
    before = len(staging.marks(staging.log))

    def change() -> None:
        [victim] = (staging.read / "id=3").glob("part-*.parquet")
        if harm == "a file of others":
            (staging.read / "id=9").mkdir()
            pq.write_table(pa.table({"mark": [9.5]}), staging.read / "id=9" / "theirs.parquet")
        elif harm == "a changed file":
            pq.write_table(pa.table({"mark": [7.5]}), victim)
            (victim.parent / f".{victim.name}.crc").unlink()
        else:
            victim.unlink()

    staging.run(change)
    added = {"a file of others": 6, "a changed file": 5, "a lost file": 4}[harm]
    found = staging.marks(staging.log)
    assert len(found) == before + added
    assert ((3, 7.5) in found) == (harm == "a changed file")


def test_a_table_that_is_swapped_in_is_added_once(spark: SparkSession, attempts: Attempts, tmp_path: Path) -> None:
    """Written under another name, renamed, and read: the retry makes all of it again."""
    spark.range(0).write.saveAsTable("read_back_log")
    try:
        for _ in range(3):
            with attempts.writes() as (context, output):
                output.prepare(spark)
                spark.range(5).write.saveAsTable("read_back_new")
                spark.sql("DROP TABLE IF EXISTS read_back")
                spark.sql("ALTER TABLE read_back_new RENAME TO read_back")
                spark.sql("INSERT INTO read_back_log SELECT id FROM read_back")
                assert doubts(context.master.graph.coordinators) == []
            assert sorted(row.id for row in spark.table("read_back_log").collect()) == [0, 1, 2, 3, 4]
    finally:
        for name in ("read_back", "read_back_new", "read_back_log"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_a_function_that_reads_a_file_reads_it_again_after_a_clearing(
    spark: SparkSession, attempts: Attempts, tmp_path: Path
) -> None:
    """What it had made of it is in the staged rows, and goes from the log with them."""
    factor, stage, log = tmp_path / "factor", tmp_path / "stage", tmp_path / "log"

    @F.udf("long")
    def times(number: int) -> int:
        return number * int(factor.read_text())

    def attempt() -> list[int]:
        with attempts.writes() as (context, output):
            output.prepare(spark)
            spark.range(4).select(times("id").alias("id")).write.mode("overwrite").parquet(str(stage))
            spark.read.parquet(str(stage)).write.mode("append").parquet(str(log))
            assert doubts(context.master.graph.coordinators) == []
        return sorted(row.id for row in spark.read.parquet(str(log)).collect())

    factor.write_text("2")
    assert attempt() == attempt() == [0, 2, 4, 6]
    factor.write_text("3")
    attempts.series = "cleared"
    assert attempt() == [0, 3, 6, 9]


@pytest.mark.integration
def test_where_the_files_count_they_are_looked_at(staging: Staging) -> None:
    """The name of the file that a row comes from is another one when the folder was written again."""
    names = []
    for _ in range(2):
        staging.run()
        shutil.rmtree(staging.stage)
        with staging.attempts.writes() as (_, output):
            output.prepare(staging.spark)
            staged = ROWS["certain"](staging.spark.range(0, 6, 1, 2))
            staged.write.mode("overwrite").parquet(str(staging.stage))
            found = staging.spark.read.parquet(str(staging.stage)).select("_metadata.file_name")
            found.write.mode("overwrite").parquet(str(staging.folder / "names"))
        read = staging.spark.read.parquet(str(staging.folder / "names")).distinct().collect()
        names.append(sorted(row.file_name for row in read))
        assert names[-1] == sorted(path.name for path in staging.stage.glob("part-*"))
    assert names[0] != names[1]


class Killed(Exception):
    """Ends an attempt between two steps of its script."""


class InPlace:
    """A script that reads a table of files, adds rows to what it has read, and puts that in the table's place, thrice.

    :ivar keeps: whether it keeps the folder that it writes first
    :ivar stamps: whether each row says when it was written
    """

    def __init__(self, spark: SparkSession, attempts: Attempts, folder: Path) -> None:
        self.spark, self.attempts = spark, attempts
        self.table, self.beside, self.log = folder / "table", folder / "beside", folder / "log"
        self.keeps, self.stamps = True, False
        self.by = 10
        spark.range(3).withColumn("stamp", F.lit(0.0)).write.parquet(str(self.table))

    def run(self, steps: int = 99) -> list[str]:
        """An attempt that ends after so many steps; returns what it is in doubt of."""
        left = steps

        def step() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed

        with self.attempts.writes(succeeds=True) as (context, output):
            output.prepare(self.spark)
            for number in range(3):
                old = self.spark.read.parquet(str(self.table))
                new = self.spark.range(self.by * (number + 1), self.by * (number + 1) + 2)
                stamp = F.unix_micros(F.current_timestamp()) * 1.0 if self.stamps else F.lit(1.0)
                old.unionByName(new.withColumn("stamp", stamp)).write.mode("overwrite").parquet(str(self.beside))
                step()
                self.spark.read.parquet(str(self.beside)).write.mode("overwrite").parquet(str(self.table))
                step()
                added = self.spark.read.parquet(str(self.beside)).where(f"id >= {self.by * (number + 1)}")
                added.write.mode("append").parquet(str(self.log))
                step()
                if not self.keeps:
                    shutil.rmtree(self.beside)
                    step()
        return doubts(context.master.graph.coordinators)

    def killed(self, steps: int) -> None:
        with pytest.raises(Killed):
            self.run(steps)

    def killed_in_commit(self, writes: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """An attempt that ends when Spark has committed so many writes, before an event tells of the last one."""
        left = writes

        def committed(point: str) -> None:
            nonlocal left
            left -= point == AFTER_SINK_COMMIT
            if left == 0:
                raise Killed

        with monkeypatch.context() as patched:
            patched.setattr("airflow_provider.spark.sinks.once.fault_point", committed)
            self.killed(99)

    def ids(self, place: Path) -> list[int]:
        return sorted(row.id for row in self.spark.read.parquet(str(place)).collect())


@pytest.fixture
def in_place(spark: SparkSession, attempts: Attempts, tmp_path: Path) -> InPlace:
    return InPlace(spark, attempts, tmp_path)


LOGGED = [10, 11, 20, 21, 30, 31]


@pytest.mark.few(1)
@each_value(
    kills={str(kills): kills for kills in [(2,), (3, 7), (5, 8), (1, 4, 9)]},
    stamps={"certain": False, "stamped": True},
    keeps={"kept beside": True, "removed": False},
)
def test_a_table_that_is_replaced_by_what_was_made_of_it(
    in_place: InPlace, kills: tuple[int, ...], stamps: bool, keeps: bool
) -> None:
    """Killed behind any of its writes, the script has added each row once: a retry does not read its own results as
    what was there before.
    """
    in_place.keeps, in_place.stamps = keeps, stamps
    for steps in kills:
        in_place.killed(steps)
    assert in_place.run() == []
    assert in_place.ids(in_place.table) == [0, 1, 2, *LOGGED]
    assert in_place.ids(in_place.log) == LOGGED
    assert in_place.run() == []
    assert in_place.ids(in_place.table) == [0, 1, 2, *LOGGED]
    assert in_place.ids(in_place.log) == LOGGED


@pytest.mark.few(1)
@each_value(writes=[1, 2, 3, 4, 5, 8], stamps={"certain": False, "stamped": True})
def test_a_table_whose_replacement_no_event_tells_of(
    in_place: InPlace, monkeypatch: pytest.MonkeyPatch, writes: int, stamps: bool
) -> None:
    """Killed between Spark's commit and the event: a table that bears the marker of the write that has replaced all of
    it is that write's.
    """
    in_place.stamps = stamps
    in_place.killed_in_commit(writes, monkeypatch)
    if writes > 2:
        in_place.killed_in_commit(1, monkeypatch)
    for _ in range(2):
        assert in_place.run() == []
        assert in_place.ids(in_place.table) == [0, 1, 2, *LOGGED]
        assert in_place.ids(in_place.log) == LOGGED


@pytest.mark.few(1)
@pytest.mark.parametrize("harm", ["an older marker", "no marker", "a file of others"])
def test_what_may_be_half_a_replacement_is_written_again(
    in_place: InPlace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, harm: str
) -> None:
    """Only a marker that is as new as the files, and stands for all of them, says that a killed write has finished."""
    in_place.killed_in_commit(1, monkeypatch)
    marker = in_place.beside / "_SUCCESS"
    if harm == "an older marker":
        os.utime(marker, (0, 0))
    elif harm == "no marker":
        marker.unlink()
    else:
        shutil.copy(next(in_place.table.glob("part-*")), in_place.beside)
    caplog.set_level(logging.INFO)
    assert in_place.run() == []
    assert "has written all of it and died" not in caplog.text
    assert in_place.ids(in_place.table) == [0, 1, 2, *LOGGED]


@pytest.mark.integration
def test_a_script_that_was_changed_reads_what_is_there(in_place: InPlace) -> None:
    """Other rows are added by other calls: what they read counts, as in plain Spark."""
    in_place.killed(2)
    in_place.by = 100
    in_place.run()
    assert in_place.ids(in_place.table) == [0, 1, 2, 10, 11, 100, 101, 200, 201, 300, 301]


@pytest.mark.integration
def test_what_cannot_be_made_again_is_said(in_place: InPlace) -> None:
    """A retry removes what it would have to read, as the script says: its table is right, and of the rows that it adds
    to the log it says that they may be there twice.
    """
    in_place.keeps = False
    in_place.killed(6)
    (doubt,) = in_place.run()
    assert in_place.ids(in_place.table) == [0, 1, 2, *LOGGED]
    assert "log: it reads what this attempt had to compute again from the job's own output" in doubt


@pytest.mark.few(1)
@each_value(how=["CREATE TABLE AS", "saveAsTable", "a folder"])
def test_what_takes_the_place_of_what_it_was_made_of_is_said(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, how: str
) -> None:
    """A table or folder is made of another one and of new rows, and then gets its name: a retry makes it again of
    itself, as plain Spark does, and says so.
    """
    old, new = tmp_path / "old", tmp_path / "new"
    name = f"parquet.`{old}`" if how == "a folder" else "read_back"
    spark.range(3).write.parquet(str(old)) if how == "a folder" else spark.range(3).write.saveAsTable(name)

    def script() -> None:
        rows = spark.table(name).union(spark.range(10, 12))
        if how == "a folder":
            rows.write.mode("overwrite").parquet(str(new))
            shutil.rmtree(old)
            shutil.move(new, old)
            return
        rows.createOrReplaceTempView("made_of_itself")
        if how == "saveAsTable":
            rows.write.saveAsTable("read_back_new")
        else:
            spark.sql("CREATE TABLE read_back_new USING parquet AS SELECT * FROM made_of_itself")
        spark.sql("DROP TABLE read_back")
        spark.sql("ALTER TABLE read_back_new RENAME TO read_back")

    try:
        for expected in ([0, 1, 2, 10, 11], [0, 1, 2, 10, 10, 11, 11]):
            with attempts.attempt() as context:
                sinks = SinksOnce(context, OutputAttempt(context.master))
                with intercepted(sinks.stages()):
                    script()
                assert sinks.unmet() is None
                found = doubts(context.master.graph.coordinators)
            assert sorted(row.id for row in spark.table(name).collect()) == expected
            assert len(found) == (len(expected) > 5)
        assert "of what an earlier attempt had made of it" in found[0]
    finally:
        for table in ("read_back", "read_back_new"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")


def test_a_table_with_partitions_that_is_replaced(spark: SparkSession, attempts: Attempts, tmp_path: Path) -> None:
    """Its partitions have become more by that, and its rows are there once."""
    beside = tmp_path / "beside"
    spark.range(3).selectExpr("id", "id % 2 AS day").write.partitionBy("day").saveAsTable("read_back")

    def script() -> None:
        new = spark.range(10, 12).selectExpr("id", "id AS day")
        spark.table("read_back").unionByName(new).write.mode("overwrite").parquet(str(beside))
        spark.read.parquet(str(beside)).write.mode("overwrite").partitionBy("day").saveAsTable("read_back")

    try:
        for _ in range(3):
            with attempts.writes() as (context, output):
                output.prepare(spark)
                script()
                assert doubts(context.master.graph.coordinators) == []
            assert sorted(row.id for row in spark.table("read_back").collect()) == [0, 1, 2, 10, 11]
    finally:
        spark.sql("DROP TABLE IF EXISTS read_back")


@pytest.mark.few(1)
@each_value(kills=[(1,), (2,), (3,), (4,), (2, 3)], how=["path", "insertInto", "INSERT OVERWRITE"])
def test_partitions_that_are_replaced_by_what_was_made_of_them(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, kills: tuple[int, ...], how: str
) -> None:
    """A script adds rows to some partitions, and replaces one of them, twice, by what it has read there, each row with
    100 more: killed behind any of its writes, it has added 200. Partitions that are not replaced stay as they are.
    """
    session, place = spark.newSession(), tmp_path / "table"
    session.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    session.range(3).selectExpr("id", "id AS day").write.partitionBy("day").saveAsTable("parts", path=str(place))

    def script() -> Iterator[None]:
        session.range(10, 14).selectExpr("id", "id % 2 AS day").write.insertInto("parts")
        yield
        for _ in range(2):
            read = session.table("parts") if how != "path" else session.read.parquet(str(place))
            more = read.where("day = 1").selectExpr("id + 100 AS id", "day")
            if how == "path":
                more.write.mode("overwrite").partitionBy("day").parquet(str(place))
            elif how == "insertInto":
                more.write.insertInto("parts", overwrite=True)
            else:
                session.sql("INSERT OVERWRITE parts SELECT id + 100, day FROM parts WHERE day = 1")
            yield
        session.table("parts").where("day < 2").write.mode("append").parquet(str(tmp_path / "log"))
        yield

    try:
        for steps in (*kills, 4, 4):
            with attempts.writes() as (context, output):
                output.prepare(session)
                for _ in itertools.islice(script(), steps):
                    session.catalog.refreshTable("parts")
                assert doubts(context.master.graph.coordinators) == []
        expected = [(0, 0), (10, 0), (12, 0), (201, 1), (211, 1), (213, 1)]
        rows = session.table("parts").collect()
        assert sorted((row.id, row.day) for row in rows) == sorted([*expected, (2, 2)])
        rows = session.read.parquet(str(tmp_path / "log")).collect()
        assert sorted((row.id, row.day) for row in rows) == expected
    finally:
        session.sql("DROP TABLE parts")
