"""Tables and folders that several writes make: of one job, of several jobs, of scripts that try again by themselves."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import VectorAssembler
from pyspark.mllib.clustering import KMeans, KMeansModel
from pyspark.sql import DataFrameWriter
from pyspark.sql import functions as F

from airflow_provider.core.committed_output import doubts
from airflow_provider.core.failure import UnrecoverableError
from airflow_provider.spark.interception import intercepted
from airflow_provider.spark.jvm.pending_output import PendingOutput
from airflow_provider.spark.sinks.once import SinksOnce
from airflow_provider.spark.sinks.take_back import OutputAttempt
from tests.spark.attempts import Attempts, dying
from tests.support.parameters import each_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TABLE = "of_several"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture(autouse=True)
def no_table(spark: SparkSession) -> Iterator[None]:
    yield
    spark.sql(f"DROP TABLE IF EXISTS {TABLE}")


def marked(spark: SparkSession, first: int, end: int, rows: str) -> DataFrame:
    mark = F.lit(0.5) if rows == "certain" else F.rand()
    return spark.range(first, end).withColumn("mark", mark)


def ids(spark: SparkSession, place: Path | str = TABLE) -> list[int]:
    df = spark.read.parquet(str(place)) if isinstance(place, Path) else spark.table(place)
    return sorted(row.id for row in df.select("id").collect())


@pytest.mark.few(1)
@each_value(rows=["certain", "others in each attempt"], form=["saveAsTable", "IF NOT EXISTS"])
def test_a_table_that_another_job_has_made_is_not_taken_for_ones_own(
    spark: SparkSession, attempts: Attempts, target: Path, rows: str, form: str
) -> None:
    """A job is killed before the table of its first write is there, and another one makes it: the retry adds its rows
    as plain Spark does, and those of the other one stay.
    """

    def script() -> None:
        if form == "saveAsTable":
            marked(spark, 0, 5, rows).write.mode("append").saveAsTable(TABLE, path=str(target))
            return
        marked(spark, 0, 5, rows).createOrReplaceTempView("own_rows")
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {TABLE} USING parquet LOCATION '{target}' AS SELECT id, mark FROM own_rows"
        )

    with dying(), attempts.writes():
        script()
    spark.sql(f"DROP TABLE {TABLE}")
    shutil.rmtree(target)
    marked(spark, 100, 103, "certain").write.saveAsTable(TABLE, path=str(target))
    with attempts.writes() as (_, output):
        output.prepare(spark)
        assert ids(spark) == [100, 101, 102]
        script()
    assert ids(spark) == ([0, 1, 2, 3, 4] if form == "saveAsTable" else []) + [100, 101, 102]


@pytest.mark.few(1)
@each_value(first=["IF NOT EXISTS", "ignore", "error"], second=["certain", "others in each attempt"])
def test_a_place_that_is_made_and_added_to_is_made_again(
    spark: SparkSession, attempts: Attempts, target: Path, first: str, second: str
) -> None:
    """Rows that are others in each attempt have made a table or a folder, and others were added: the retry makes it
    again, and writes all of it once.
    """

    def script() -> None:
        rows = marked(spark, 0, 5, "others in each attempt")
        if first == "IF NOT EXISTS":
            rows.createOrReplaceTempView("own_rows")
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS {TABLE} USING parquet LOCATION '{target}' AS SELECT id, mark FROM own_rows"
            )
            for number in range(3):
                marked(spark, 10 * number, 10 * number + 2, second).write.insertInto(TABLE)
            return
        rows.write.mode(first).parquet(str(target))
        for number in range(3):
            marked(spark, 10 * number, 10 * number + 2, second).write.mode("append").parquet(str(target))

    place = TABLE if first == "IF NOT EXISTS" else target
    with attempts.writes():
        script()
    expected = ids(spark, place)
    for _ in range(2):
        with attempts.writes() as (context, output):
            output.prepare(spark)
            script()
            assert doubts(context.master.graph.coordinators) == []
        assert ids(spark, place) == expected


@pytest.mark.few(1)
@each_value(first=["ignore", "error"])
def test_rows_stay_where_the_retry_could_not_write_them_again(
    spark: SparkSession, attempts: Attempts, target: Path, first: str
) -> None:
    """Somebody else has added to a folder that the job has made: a mode that writes only where nothing is would not
    write again what was taken back.
    """

    def script() -> None:
        marked(spark, 0, 5, "others in each attempt").write.mode(first).parquet(str(target))

    with attempts.writes():
        script()
    marked(spark, 100, 102, "certain").write.mode("append").parquet(str(target))
    with attempts.writes() as (_, output):
        output.prepare(spark)
        assert ids(spark, target) == [0, 1, 2, 3, 4, 100, 101]
        if first == "ignore":
            script()
    assert ids(spark, target) == [0, 1, 2, 3, 4, 100, 101]


@pytest.mark.few(1)
@each_value(how=["INSERT", "insertInto", "INSERT OVERWRITE", "saveAsTable"], emptied=[False, True])
def test_a_table_made_anew_over_its_folder_knows_its_partitions(
    spark: SparkSession, attempts: Attempts, target: Path, how: str, emptied: bool
) -> None:
    """The catalog of a driver ends with it, or the script drops its table: what is left out is read all the same, and
    partitions of others are not, as in plain Spark.
    """

    def script() -> None:
        spark.sql(f"DROP TABLE IF EXISTS {TABLE}")
        spark.sql(
            f"CREATE TABLE {TABLE} (id BIGINT, mark DOUBLE, day STRING) USING parquet PARTITIONED BY (day) "
            f"LOCATION '{target}'"
        )
        df = marked(spark, 0, 6, "certain").withColumn("day", F.when(F.col("id") > 1, F.concat(F.lit("a/b="), "id")))
        if how == "insertInto":
            df.write.insertInto(TABLE)
        elif how == "saveAsTable":
            df.write.mode("append").partitionBy("day").saveAsTable(TABLE)
        else:
            df.createOrReplaceTempView("own_rows")
            spark.sql(f"{'INSERT INTO' if how == 'INSERT' else how} {TABLE} SELECT * FROM own_rows")

    strange = target / "day=strange"
    with attempts.writes():
        script()
        assert ids(spark) == [0, 1, 2, 3, 4, 5]
    if not how.endswith("OVERWRITE"):
        spark.range(99, 100).withColumn("mark", F.lit(1.0)).write.parquet(str(strange))
    if emptied:
        spark.sql(f"DROP TABLE {TABLE}")
    with attempts.writes():
        script()
        assert ids(spark) == [0, 1, 2, 3, 4, 5]
        assert spark.table(TABLE).where("day IS NULL").count() == 2
        assert spark.table(TABLE).where("day = 'a/b=3'").count() == 1


@pytest.mark.few(1)
@each_value(how=["INSERT INTO", "INSERT OVERWRITE"], rows=["certain", "others in each attempt"])
def test_a_partition_with_a_location_of_its_own_that_the_script_empties(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, how: str, rows: str
) -> None:
    """The rows of such a write are not among the table's files, so nobody can tell that they are still there."""

    def script() -> None:
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {TABLE} (id BIGINT, mark DOUBLE, day STRING) USING parquet "
            "PARTITIONED BY (day)"
        )
        spark.sql(f"ALTER TABLE {TABLE} ADD IF NOT EXISTS PARTITION (day = 'x') LOCATION '{tmp_path}/elsewhere'")
        spark.sql(f"TRUNCATE TABLE {TABLE}")
        marked(spark, 0, 5, rows).createOrReplaceTempView("own_rows")
        spark.sql(f"{how} {TABLE} PARTITION (day = 'x') SELECT id, mark FROM own_rows")

    for _ in range(2):
        with attempts.writes() as (_, output):
            output.prepare(spark)
            script()
        assert ids(spark) == [0, 1, 2, 3, 4]


@pytest.mark.few(1)
@each_value(how=["df.write", "INSERT"], fails=["a task", "behind the commit"])
def test_a_script_that_tries_an_append_again(
    spark: SparkSession, attempts: Attempts, target: Path, how: str, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its second call is the write that the first one was, and takes the place of what that has left: a retry in which
    the first call passes leaves it out.
    """
    refusing = target.parent / "refusing"

    def once_more(number: int) -> int:
        if number == 4 and fails == "a task" and refusing.exists():
            raise ValueError("refused")
        return number

    def behind(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if refusing.exists() and list(target.glob("part-*")):
                raise ValueError("refused")
            return result

        return call

    def add() -> None:
        if how == "INSERT":
            spark.sql(f"INSERT INTO {TABLE} SELECT once_more(id) FROM range(0, 5, 1, 3)")
        else:
            spark.range(0, 5, 1, 3).selectExpr("once_more(id) AS id").write.mode("append").parquet(str(target))

    def script() -> None:
        try:
            add()
        except Exception:  # noqa: BLE001 - as such scripts do
            refusing.unlink()
            add()

    spark.udf.register("once_more", F.udf(once_more, "long"))
    spark.sql(f"CREATE TABLE {TABLE} (id BIGINT) USING parquet LOCATION '{target}'")
    monkeypatch.setattr(DataFrameWriter, "parquet", behind(DataFrameWriter.parquet))
    monkeypatch.setattr(type(spark), "sql", behind(type(spark).sql))
    refusing.touch()
    with attempts.writes():
        script()
    assert not refusing.exists()
    for _ in range(2):
        with attempts.writes():
            script()
        assert ids(spark, target) == [0, 1, 2, 3, 4]


def test_insert_into_adds_whatever_the_mode(spark: SparkSession, attempts: Attempts, target: Path) -> None:
    """``insertInto`` knows ``overwrite`` and nothing else; a retry does not add its rows again."""

    def script() -> None:
        spark.sql(f"CREATE TABLE IF NOT EXISTS {TABLE} (id BIGINT) USING parquet LOCATION '{target}'")
        for mode in ("ignore", "error", "append"):
            spark.range(4).write.mode(mode).insertInto(TABLE)

    for _ in range(2):
        with attempts.writes():
            script()
        assert len(ids(spark)) == 12


def test_a_table_appended_to_by_its_path_in_a_new_catalog(
    spark: SparkSession, attempts: Attempts, target: Path
) -> None:
    """Without a catalog that outlives a driver Spark makes the table anew over its folder, and replaces what is there;
    so does a retry: all rows are there once.
    """

    def script() -> None:
        for number in range(3):
            marked(spark, number, number + 2, "certain").write.mode("append").saveAsTable(TABLE, path=str(target))

    for _ in range(2):
        with attempts.writes():
            script()
        assert ids(spark) == [0, 1, 1, 2, 2, 3]
        assert ids(spark, target) == [0, 1, 1, 2, 2, 3]
        spark.sql(f"DROP TABLE {TABLE}")


@pytest.mark.few(1)
@each_value(reads=["a path", "a table", "by SQL"], works=["at once", "later"])
def test_rows_are_not_taken_back_behind_the_scripts_look(
    spark: SparkSession,
    attempts: Attempts,
    target: Path,
    reads: str,
    works: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A retry cannot reach an output of an RDD when it has a session. It tries again before the script reads, so that
    the script finds nothing; if that fails, too, what the script may have seen stays, and a warning says so.
    """
    spark.sql(f"CREATE TABLE {TABLE} (id BIGINT, mark DOUBLE) USING parquet LOCATION '{target}'")
    refused: list[None] = []

    def remove(self: PendingOutput, paths: Any) -> int:
        if refused:
            refused.pop()
            raise OSError("no credentials")
        return original(self, paths)

    def script() -> None:
        if reads == "by SQL":
            found = spark.sql(f"SELECT max(id) FROM {TABLE}")
        else:
            found = (spark.read.parquet(str(target)) if reads == "a path" else spark.table(TABLE)).agg(F.max("id"))
        newest = found.collect()[0][0]
        numbers = spark.sparkContext.parallelize(range(0 if newest is None else newest + 1, 5))
        rows = numbers.map(lambda number: (number, 0.5 + random.random())).toDF("id BIGINT, mark DOUBLE")
        rows.write.mode("append").parquet(str(target))

    original = PendingOutput.remove_files
    monkeypatch.setattr(PendingOutput, "remove_files", remove)
    (target / "empty").mkdir(parents=True)
    spark.createDataFrame([], "id BIGINT, mark DOUBLE").write.mode("append").parquet(str(target))
    with attempts.writes():
        script()
    assert ids(spark, target) == [0, 1, 2, 3, 4]
    spark.catalog.refreshTable(TABLE)
    refused += [None] * (1 if works == "at once" else 2)
    with attempts.writes() as (_, output):
        output.prepare(spark)
        script()
    assert ids(spark, target) == [0, 1, 2, 3, 4]
    assert refused == []
    said = "files of an earlier attempt could not be removed before this attempt read from there"
    assert caplog.text.count(said) == (0 if works == "at once" else 1)


KINDS = {
    "chance": lambda spark, day: marked(spark, day, day + 1, "others in each attempt"),
    "a moment": lambda spark, day: spark.range(day, day + 1).withColumn("mark", F.lit(datetime.now(UTC))),
    "a moment in words": lambda spark, day: spark.range(day, day + 1).withColumn("mark", F.lit(f"{datetime.now(UTC)}")),
    "a database": lambda spark, day: asked(spark, f"SELECT {day} AS id, 0.5 AS mark FROM sysibm.sysdummy1"),
}


def asked(spark: SparkSession, query: str) -> DataFrame:
    driver = "org.apache.derby.jdbc.EmbeddedDriver"
    options = {"url": "jdbc:derby:memory:outputs;create=true", "driver": driver, "query": query}
    return spark.read.format("jdbc").options(**options).load().toDF("id", "mark")


@pytest.mark.few(1)
@each_value(kind=[*KINDS], skips=[True, False])
def test_a_script_that_marks_elsewhere_what_it_has_done(
    spark: SparkSession, attempts: Attempts, target: Path, kind: str, skips: bool
) -> None:
    """Marker files, a control table or a list that was made before: what a script does not make again stays, though its
    rows would be others, and what it makes again, because it died before it could mark that, is there once.
    """
    done: set[int] = set()

    def script(days: range, dies: int | None) -> None:
        for day in days:
            if day not in done:
                KINDS[kind](spark, day).write.mode("append").parquet(str(target))
            if skips and day != dies:
                done.add(day)

    for days, dies in ((range(3), 2), (range(6), None)):
        with attempts.writes() as (_, output):
            output.prepare(spark)
            script(days, dies)
    assert ids(spark, target) == [0, 1, 2, 3, 4, 5]


@pytest.mark.few(1)
@each_value(unknown_sinks=["warn", "fail"], skips=[True, False])
def test_rows_of_an_rdd_that_were_taken_back_and_are_not_made_again(
    spark: SparkSession,
    attempts: Attempts,
    target: Path,
    unknown_sinks: str,
    skips: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody can tell when what an RDD that draws has written comes again, so it goes before the script looks. The job
    does not end without saying that it has not come again.
    """
    attempts.options = {"unknown_sinks": unknown_sinks}
    for number in range(2):
        with attempts.attempt() as context:
            output = OutputAttempt(context.master)
            output.prepare(spark)
            sinks = SinksOnce(context, output)
            with intercepted(sinks.stages()):
                for _ in range(0 if skips and number else 3):
                    drawn = spark.sparkContext.parallelize([7]).map(lambda number: (number, random.random()))
                    rows = drawn.toDF("id BIGINT, mark DOUBLE")
                    rows.write.mode("append").parquet(str(target))
            error = sinks.unmet()
            found = doubts(context.master.graph.coordinators)
    assert len(found) == caplog.text.count("but it has not made that write") == (3 if skips else 0)
    assert isinstance(error, UnrecoverableError) == (skips and unknown_sinks == "fail")
    assert skips or ids(spark, target) == [7, 7, 7]


def test_a_file_that_cannot_be_removed_counts_as_there(spark: SparkSession, target: Path) -> None:
    """What the file system leaves is an error, whether it raises one or says so by its answer."""
    (target / "a-folder" / "with-a-file").mkdir(parents=True)
    output = PendingOutput(spark, f"file:{target}", 7)
    assert output.remove_files([f"file:{target}/gone"]) == 0
    with pytest.raises(Exception, match="a-folder"):
        output.remove_files([f"file:{target}/a-folder"])


@pytest.mark.few(1)
@each_value(rows=["certain", "others in each attempt"])
def test_an_output_is_known_however_its_path_is_spelled(
    spark: SparkSession, attempts: Attempts, target: Path, rows: str
) -> None:
    """A path with a scheme or without, with two slashes or one at its end, is one place, also in the next attempt."""
    for path in (f"{target}", f"file:{target}", f"file://{target}/", f"{target.parent}//x/../{target.name}"):
        with attempts.writes():
            marked(spark, 0, 3, rows).write.mode("append").parquet(path)
        assert ids(spark, target) == [0, 1, 2]


@pytest.mark.few(1)
@each_value(saves=["an RDD", "an ML pipeline", "a model of MLlib"], others=[False, True])
def test_what_refuses_to_write_where_something_is_can_be_written_again(
    spark: SparkSession, attempts: Attempts, target: Path, saves: str, others: bool
) -> None:
    """RDDs and models write where nothing is. A retry makes room for them where the job itself has written, once only:
    what anybody has changed stays, and Spark refuses, as it does everywhere else.
    """
    context = spark.sparkContext
    stages = Pipeline(stages=[VectorAssembler(inputCols=["id"], outputCol="ids")])

    def script(number: int) -> None:
        if saves == "an RDD":
            context.parallelize([number]).saveAsTextFile(str(target), "org.apache.hadoop.io.compress.GzipCodec")
        elif saves == "an ML pipeline":
            stages.fit(spark.range(3)).save(str(target))
        else:
            KMeans.train(context.parallelize([[0.0], [float(number)]]), 1).save(context, str(target))

    with attempts.writes():
        script(1)
    before = {file: file.read_bytes() for file in target.rglob("*") if file.is_file()}
    (target / "added").write_text("") if others else None
    with attempts.writes():
        if others:
            with pytest.raises(Exception, match="already exists"):
                script(2)
            assert before.items() <= {file: file.read_bytes() for file in target.rglob("*") if file.is_file()}.items()
            return
        script(2)
        with pytest.raises(Exception, match="already exists"):
            script(3)
    if saves == "an RDD":
        assert context.textFile(str(target)).collect() == ["2"]
    elif saves == "an ML pipeline":
        assert PipelineModel.load(str(target)).transform(spark.range(3)).count() == 3
    else:
        assert KMeansModel.load(context, str(target)).predict([1.0]) == 0
