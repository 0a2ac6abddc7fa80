"""What depends on chance, on how rows are cut or on their order is not kept: traps 3, 6, 8 and 12."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from airflow_provider.spark import step
from airflow_provider.spark.auto.cost import CopyingCost
from airflow_provider.spark.auto.seen_shuffles import SeenShuffles
from airflow_provider.spark.jvm.determinism import OF_PHYSICAL_PLANS
from airflow_provider.spark.jvm.session_settings import QuerySettings, all_settings
from tests.spark.attempts import Attempts
from tests.spark.auto.watched import AutoAttempt, auto_attempt, configured, shuffle_numbers
from tests.support.parameters import thinned
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = Callable[[pd.DataFrame], pd.DataFrame]
pytestmark = pytest.mark.spark

AS_PLANNED = {"spark.sql.adaptive.enabled": "false"}
"""An adaptive plan is filled from the bottom up, so what is cut anew ends it; another plan is filled anywhere."""
TOGETHER = {**AS_PLANNED, "spark.sql.files.minPartitionNum": "1", "spark.sql.files.openCostInBytes": "0"}
"""Settings under which one task reads both files of the orders, not a task each."""


def totals(df: DataFrame) -> DataFrame:
    return df.groupBy("customer").sum("amount")


def with_column(expression: str) -> Callable[[DataFrame], DataFrame]:
    from pyspark.sql import functions as F

    return lambda df: df.withColumn("drawn", F.expr(expression)).groupBy("customer").agg(F.max("drawn"))


def in_pandas_order(df: DataFrame) -> DataFrame:
    return df.pandas_api().reset_index().to_spark().groupBy("customer").max("index")  # type: ignore[union-attr]


CASES: dict[str, tuple[Callable[[DataFrame], DataFrame], list[str], str]] = {
    "orderBy": (lambda df: df.orderBy("amount", "customer"), [], "RangePartitioning"),
    "repartitionByRange": (lambda df: df.repartitionByRange(3, "customer"), [], "RangePartitioning"),
    "above repartitionByRange": (
        lambda df: totals(df.repartitionByRange(3, "amount")),
        [],
        "it depends on the order of rows in a shuffle that is not kept: its rows are spread by RangePartitioning",
    ),
    "rand": (with_column("rand(7)"), [], "Rand: it draws random numbers"),
    "uuid": (with_column("uuid()"), [], "Uuid: it draws random numbers"),
    "sample": (lambda df: totals(df.sample(0.5, 7)), [], "Sample: it draws random numbers"),
    "monotonically_increasing_id": (with_column("monotonically_increasing_id()"), [], "MonotonicallyIncreasingID"),
    "spark_partition_id": (with_column("spark_partition_id()"), [], "SparkPartitionID"),
    "input_file_name": (with_column("input_file_name()"), [], "InputFileName: it depends on how rows are spread"),
    "input_file_block_start": (with_column("input_file_block_start()"), [], "InputFileBlockStart: it depends on how"),
    "input_file_block_length": (with_column("input_file_block_length()"), [], "InputFileBlockLength: it depends on"),
    "pandas' default index": (in_pandas_order, [], "AttachDistributedSequence: it depends on how rows are spread"),
}
"""Name → query, which of its shuffles are kept, and what is said of one that is not."""
LIKE_ANOTHER = {
    "repartitionByRange",
    "spark_partition_id",
    "input_file_block_start",
    "input_file_block_length",
}
"""Cases that find what another one finds, in the same way; they are for the walk."""


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.walk) if case in LIKE_ANOTHER else case for case in CASES]
)
def test_what_depends_on_chance_is_not_kept(spark: SparkSession, orders: Path, attempts: Attempts, case: str) -> None:
    """No shuffle that is spread by chance, or stands above something that depends on chance; and it is said.

    The bounds of a range are sampled anew by each attempt, so its map outputs mean nothing to another one.
    """
    query, kept, reason = CASES[case]
    with auto_attempt(attempts, spark) as first:
        df = query(spark.read.parquet(str(orders)))
        df.collect()
        assert first.keep(df) == kept
        assert reason in first.skipped()


def test_what_spark_takes_for_not_deterministic_is_not_kept(
    spark: SparkSession, orders: Path, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the plan would not tell: Spark itself runs such map tasks again when a part of their input is lost."""
    monkeypatch.delitem(OF_PHYSICAL_PLANS, "RoundRobinPartitioning")
    unsorted = {**AS_PLANNED, "spark.sql.execution.sortBeforeRepartition": "false"}
    with configured(spark, unsorted), auto_attempt(attempts, spark) as first:
        df = totals(spark.read.parquet(str(orders)).distinct().repartition(3))
        df.collect()
        assert first.keep(df) == ["shuffle(customer, amount)"]
        assert "Spark takes its rows for not deterministic" in first.skipped()


def test_one_query_never_sees_two_incarnations(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """Two parts of a query that come from one draw are computed in the same attempt, whatever is stored of one."""
    from pyspark.sql import functions as F

    def drawn() -> DataFrame:
        return spark.read.parquet(str(orders)).select(F.monotonically_increasing_id().alias("id"))

    def two_shuffles_up() -> DataFrame:
        return drawn().groupBy("id").count().groupBy("count").agg(F.max("id").alias("one"))

    def one_shuffle_up() -> DataFrame:
        return drawn().selectExpr("id", "id - id + 1 AS count").groupBy("count").agg(F.max("id").alias("other"))

    with configured(spark, AS_PLANNED), auto_attempt(attempts, spark) as first:
        df = two_shuffles_up()
        df.collect()
        assert len(shuffle_numbers(spark, df)) == 2
        first.keep(df)
    with configured(spark, TOGETHER), auto_attempt(attempts, spark):
        df = two_shuffles_up().join(one_shuffle_up(), "count")
        (row,) = df.collect()
        assert len(shuffle_numbers(spark, df)) == 3
        assert row.one == row.other


def test_a_function_of_whole_partitions_is_one_incarnation(
    spark: SparkSession, orders: Path, attempts: Attempts
) -> None:
    """What ``mapInPandas`` makes of whole partitions is not mixed with what it makes of partitions that are cut anew.

    Its function may number the rows of a partition, say. Directly below a shuffle the layout says how they are cut;
    further down nothing does.
    """

    def numbered(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        first = 0
        for frame in frames:
            yield frame.assign(number=range(first, first + len(frame)))[["number"]]
            first += len(frame)

    def numbers() -> DataFrame:
        return spark.read.parquet(str(orders)).mapInPandas(numbered, "number long")

    def distinct() -> DataFrame:
        return numbers().groupBy("number").count().groupBy().agg({"number": "count"}).toDF("how_many")

    def query() -> DataFrame:
        return distinct().crossJoin(numbers().groupBy().agg({"number": "max"}).toDF("last"))

    with configured(spark, AS_PLANNED), auto_attempt(attempts, spark) as first:
        df = distinct()
        (row,) = df.collect()
        assert row.how_many == 1000
        assert first.keep(df) == ["shuffle", "shuffle(number)"]
    with configured(spark, TOGETHER), auto_attempt(attempts, spark) as second:
        (row,) = query().collect()
        assert row.how_many == row["last"] + 1
        assert second.put_back() == {}


def of_groups(df: DataFrame, rows: Rows) -> DataFrame:
    return df.groupBy("customer").applyInPandas(rows, df.schema)


def of_two_groups(df: DataFrame, rows: Rows) -> DataFrame:
    customers = df.select("customer").distinct()

    def both(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
        return rows(left)

    return df.groupBy("customer").cogroup(customers.groupBy("customer")).applyInPandas(both, df.schema)


def of_partitions(df: DataFrame, rows: Rows) -> DataFrame:
    def each(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield rows(pd.concat(frames))

    return df.repartition(2, "customer").mapInPandas(each, df.schema)


@pytest.mark.few(1)
@pytest.mark.parametrize("apply", [of_groups, of_two_groups, of_partitions])
def test_a_function_sees_rows_in_one_order(
    spark: SparkSession, tmp_path: Path, attempts: Attempts, apply: Callable[[DataFrame, Rows], DataFrame]
) -> None:
    """A function that is given rows that were shuffled may take the last one of them, and another one the rest. A retry
    that cuts the files as before shuffles in the same order, and one that cuts them anew in another: then what the
    first attempt made of its order is not put back, or a row would be there twice.
    """
    for name, rows in (("large", range(300)), ("small", range(300, 500))):
        lines = (f'{{"customer": {row % 5}, "amount": {row}}}' for row in rows)
        (tmp_path / f"{name}.json").write_text("".join(f"{line:39}\n" for line in lines))

    def read() -> DataFrame:
        return spark.read.schema("customer long, amount long").json(f"{tmp_path}/*.json")

    def last() -> DataFrame:
        return apply(read(), lambda rows: rows.iloc[-1:]).groupBy("amount").count()

    def others() -> DataFrame:
        return apply(read(), lambda rows: rows.iloc[:-1]).groupBy("amount").count()

    # A task each has most of the large file, the small file, and the rest of the large one.
    cut = {**AS_PLANNED, "spark.sql.files.maxPartitionBytes": "8200", "spark.sql.files.openCostInBytes": "0"}
    with configured(spark, cut), auto_attempt(attempts, spark) as first:
        df = last()
        df.collect()
        assert "shuffle(amount)" in first.keep(df)
    for settings, put_back in ((cut, True), (TOGETHER, False)):
        with configured(spark, settings), auto_attempt(attempts, spark) as again:
            restored = last().union(others()).collect()
            assert ("shuffle(amount)" in again.put_back()) is put_back
        assert sorted(row.amount for row in restored) == list(range(500))


def test_an_observation_beside_what_was_kept_has_its_values(
    spark: SparkSession, orders: Path, attempts: Attempts
) -> None:
    """Spark finds no metrics below a stage that was made ahead, so a plan that is observed runs as written."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    def run() -> tuple[list[Any], DataFrame, Observation]:
        seen = Observation()
        orders_twice = spark.read.parquet(str(orders))
        df = totals(orders_twice.observe(seen, F.count("*").alias("rows")))
        return sorted(df.join(totals(orders_twice), "customer").collect()), totals(orders_twice), seen

    with configured(spark, {"spark.sql.autoBroadcastJoinThreshold": "-1"}):
        with auto_attempt(attempts, spark) as first:
            rows, kept, seen = run()
            kept.collect()
            assert first.keep(kept) == ["shuffle(customer)"]
            assert seen.get == {"rows": 2000}
        with auto_attempt(attempts, spark):
            again, _, seen = run()
            assert again == rows
            assert seen.get == {"rows": 2000}


def test_an_observation_above_which_a_shuffle_stands_has_its_values(
    spark: SparkSession, orders: Path, attempts: Attempts
) -> None:
    """What is observed below a shuffle is observed by every attempt, so the shuffle is not kept."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    def run() -> tuple[list[Any], DataFrame, Observation]:
        seen = Observation()
        df = totals(spark.read.parquet(str(orders)).observe(seen, F.count("*").alias("rows")))
        return sorted(df.collect()), df, seen

    with auto_attempt(attempts, spark) as first:
        rows, df, seen = run()
        assert first.keep(df) == []
        assert "an observation, whose metrics somebody waits for" in first.skipped()
        assert seen.get == {"rows": 2000}
    with auto_attempt(attempts, spark):
        again, _, seen = run()
        assert again == rows
        assert seen.get == {"rows": 2000}


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["udf", "mapInPandas"])
def test_an_accumulator_below_a_shuffle_counts_in_every_attempt(
    spark: SparkSession, orders: Path, attempts: Attempts, kind: str
) -> None:
    """A function that adds to an accumulator runs in every attempt, so the shuffle above it is not kept."""
    from pyspark.sql import functions as F

    def run() -> tuple[list[Any], DataFrame, int]:
        counter = spark.sparkContext.accumulator(0)
        df = spark.read.parquet(str(orders))
        if kind == "udf":

            def count(amount: int) -> int:
                counter.add(1)
                return amount

            df = df.withColumn("amount", F.udf(count, "long", useArrow=False)("amount"))
        else:

            def count_all(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
                for frame in frames:
                    counter.add(len(frame))
                    yield frame

            df = df.mapInPandas(count_all, df.schema)
        df = totals(df)
        return sorted(df.collect()), df, counter.value

    with auto_attempt(attempts, spark) as first:
        rows, df, counted = run()
        assert counted == 2000
        assert first.keep(df) == []
        assert "it uses an accumulator" in first.skipped()
    with auto_attempt(attempts, spark):
        again, _, counted = run()
        assert again == rows
        assert counted == 2000


@pytest.mark.few(1)
@pytest.mark.parametrize("case", ["with state", "with a watermark", "without state"])
def test_a_streaming_query_is_left_alone(
    spark: SparkSession, orders: Path, attempts: Attempts, tmp_path: Path, case: str
) -> None:
    """The shuffles of a stream belong to its own checkpoint: none is kept, whatever stands above it or below."""
    from pyspark.sql import functions as F

    stream = spark.readStream.schema("customer long, amount long").parquet(str(orders))
    mode = "append" if case == "without state" else "update"
    if case == "with state":
        df = totals(stream)
    elif case == "with a watermark":
        timed = stream.withColumn("time", F.timestamp_seconds("amount")).withWatermark("time", "1 minute")
        df = timed.groupBy("customer", "time").count()
    else:
        df = stream.repartition(3, "customer")
    with auto_attempt(attempts, spark) as first:
        writer = df.writeStream.format("noop").outputMode(mode).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        batch = query._jsq.streamingQuery().lastExecution()
        first.application.note(batch, QuerySettings(all_settings(spark)))
        for _ in range(30):
            first.application.look()
        assert first.kept() == []
        assert "a streaming query's own checkpoint is its recovery" in first.skipped()


@pytest.mark.parametrize("kind", thinned(["udf", "pandas_udf", "mapInPandas"], 3))
def test_a_function_that_draws_is_not_kept(spark: SparkSession, orders: Path, attempts: Attempts, kind: str) -> None:
    """Nothing above a Python function that reaches a source of chance is kept, though nobody has marked it; the reason
    names both.
    """
    from pyspark.sql import functions as F

    def key(amount: int) -> str:
        return f"{amount}-{uuid.uuid4()}"

    def keys(amounts: pd.Series) -> pd.Series:
        return amounts.map(key)

    def with_keys(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield frame.assign(key=keys(frame["amount"]))

    df = spark.read.parquet(str(orders)).select("customer", "amount")
    if kind == "mapInPandas":
        df = df.mapInPandas(with_keys, "customer long, amount long, key string")
    else:
        made = F.udf(key, "string") if kind == "udf" else F.pandas_udf(keys, "string")  # type: ignore[attr-defined]
        df = df.withColumn("key", made("amount"))
    with auto_attempt(attempts, spark) as first:
        df = df.groupBy("customer").agg(F.max("key"))
        df.collect()
        assert first.keep(df) == []
        name = {"udf": "key", "pandas_udf": "keys", "mapInPandas": "with_keys"}[kind]
        assert f"function '{name}' is not deterministic: it reaches uuid.uuid4" in first.skipped()


@pytest.mark.few(1)
@pytest.mark.parametrize("stopped", [False, True], ids=["one application", "an application each"])
def test_a_loop_that_waits_goes_on(
    spark: SparkSession, orders: Path, attempts: Attempts, tmp_path: Path, stopped: bool
) -> None:
    """What calls a function is counted in the whole attempt: the second question is not answered by the first one's
    rows, which were put back, though the script may have another application by then.
    """
    from pyspark.sql import functions as F

    flag = tmp_path / "flag"

    def question() -> DataFrame:
        there = F.udf(lambda _: flag.exists(), "boolean", useArrow=False)
        found = spark.read.parquet(str(orders)).select(there("customer").alias("there"))
        return found.groupBy().agg(F.bool_and("there").alias("there"))

    with auto_attempt(attempts, spark) as first:
        df = question()
        assert df.collect()[0][0] is False
        assert len(first.keep(df)) == 1
    with auto_attempt(attempts, spark) as second:
        flag.touch()
        again = question()
        assert again.collect()[0][0] is False
        assert second.put_back()
        if stopped:
            second.restorer._watcher._application = SeenShuffles(second.context, spark)  # as behind spark.stop()
        assert question().collect()[0][0] is True


class World:
    """What a Python function asks, and where outputs that were asked for wait until they may be written.

    :ivar target: the folder of the outputs
    """

    def __init__(self, folder: Path, spark: SparkSession, orders: Path) -> None:
        self._answer = folder / "answer"
        self._spark = spark
        self._orders = orders
        self._passes = folder / "passes"
        self._passes.mkdir()
        self.target = folder / "out"

    def say(self, answer: str) -> None:
        self._answer.write_text(answer)

    def ask(self) -> DataFrame:
        """A query whose tasks ask below a shuffle."""
        from pyspark.sql import functions as F

        file = self._answer
        answer = F.udf(lambda _: file.read_text(), "string", useArrow=False)
        answers = self._spark.read.parquet(str(self._orders)).select(answer("customer").alias("answer"))
        return answers.groupBy("answer").count()

    @contextmanager
    def pool(self) -> Iterator[ThreadPoolExecutor]:
        """Threads for writes, which pass at the end if they still wait."""
        with ThreadPoolExecutor(2) as pool:
            try:
                yield pool
            finally:
                for output in "ab":
                    if not (self._passes / output).exists():
                        self.let(output, "fail")

    def write(self, df: DataFrame, output: str) -> None:
        """Write what was answered, behind the shuffle, once that is let pass; or fail."""
        from pyspark.sql import functions as F

        gate = self._passes / output

        def passes(_: str) -> bool:
            import time

            while not gate.exists():
                time.sleep(0.02)
            if gate.read_text() == "fail":
                raise RuntimeError("this attempt ends here")
            return True

        passed = F.udf(passes, "boolean", useArrow=False)("answer")  # a filter would sink below the shuffle
        df.withColumn("passed", passed).write.parquet(f"{self.target}/{output}")

    def let(self, output: str, how: str) -> None:
        made = self._passes / f".{output}"
        made.write_text(how)
        made.rename(self._passes / output)

    def written(self, output: str) -> list[str]:
        return [row.answer for row in self._spark.read.parquet(f"{self.target}/{output}").collect()]


@pytest.fixture
def world(tmp_path: Path, spark: SparkSession, orders: Path) -> World:
    (tmp_path / "world").mkdir()
    return World(tmp_path / "world", spark, orders)


def one_more_is_kept(attempt: AutoAttempt, run: Future[None]) -> None:
    """Look until the next shuffle is in the store, while its query waits."""

    def ever_kept() -> int:
        return sum(vertex.has_finished for vertex in attempt.context.master.graph.vertices.values())

    before = ever_kept()

    def kept() -> bool:
        attempt.application.look()
        assert not attempt.skipped()
        if run.done():
            run.result()
        return ever_kept() > before

    wait_until(kept, "a shuffle is kept")


@pytest.mark.few(1)
@pytest.mark.parametrize("case", ["plain", "side by side", "of two cached frames", "of one cached frame"])
def test_an_output_that_is_left_out_shifts_nothing(
    spark: SparkSession, attempts: Attempts, world: World, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Two outputs ask the same at two times, and a retry leaves out the first one: the second one has its own answer of
    the first attempt, and not the first one's. If they read one cached frame they have one answer.
    """

    def frame() -> DataFrame:
        return world.ask().cache() if "cached" in case else world.ask()

    with auto_attempt(attempts, spark) as first, world.pool() as pool:
        world.say("at first")
        asked = frame()
        a = pool.submit(world.write, asked, "a")
        one_more_is_kept(first, a)
        if case != "side by side":
            world.let("a", "pass")
            a.result()
        world.say("later")
        if case != "of one cached frame":
            asked.unpersist()
            asked = frame()
        b = pool.submit(world.write, asked, "b")
        if case != "of one cached frame":
            one_more_is_kept(first, b)
        world.let("a", "pass")
        a.result()
        world.let("b", "fail")
        with pytest.raises(Exception, match="this attempt ends here"):
            b.result()
        asked.unpersist()
    with caplog.at_level(logging.INFO, "airflow_provider"), auto_attempt(attempts, spark) as second:
        world.say("in the retry")
        world.let("b", "pass")
        asked = frame()
        world.write(asked, "a")
        if case != "of one cached frame":
            asked.unpersist()
            asked = frame()
        world.write(asked, "b")
        asked.unpersist()
        assert second.put_back()
    assert "already written by attempt 1" in caplog.text
    assert world.written("a") == ["at first"]
    assert world.written("b") == ["at first" if case == "of one cached frame" else "later"]


def test_a_step_that_is_left_out_shifts_nothing(spark: SparkSession, attempts: Attempts, world: World) -> None:
    """The queries of a step, which a retry does not run, are counted by themselves."""

    def script(attempt: AutoAttempt, answer: str) -> tuple[list[str], list[str]]:
        def asked() -> list[str]:
            df = world.ask()
            rows = [row.answer for row in df.collect()]
            attempt.keep(df)
            return rows

        in_a_step = step("ask", asked, version="1")
        world.say(answer)
        return in_a_step, asked()

    world.say("at first")
    with auto_attempt(attempts, spark) as first:
        assert script(first, "later") == (["at first"], ["later"])
        assert len(first.kept()) == 2
    with auto_attempt(attempts, spark) as second:
        assert script(second, "in the retry") == (["at first"], ["later"])


@pytest.mark.parametrize("statement", ["CACHE TABLE asked", "cache lazy table asked", ""])
def test_what_is_cached_by_its_name_is_told_apart(
    spark: SparkSession, attempts: Attempts, world: World, statement: str
) -> None:
    """The functions of a view that SQL or the catalog caches have asked for that view; a retry has their answer."""

    def answers(attempt: AutoAttempt, answer: str) -> list[str]:
        world.say(answer)
        world.ask().createOrReplaceTempView("asked")
        spark.sql(statement) if statement else spark.catalog.cacheTable("asked")
        try:
            world.say("behind it")
            df = spark.table("asked")
            rows = [row.answer for row in df.collect()]
            assert {"cached(answer, count)", "shuffle(answer)"} <= set(attempt.keep(df))
            return rows
        finally:
            spark.catalog.uncacheTable("asked")

    eager = statement.startswith("CACHE TABLE")
    with auto_attempt(attempts, spark) as first:
        assert answers(first, "at first") == ["at first" if eager else "behind it"]
    with auto_attempt(attempts, spark) as second:
        assert answers(second, "in the retry") == ["at first" if eager else "behind it"]


def test_what_was_left_alone_is_counted(
    spark: SparkSession, attempts: Attempts, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script asks twice, and the first answer was too cheap to keep: a retry asks the first time anew, and is not
    given the second answer there.
    """

    def answers(attempt: AutoAttempt, answer: str) -> list[str]:
        world.say(answer)
        df = world.ask()
        rows = [row.answer for row in df.collect()]
        attempt.keep(df)
        return rows

    with auto_attempt(attempts, spark) as first:
        with monkeypatch.context() as patched:
            patched.setattr(CopyingCost, "too_high", lambda *_: "too costly")
            assert answers(first, "at first") == ["at first"]
        assert first.kept() == []
        assert answers(first, "later") == ["later"]
        assert len(first.kept()) == 1
    with auto_attempt(attempts, spark) as second:
        assert answers(second, "at first") == ["at first"]
        assert not second.put_back()
        assert answers(second, "in the retry") == ["later"]
        assert second.put_back()
