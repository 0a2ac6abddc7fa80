"""Sources that tell no version: kept whole for automatic retries, else read anew; ordinary ones with a version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider.spark import checkpoint
from airflow_provider.spark.identity.fingerprint import fingerprint
from airflow_provider.spark.jvm.relation import dataset
from airflow_provider.spark.jvm.scala import to_seq
from tests.spark.attempts import Attempts, vertices
from tests.spark.auto.watched import auto_attempt
from tests.spark.database import PASSWORD, Database

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class Words:
    """Rows that a Python function reads on the executors, where nobody sees it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.file = spark, folder / "words"
        self.file.write_text("1 2")

    def add(self, number: int) -> None:
        self.file.write_text(f"{self.file.read_text()} {number}")

    def read(self) -> DataFrame:
        def rows(path: str) -> Iterator[tuple[int, int]]:
            with open(path) as file:
                for word in file.read().split():
                    yield int(word), int(word) * 10

        return self.spark.createDataFrame(
            self.spark.sparkContext.parallelize([str(self.file)], 2).flatMap(rows), "ID int, RATE int"
        )


@pytest.fixture
def database(spark: SparkSession) -> Database:
    return Database(spark)


@pytest.fixture(params=["jdbc", pytest.param("rdd", marks=pytest.mark.integration)])
def changing(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Database | Words:
    return Database(spark) if request.param == "jdbc" else Words(spark, tmp_path)


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    return Attempts(tmp_path / "store", options={"restart_strategy": "none"}, series="first")


def ids(df: DataFrame) -> list[int]:
    return sorted(row.ID for row in df.select("ID").collect())


def kept(df: DataFrame, name: str = "kept") -> list[int]:
    return ids(checkpoint(df, name))


@pytest.mark.integration
def test_what_was_finished_is_kept_for_automatic_retries_alone(
    attempts: Attempts, changing: Database | Words, caplog: pytest.LogCaptureFixture
) -> None:
    """As it was read; what somebody has cleared reads anew, and so does an attempt that cannot tell."""
    caplog.set_level("INFO", "airflow_provider")
    for series, new, expected in (
        ("first", 3, [1, 2]),
        ("first", 4, [1, 2]),
        ("cleared", 5, [1, 2, 3, 4]),
        ("cleared", 6, [1, 2, 3, 4]),
        ("", 7, [1, 2, 3, 4, 5, 6]),
        ("cleared", 8, [1, 2, 3, 4, 5, 6, 7]),
    ):
        attempts.series = series
        with attempts.attempt():
            assert kept(changing.read()) == expected
        changing.add(new)
    assert caplog.text.count("all 2 partitions reused, nothing to compute") == 2
    assert (
        caplog.text.count("what is stored is not used: this attempt is no automatic retry of the one that stored it")
        == 2
    )
    assert "or for the whole job the option source_version" in caplog.text


def test_what_is_made_of_it_goes_with_it(attempts: Attempts, changing: Database | Words) -> None:
    """A recovery point further down is kept as long as the incarnation is that it was made of."""

    def script() -> list[int]:
        return kept(checkpoint(changing.read(), "read").selectExpr("ID * 2 AS ID"), "doubled")

    for series, expected, computed in (("first", [2, 4], 2), ("first", [2, 4], 0), ("cleared", [2, 4, 6], 2)):
        attempts.series = series
        with attempts.attempt() as context:
            assert script() == expected
            assert vertices(context)["doubled"].computed == computed
        if computed == 0:
            changing.add(3)


def test_an_unfinished_one_starts_over(attempts: Attempts, changing: Database | Words, tmp_path: Path) -> None:
    """One partition is stored and the other fails: the retry reads both again."""
    gate, log = tmp_path / "gate", tmp_path / "log"

    def script() -> list[int]:
        path, runs = str(gate), str(log)

        def fails(frames: Iterator[Any]) -> Iterator[Any]:
            import pathlib

            for frame in frames:
                with pathlib.Path(runs).open("a") as file:
                    file.write("".join(f"{number} " for number in frame["ID"]))
                if (frame["ID"] > 1).any() and not pathlib.Path(path).exists():
                    raise RuntimeError("by chance")
                yield frame

        return kept(changing.read().mapInPandas(fails, "ID int, RATE int"))

    with attempts.attempt(), pytest.raises(Exception, match="by chance"):
        script()
    gate.touch()
    changing.add(3)
    before = log.read_text().split()
    with attempts.attempt() as context:
        assert script() == [1, 2, 3]
        assert vertices(context)["kept"].reused == 0
    assert sorted(log.read_text().split()[len(before) :]) == ["1", "2", "3"]


def test_reads_of_one_table_are_told_apart_by_their_place(attempts: Attempts, database: Database) -> None:
    """A script reads a table, changes it, and reads it again: each of the two has its own rows in a retry, too. What is
    made of one read twice is one.
    """

    def script(change: Callable[[], None]) -> list[list[int]]:
        first = database.read()
        found = [kept(first, "rates"), kept(first.where("ID > 1"), "some")]
        change()
        return [*found, kept(database.read(), "rates")]

    for change in (lambda: database.add(3), lambda: database.add(4)):
        with attempts.attempt():
            assert script(change) == [[1, 2], [2], [1, 2, 3]]


def test_what_asks_for_something_else_is_something_else(attempts: Attempts, database: Database) -> None:
    """Another query, another way to cut it, another database; a secret is nowhere in the store."""
    with attempts.attempt():
        assert kept(database.read()) == [1, 2]
    database.add(3)
    other = Database(database.spark)
    frames = [
        database.read("(SELECT * FROM rates WHERE id > 1) AS t"),
        database.spark.read.jdbc(database.url, "rates", properties={"driver": "org.apache.derby.jdbc.EmbeddedDriver"}),
        other.read(),
    ]
    for frame, expected in zip(frames, ([2, 3], [1, 2, 3], [1, 2]), strict=True):
        with attempts.attempt() as context:
            assert kept(frame) == expected
            assert vertices(context)["kept"].reused == 0
    files = [file.read_bytes() for file in attempts.folder.rglob("*") if file.is_file()]
    assert files
    assert not [body for body in files if PASSWORD.encode() in body]


def test_what_the_script_has_cached_is_read_anew(attempts: Attempts, changing: Database | Words) -> None:
    """It has one value in an attempt, for all that reads it: what is stored of an earlier one does not fit."""
    for expected in ([1, 2], [1, 2, 3]):
        with attempts.attempt():
            frame = changing.read().cache()
            try:
                assert kept(frame) == expected
            finally:
                frame.unpersist()
        changing.add(3)


def test_with_a_version_it_is_an_ordinary_source(
    attempts: Attempts, changing: Database | Words, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever retries reuses it as long as the text is the same, single partitions too where it is known how they are
    cut; another text reads anew.
    """
    caplog.set_level("INFO", "airflow_provider")
    for series, version, expected in (("", "monday", [1, 2]), ("x", "monday", [1, 2]), ("x", "tuesday", [1, 2, 3])):
        attempts.series, attempts.options["source_version"] = series, version
        with attempts.attempt() as context:
            assert kept(changing.read()) == expected
            assert vertices(context)["kept"].computed == (0 if series == "x" and version == "monday" else 2)
            [vertex] = [v for v in context.master.graph.vertices.values() if context.master.epoch in v.reached_by]
            last = attempts.folder / context.master.prefix / vertex.partitions[0].key
        if version == "monday" and not series:
            changing.add(3)
    assert "table without a version of its own was at version monday, is at tuesday" in caplog.text
    last.unlink()
    with attempts.attempt() as context:
        assert kept(changing.read()) == [1, 2, 3]
        assert vertices(context)["kept"].computed == 1


@pytest.mark.integration
def test_with_a_version_auto_mode_keeps_what_is_shuffled_of_it(
    attempts: Attempts, spark: SparkSession, changing: Database | Words
) -> None:
    """As of an ordinary source. Without a version all of it is read anew, by whoever retries: what an executor loses
    of a shuffle, Spark would read again by itself, and mix it with older rows.
    """
    for version, expected, put_back in (
        ("monday", [1, 2], {}),
        ("monday", [1, 2], {"shuffle(ID)": 2}),
        ("tuesday", [1, 2, 3, 4], {}),
        ("", [1, 2, 3, 4, 5], {}),
        ("", [1, 2, 3, 4, 5, 6], {}),
    ):
        attempts.options["source_version"] = version
        with auto_attempt(attempts, spark) as attempt:
            df = changing.read().groupBy("ID").count()
            assert sorted(row.ID for row in df.collect()) == expected
            assert attempt.put_back() == put_back
            assert attempt.keep(df) == (["shuffle(ID)"] if version else [])
        changing.add(len(expected) + 1 + bool(put_back))


def test_what_cannot_be_described_stays_as_it_is(attempts: Attempts, spark: SparkSession) -> None:
    """An RDD of Spark's own, of a query say: nobody can tell what it holds, with or without a version."""
    attempts.options["source_version"] = "monday"
    for rows in (3, 4):
        with attempts.attempt() as context:
            frame = spark.createDataFrame(spark.range(rows).rdd.map(lambda row: (row.id,)), "ID long")
            assert kept(frame) == list(range(rows))
            assert [skip.name for skip in context.master.graph.attempts[context.master.epoch].skipped] == ["kept"]


def test_a_table_of_hive_is_known_by_its_name(spark: SparkSession, attempts: Attempts) -> None:
    """Whatever the catalog counts and notes of it: a script that skips what it has done finds the rows that it made of
    such a table, and what is made again replaces them.
    """
    session, jvm = spark._jsparkSession.sessionState(), spark._jvm
    assert jvm is not None
    spark.sql("CREATE TABLE of_hive (id BIGINT) USING parquet")
    try:
        plan = spark.table("of_hive")._jdf.queryExecution().analyzed()
        relation = jvm.org.apache.spark.sql.catalyst.catalog.HiveTableRelation

        def table() -> DataFrame:
            entry = session.catalog().getTableMetadata(session.sqlParser().parseTableIdentifier("of_hive"))
            none = jvm.scala.Option.empty()
            leaf = relation(entry, plan.output(), to_seq(jvm, []), none, none)
            return dataset(spark, leaf)

        with attempts.attempt() as context:
            first = fingerprint(table(), context)
            spark.sql("ALTER TABLE of_hive SET TBLPROPERTIES ('numRows' = '7')")
            second = fingerprint(table(), context)
    finally:
        spark.sql("DROP TABLE of_hive")
    assert first.unversioned == first.opaque == second.unversioned
    assert "of_hive" in first.opaque[0]
    assert first.call == second.call
