"""A shuffle whose tasks choose among the rows that they read is kept, though the script leaves open which ones of
several rows, or which order, that is. What is made of the chosen rows is kept for exactly these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

from airflow_provider.spark.auto.keeping import KeptShuffle
from airflow_provider.spark.jvm.exchanges import REUSED_EXCHANGE, functions_of_several_rows, kind
from airflow_provider.spark.jvm.map_output_tracker import MapOutputTracker
from airflow_provider.spark.jvm.scala import items
from tests.spark.attempts import Attempts
from tests.spark.auto.gates import Gate, interrupted, running, store_what_is_there
from tests.spark.auto.lines import task_for, written
from tests.spark.auto.watched import auto_attempt, configured
from tests.support.parameters import each_value
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from airflow_provider.spark.jvm.stage_metrics import StageMetrics

pytestmark = pytest.mark.spark

FILES = {"a": range(600), "b": range(600, 1000), "c": range(1000, 1200)}
TASK_EACH = task_for(6000)
"""Two map tasks: one reads the first file, the other one the rest."""
KEYS = 7


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Lines of the same length: a number, its key, a moment that many lines of a key share, and their file."""
    return written(
        tmp_path / "lines",
        {name: [f"{row:04},{row % KEYS},{row % 2}{name}" for row in rows] for name, rows in FILES.items()},
    )


def read(spark: SparkSession, lines: Path) -> DataFrame:
    rows = spark.read.schema("id long, key long, mark string").csv(str(lines))
    return rows.select("id", "key", F.col("mark")[0:1].alias("at"), F.substring("mark", 2, 1).alias("file"))


def newest(df: DataFrame, rows: int = 1) -> DataFrame:
    """The usual way to keep one row of each key, or a few; here hundreds of each are equal."""
    place = F.row_number().over(Window.partitionBy("key").orderBy(F.desc("at")))
    return df.withColumn("place", place).where(f"place <= {rows}").drop("place")


def turned(df: DataFrame) -> DataFrame:
    """The number of a line is its key, and its key the number."""
    return df.selectExpr("key AS id", "id AS key", "at", "file")


def assert_newest(found: Sequence[Row], rows: int = 1) -> None:
    """What any run of plain Spark may give: so many newest rows of each key."""
    assert len({row.id for row in found}) == len(found) == KEYS * rows
    assert all(row.id % KEYS == row.key and row.id % 2 == int(row["at"]) == 1 for row in found)
    assert {sum(row.key == key for row in found) for key in range(KEYS)} == {rows}


def first_of_each(df: DataFrame) -> DataFrame:
    return df.groupBy("key").agg(*(F.first(name).alias(name) for name in ("id", "at")))


CHOICES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "first row of a window": newest,
    "max_by": lambda df: df.groupBy("key").agg(F.max_by("id", "at").alias("id"), F.max("at").alias("at")),
    "dropDuplicates": lambda df: df.where("at = '1'").dropDuplicates(["key"]),
    "first": lambda df: first_of_each(df.where("at = '1'")),
    "collect_list": lambda df: newest(df.groupBy("key", "at").agg(F.collect_list("id")[3].alias("id"))),
}
"""What chooses one row of each key, that any run of plain Spark may choose, before it shuffles by the key."""


@pytest.mark.few(2)
@each_value(case=[*CHOICES], adaptive=["true", "false"])
def test_they_are_put_back(spark: SparkSession, lines: Path, attempts: Attempts, case: str, adaptive: str) -> None:
    """By a retry, whole: its result is one that plain Spark may give."""
    kept = ["shuffle(key)", "shuffle(key, at)"] if case == "collect_list" else ["shuffle(key)"]
    with configured(spark, {**TASK_EACH, "spark.sql.adaptive.enabled": adaptive}):
        with auto_attempt(attempts, spark) as first:
            df = CHOICES[case](read(spark, lines))
            assert_newest(df.collect())
            assert first.keep(df) == kept
        with auto_attempt(attempts, spark) as second:
            assert_newest(CHOICES[case](read(spark, lines)).collect())
            assert sorted(second.put_back()) == kept
            assert second.put_back()[kept[-1]] == 2


def test_choices_of_two_attempts_fit_together(
    spark: SparkSession, lines: Path, attempts: Attempts, tmp_path: Path
) -> None:
    """Each task has chosen among its own rows, so a retry runs only those whose choice is lost."""
    gate = Gate(tmp_path / "gate", waits="c")

    def query() -> DataFrame:
        return newest(read(spark, lines).where(gate.passes(F.col("file"))), rows=20)

    with configured(spark, TASK_EACH):
        with auto_attempt(attempts, spark) as first:
            interrupted(spark, first, gate, query)
        with auto_attempt(attempts, spark) as second:
            assert_newest(query().collect(), rows=20)
            assert second.put_back() == {"shuffle(key)": 1}


@pytest.mark.few(1)
@each_value(lost=["nothing", "all rows"], adaptive=["true", "false"])
def test_choices_among_shuffled_rows_are_put_back(
    spark: SparkSession, lines: Path, attempts: Attempts, lost: str, adaptive: str
) -> None:
    """Also where the rows among which they were made are lost."""

    def query() -> DataFrame:
        return newest(read(spark, lines).groupBy("id", "key", "at").count(), rows=20)

    with configured(spark, {**TASK_EACH, "spark.sql.adaptive.enabled": adaptive}):
        with auto_attempt(attempts, spark) as first:
            df = query()
            assert_newest(df.collect(), rows=20)
            assert first.keep(df) == ["shuffle(id, key, at)", "shuffle(key)"]
            if lost == "all rows":
                first.lose("shuffle(id, key, at)")
        with auto_attempt(attempts, spark) as second:
            assert_newest(query().collect(), rows=20)
            assert "shuffle(key)" in second.put_back()


def seen(df: DataFrame) -> DataFrame:
    """The same, which subqueries can read."""
    df.createOrReplaceTempView("lines")
    return df


MADE: dict[str, Callable[[DataFrame], DataFrame]] = {
    "a shuffle": lambda df: newest(df).groupBy("file").count(),
    "a join": lambda df: newest(df).join(df.groupBy("id").count(), "id").groupBy("count").sum("id"),
    "another window": lambda df: newest(turned(newest(df, 5))),
    "an aggregate": lambda df: (
        df.groupBy("key").agg(F.collect_list("id").alias("ids")).groupBy(F.col("ids")[0]).count()
    ),
    "unique rows": lambda df: df.dropDuplicates(["key"]).groupBy("file").count(),
    "beside a certain broadcast": lambda df: (
        newest(df).join(F.broadcast(df.groupBy("id").count()), "id").groupBy("file").count()
    ),
    "beside a certain subquery": lambda df: (
        newest(seen(df)).where("id > (SELECT min(id) FROM lines)").groupBy("file").count()
    ),
    "a broadcast": lambda df: df.join(F.broadcast(newest(df)), "id").groupBy("id").count(),
    "a broadcast of unique rows": lambda df: (
        df.join(F.broadcast(df.dropDuplicates(["key"]).select("key", F.col("id").alias("first"))), "key")
        .groupBy("first", "file")
        .count()
    ),
    "a broadcast without keys": lambda df: (
        df.join(F.broadcast(newest(df).select(F.col("id").alias("new"))), F.col("id") < F.col("new"))
        .groupBy("new")
        .count()
    ),
    "what is made of a broadcast": lambda df: (
        df.join(F.broadcast(newest(df)), "id").groupBy("id").count().groupBy(F.col("id") % 2).count()
    ),
    "a limit": lambda df: df.limit(50).repartition(3, "key"),
    "neighbours": lambda df: (
        df.withColumn("before", F.lag("file").over(Window.partitionBy("key").orderBy("at"))).groupBy("before").count()
    ),
    "the first of chosen rows": lambda df: newest(df.groupBy("key", "at").agg(F.first("id").alias("id"))),
    "a choice by numbers": lambda df: newest(
        df.withColumn("at", F.row_number().over(Window.partitionBy("at").orderBy("key")) % 2)
    ),
}
"""What is made of it."""


@pytest.mark.few(4)
@each_value(case=[*MADE], adaptive=["true", "false"])
def test_what_is_made_of_it_is_put_back(
    spark: SparkSession, lines: Path, attempts: Attempts, case: str, adaptive: str
) -> None:
    """Together with the choice itself: the retry gives the rows of the attempt before."""
    with configured(spark, {**TASK_EACH, "spark.sql.adaptive.enabled": adaptive}):
        with auto_attempt(attempts, spark) as first:
            df = MADE[case](read(spark, lines))
            rows = sorted(df.collect(), key=str)
            kept = first.keep(df)
            assert len(kept) > 1
        with auto_attempt(attempts, spark) as second:
            assert sorted(MADE[case](read(spark, lines)).collect(), key=str) == rows
            if case == "beside a certain subquery" and adaptive == "false":
                kept.remove("shuffle")  # subqueries run before anything is put back
            assert sorted(second.put_back()) == kept


@pytest.mark.few(2)
@pytest.mark.parametrize("case", ["a shuffle", "another window", "an aggregate", "unique rows", "neighbours"])
def test_what_is_made_of_a_lost_choice_is_not_put_back(
    spark: SparkSession, lines: Path, attempts: Attempts, case: str
) -> None:
    """A part of the choice is lost, and made again: nothing that was made of the first one fits to it."""
    with configured(spark, TASK_EACH):
        with auto_attempt(attempts, spark) as first:
            df = MADE[case](read(spark, lines))
            df.collect()
            below = "shuffle(key)"
            above = set(first.keep(df)) - {below}
            assert above
            first.lose(below, 0)
        with auto_attempt(attempts, spark) as second:
            MADE[case](read(spark, lines)).collect()
            assert second.put_back()[below] == 1
            assert above.isdisjoint(second.put_back())


def test_only_what_is_missing_of_what_was_made_runs_again(spark: SparkSession, lines: Path, attempts: Attempts) -> None:
    """With the whole choice in the store, single tasks of what was made of it may be lost."""

    def query() -> DataFrame:
        return newest(read(spark, lines), 40).groupBy("file").agg(F.sum("id"), F.count("*"))

    with configured(spark, {**TASK_EACH, "spark.sql.adaptive.coalescePartitions.enabled": "false"}):
        with auto_attempt(attempts, spark) as first:
            df = query()
            rows = sorted(df.collect())
            assert first.keep(df) == ["shuffle(file)", "shuffle(key)"]
            first.lose("shuffle(file)", 0)
        with auto_attempt(attempts, spark) as second:
            assert sorted(query().collect()) == rows
            back = second.put_back()
            assert back["shuffle(key)"] == 2
            assert back["shuffle(file)"] == int(spark.conf.get("spark.sql.shuffle.partitions", "0") or 0) - 1


@each_value(kept=["not kept", "kept"])
def test_what_is_made_of_another_choice_is_not_kept(
    spark: SparkSession, lines: Path, attempts: Attempts, tmp_path: Path, kept: str
) -> None:
    """Spark runs a task of the choice again, because an executor is lost, say, while tasks above it run: what these
    have made before is put back, and nothing that they make afterwards is kept. Nor does one that had begun before
    count as made of the new choice, once this is kept.
    """
    gate = Gate(tmp_path / "gate", waits="3a")
    settings = {**TASK_EACH, "spark.sql.adaptive.coalescePartitions.enabled": "false"}

    def query() -> DataFrame:
        passed = newest(read(spark, lines), 20).where(gate.passes(F.concat("key", "file")))
        return passed.groupBy("file").agg(F.sum("id"), F.count("*"))

    with configured(spark, settings):
        with auto_attempt(attempts, spark) as first:
            tracker, registry = MapOutputTracker(spark), first.application.registry
            with running(query(), gate) as rows:

                def made() -> bool:
                    store_what_is_there(spark, first)
                    above = registry.vertices[max(registry.vertices)]
                    return (
                        len(registry.vertices) == 2 and tracker.shuffles().get(above.number) == 3 and bool(above.stored)
                    )

                wait_until(made, "three of the tasks above to end")
                below = min(registry.vertices)
                again = next(tracker.statuses(below))
                place, reducers = tracker.places()[again.executor], registry.vertices[below].reducers
                new = again.task + 10**6
                tracker.register(below, again.index, new, place, [1] * reducers, again.checksum)
                if kept == "kept":
                    registry.vertices[below].tasks[again.index] = new
                gate.open()
                expected = sorted(rows.result())
            assert first.look() == ["shuffle(key)"]
            assert ("Spark has run tasks again" in first.skipped()) is (kept == "not kept")
        with auto_attempt(attempts, spark) as second:
            assert sorted(query().collect()) == expected
            back = second.put_back()
            assert back["shuffle(key)"] == 2
            assert 0 < back["shuffle(file)"] < 4


def test_a_function_behind_a_reused_shuffle_is_seen(spark: SparkSession, lines: Path) -> None:
    """Also if the shuffle itself is elsewhere in the query."""
    groups = read(spark, lines).groupBy("key").applyInPandas(lambda rows: rows.iloc[-1:], "id long, key long")
    with configured(spark, {"spark.sql.adaptive.enabled": "false"}):
        counted = groups.groupBy("id").count()
        plan = counted.union(counted)._jdf.queryExecution().executedPlan()
    (reused,) = (node for node in nodes(plan) if kind(node) == REUSED_EXCHANGE)
    assert "given rows that were shuffled" in functions_of_several_rows([reused], deeper=True)


def nodes(plan: Any) -> Iterator[Any]:
    """A plan's nodes, without what is reused."""
    yield plan
    for child in items(plan.children()):
        yield from nodes(child)


@pytest.mark.parametrize("costly", [True, False])
def test_a_cheap_choice_is_kept_for_what_is_made_of_it(
    spark: SparkSession, lines: Path, attempts: Attempts, monkeypatch: pytest.MonkeyPatch, costly: bool
) -> None:
    """By itself it is not worth its cost; with what can be put back only together with it, it is."""
    measured = KeptShuffle._measured

    def times(kept: KeptShuffle, maps: int) -> StageMetrics:
        seconds = 100.0 if costly and kept._title == "shuffle(file)" else 0.01
        return replace(measured(kept, maps), seconds=seconds)

    monkeypatch.setattr(KeptShuffle, "_measured", times)
    attempts.options = {"overhead_budget": "0.1"}
    with configured(spark, TASK_EACH):
        with auto_attempt(attempts, spark) as first:
            monkeypatch.setattr(first.application, "_costly_after", 0.0)  # plans are searched at once
            df = MADE["a shuffle"](read(spark, lines))
            rows = sorted(df.collect())
            assert first.keep(df) == (["shuffle(file)", "shuffle(key)"] if costly else [])
        with auto_attempt(attempts, spark) as second:
            assert sorted(MADE["a shuffle"](read(spark, lines)).collect()) == rows
            assert sorted(second.put_back()) == (["shuffle(file)", "shuffle(key)"] if costly else [])


@each_value(cut=["the same", "another"], adaptive=["true", "false"])
def test_what_was_made_of_another_broadcast_is_not_put_back(
    spark: SparkSession, lines: Path, attempts: Attempts, tmp_path: Path, cut: str, adaptive: str
) -> None:
    """Its files are cut differently in the retry, and so it takes other rows: what reads it is made of these."""
    read(spark, lines).select("key", "file").repartition(1).write.parquet(str(tmp_path / "read"))

    def query() -> DataFrame:
        last = read(spark, lines).groupBy("key").agg(F.last("id").alias("last"))
        return spark.read.parquet(str(tmp_path / "read")).join(F.broadcast(last), "key").groupBy("last").count()

    settings = {**TASK_EACH, "spark.sql.adaptive.enabled": adaptive}
    with configured(spark, settings), auto_attempt(attempts, spark) as first:
        df = query()
        taken = {row["last"] for row in df.collect()}
        assert first.keep(df) == ["shuffle(key)", "shuffle(last)"]
    bytes_of_a_task = {"spark.sql.files.maxPartitionBytes": "5000"} if cut == "another" else {}
    with configured(spark, settings | bytes_of_a_task):
        expected = sorted(query().collect())
        assert ({row["last"] for row in expected} == taken) is (cut == "the same")
        with auto_attempt(attempts, spark) as second:
            assert sorted(query().collect()) == expected
            assert ("shuffle(last)" in second.put_back()) is (cut == "the same")


ABOVE: dict[str, Callable[[DataFrame], DataFrame]] = {
    "a subquery": lambda df: df.where(f"id > ({_least()})").groupBy("file").count(),
    "a cached frame": lambda df: newest(df).cache().groupBy("file").count(),
}
"""What is made of it besides shuffles and broadcasts."""


def _least() -> str:
    """The text of a subquery whose value depends on which rows are taken."""
    place = "row_number() OVER (PARTITION BY key ORDER BY at DESC) AS place"
    return f"SELECT max(id) - 1200 FROM (SELECT id, {place} FROM lines) WHERE place <= 1"


@pytest.mark.few(2)
@pytest.mark.parametrize("case", ABOVE)
def test_what_is_made_of_it_otherwise_is_not_kept(
    spark: SparkSession, lines: Path, attempts: Attempts, case: str
) -> None:
    """A subquery or cached frame has chosen for all that reads it, and a retry chooses anew."""
    read(spark, lines).createOrReplaceTempView("lines")
    with configured(spark, TASK_EACH), auto_attempt(attempts, spark) as first:
        df = ABOVE[case](read(spark, lines))
        assert df.collect()
        assert first.keep(df) == (["shuffle", "shuffle(key)"] if case == "a subquery" else ["shuffle(key)"])
        assert ": it depends on the order of rows" in first.skipped()
    spark.catalog.clearCache()


BELOW: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "drawn": (lambda df: newest(df.sample(0.9, 7)), "Sample: it draws random numbers"),
    "in an order of chance": (
        lambda df: df.withColumn("at", F.row_number().over(Window.partitionBy("key").orderBy(F.rand(7)))).where(
            "at = 1"
        ),
        "Rand: it draws random numbers",
    ),
    "drawn for an aggregate": (
        lambda df: first_of_each(df.withColumn("id", F.rand(7))),
        "Rand: it draws random numbers",
    ),
    "choices, cached": (lambda df: newest(turned(newest(df, 30).cache())), "RowNumber"),
}
"""What it is made of, and what is said of it."""


@pytest.mark.few(2)
@pytest.mark.parametrize("case", BELOW)
def test_choices_among_rows_that_vary_are_not_kept(
    spark: SparkSession, lines: Path, attempts: Attempts, case: str
) -> None:
    """The rows below it have to be certain: else a retry would mix choices among other rows."""
    query, reason = BELOW[case]
    with configured(spark, TASK_EACH), auto_attempt(attempts, spark) as first:
        df = query(read(spark, lines))
        assert df.collect()
        kept = first.keep(df)
        assert reason in first.skipped()
        assert "shuffle(key)" not in kept if case != "choices, cached" else kept == ["shuffle(key)"]
    spark.catalog.clearCache()


def test_parts_of_a_query_have_taken_the_same_rows(spark: SparkSession, lines: Path, attempts: Attempts) -> None:
    """Two parts of a query that take the first rows of the same windows, with other columns: on one machine both
    take the same ones by plain Spark, and so they do in a retry for which one of the shuffles is lost.
    """

    def query() -> DataFrame:
        one = newest(read(spark, lines))
        return one.groupBy("file").count().join(one.groupBy("file").agg(F.sum("id").alias("ids")), "file")

    with configured(spark, {**TASK_EACH, "spark.sql.autoBroadcastJoinThreshold": "-1"}):
        with auto_attempt(attempts, spark) as first:
            df = query()
            rows = sorted(df.collect())
            assert sum(row["count"] for row in rows) == KEYS
            assert first.keep(df) == ["shuffle(file)", "shuffle(file)#2", "shuffle(key)", "shuffle(key)#2"]
            first.lose("shuffle(key)#2")
        with auto_attempt(attempts, spark) as second:
            assert sorted(query().collect()) == rows
            assert sorted(name.split("#")[0] for name in second.put_back()) == ["shuffle(file)", "shuffle(key)"]
