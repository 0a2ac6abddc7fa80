"""A stored vertex goes while the job runs if all that reads it is committed and the script can name it no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow.dataset as ds
import pytest

from airflow_provider.spark import checkpoint
from airflow_provider.spark.interception import intercepted
from airflow_provider.spark.points.releasing import releasing
from airflow_provider.spark.sinks.once import SinksOnce
from airflow_provider.spark.sinks.take_back import OutputAttempt
from tests.spark.attempts import Attempts
from tests.spark.failing_tasks import Task, ids, stored
from tests.support.parameters import thinned
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider.spark.context import RecoveryContext

pytestmark = pytest.mark.spark


@contextmanager
def attempt(attempts: Attempts) -> Iterator[RecoveryContext]:
    """An attempt that lets go what it needs no more, and writes outputs once."""
    attempts.options = {"overhead_budget": "1e9", **attempts.options}
    with attempts.attempt() as context:
        sinks = SinksOnce(context, OutputAttempt(context.master))
        with releasing(context) as readers, intercepted(sinks.stages(), readers):
            yield context


def names(context: RecoveryContext) -> list[str]:
    """The vertices that are released, after a look at what may go."""
    context.rounds.wait(context.rounds.ask(), 60)
    vertices = context.master.graph.vertices.values()
    return [vertex.initialized.name for vertex in vertices if vertex.released]


def folders(context: RecoveryContext) -> list[str]:
    """The vertices that have objects in the store."""
    root = Path(context.master.store.uri.removeprefix("file://")) / context.master.prefix / "partitions"
    return sorted({path.relative_to(root).parts[0].rsplit("-", 1)[0] for path in root.rglob("*.parquet")})


def read(target: Path) -> list[int]:
    return sorted(ds.dataset(target, ignore_prefixes=[".", "_"]).to_table()["id"].to_pylist())


@pytest.mark.integration
def test_what_is_read_by_a_written_output_alone_goes_with_its_last_frame(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, reading: str
) -> None:
    """Not before the output is written, and not while the script has a frame that reads it, however it came by that."""
    target = tmp_path / "target"
    with attempt(attempts) as context:
        lower: DataFrame | None = checkpoint(spark.range(0, 40, 1, 4), "lower")
        assert lower is not None
        assert names(context) == []
        lower.write.parquet(str(target))
        assert names(context) == []
        above = lower.filter("id > 7").select("id")
        lower = None
        assert names(context) == []
        del above
        wait_until(lambda: names(context) == ["lower"], "it is released")  # not in the next round
        assert folders(context) == []
    with attempt(attempts) as context:
        checkpoint(spark.range(0, 40, 1, 4), "lower").write.parquet(str(target))
        assert folders(context) == []
    assert read(target) == list(range(40))


def view(df: DataFrame) -> object:
    df.createOrReplaceTempView("held")
    return None


def cached(df: DataFrame) -> object:
    df.filter("id > 3").cache()
    return None


def counted(df: DataFrame) -> object:
    return df.count()


def shown(df: DataFrame) -> object:
    return df.filter("id > 3").show()


def as_rdd(df: DataFrame) -> object:
    return df.rdd.getNumPartitions()


def in_a_subquery(df: DataFrame) -> object:
    df.createOrReplaceTempView("inner")
    try:
        return df.sparkSession.sql("SELECT id FROM range(50) WHERE id IN (SELECT id FROM inner)")
    finally:
        df.sparkSession.catalog.dropTempView("inner")


@pytest.mark.few(1)
@pytest.mark.parametrize("use", thinned([in_a_subquery, cached, shown, view, counted, as_rdd], 3))
def test_what_the_script_can_read_or_a_retry_asks_for_stays(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, use: Callable[[Any], object]
) -> None:
    """A view, a cached frame or a frame that reads it in a subquery holds it; of what an action has given rows, a retry
    asks again.
    """
    with attempt(attempts) as context:
        lower = checkpoint(spark.range(0, 40, 1, 4), "lower")
        held = use(lower)
        lower.write.parquet(str(tmp_path / "target"))
        del lower
        assert [names(context) for _ in range(4)] == [[]] * 4
        assert folders(context) == ["lower"]
        del held
        spark.catalog.dropTempView("held")
        spark.catalog.clearCache()


@pytest.mark.few(1)
@pytest.mark.parametrize("how", [{"deterministic": False}, {"version": "7"}])
def test_what_could_not_be_made_again_stays(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, how: dict[str, Any]
) -> None:
    """What is kept whole or not at all, and what only the script knows the state of."""
    with attempt(attempts) as context:
        checkpoint(spark.range(0, 40, 1, 4), "lower", **how).write.parquet(str(tmp_path / "target"))
        assert [names(context) for _ in range(2)] == [[], []]


def test_what_a_table_gets_that_nobody_can_look_into_stays(
    spark: SparkSession, attempts: Attempts, tmp_path: Path
) -> None:
    """Each attempt writes it."""
    with attempt(attempts) as context:
        lower = checkpoint(spark.range(0, 40, 1, 4), "lower")
        lower.write.parquet(str(tmp_path / "target"))
        lower.write.format("noop").mode("append").save()
        del lower
        assert [names(context) for _ in range(2)] == [[], []]


class Chain:
    """``first`` ← ``second`` ← ``third``, whose tasks note each run."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.tasks = {name: Task(folder, name) for name in ("first", "second", "third")}

    def second(self) -> DataFrame:
        first = checkpoint(self.tasks["first"].apply(self.spark.range(0, 40, 1, 4), 2), "first")
        return checkpoint(self.tasks["second"].apply(first, 3), "second")

    def third(self) -> DataFrame:
        return checkpoint(self.tasks["third"].apply(self.second(), 5), "third")

    def runs(self) -> dict[str, int]:
        return {name: sum(task.count().values()) for name, task in self.tasks.items()}


@pytest.fixture
def chain(spark: SparkSession, tmp_path: Path) -> Chain:
    return Chain(spark, tmp_path / "runs")


@pytest.mark.integration
def test_a_chain_is_found_again_by_its_last_one(attempts: Attempts, chain: Chain) -> None:
    """The retry runs nothing of what is released, and calls nothing lost."""
    with attempt(attempts) as context:
        assert ids(chain.third()) == list(range(0, 1200, 30))
        wait_until(lambda: names(context) == ["first", "second"], "both are released")
        assert folders(context) == ["third"]
    runs = chain.runs()
    with attempt(attempts) as context:
        assert ids(chain.third()) == list(range(0, 1200, 30))
        assert chain.runs() == runs
        assert folders(context) == ["third"]


@pytest.mark.integration
def test_what_a_killed_attempt_has_left_goes_before_anything_is_computed(
    spark: SparkSession, attempts: Attempts, chain: Chain, tmp_path: Path
) -> None:
    """A retry holds no more than an attempt that nobody kills: its first step finds only what it reads."""
    with attempts.attempt() as context:  # it ends before it could let anything go
        chain.third()
        assert folders(context) == ["first", "second", "third"]
        root = str(Path(context.master.store.uri.removeprefix("file://")) / context.master.prefix / "partitions")
    seen = tmp_path / "seen"

    def task(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        left = {path.relative_to(root).parts[0].rsplit("-", 1)[0] for path in Path(root).rglob("*.parquet")}
        with seen.open("a") as file:
            file.write("".join(f"{name}\n" for name in left))
        yield from frames

    with attempt(attempts):
        checkpoint(chain.third().coalesce(1).mapInPandas(task, "id long"), "fourth")
    assert {"third"} <= set(seen.read_text().split()) <= {"third", "fourth"}


@pytest.mark.integration
def test_a_released_vertex_that_is_needed_after_all_is_made_again(attempts: Attempts, chain: Chain) -> None:
    """In the same attempt, where the script names it again, and in a retry whose script reads it elsewhere."""
    for number in range(2):
        with attempt(attempts) as context:
            chain.third()
            wait_until(lambda: names(context)[:2] == ["first", "second"], "both are released")
            assert ids(checkpoint(chain.second().filter("id > 0"), f"other-{number}")) == list(range(6, 240, 6))
            assert chain.second().count() == 40


@pytest.mark.integration
def test_a_lost_reader_is_made_again_from_what_is_released(attempts: Attempts, chain: Chain, reading: str) -> None:
    """A restart computes it, and before that what it reads, upstream first; it counts as one failure."""
    with attempt(attempts) as context:
        third = chain.third()
        wait_until(lambda: names(context) == ["first", "second"], "both are released")
        stored(context, "third")[0].unlink()
        assert ids(checkpoint(third.selectExpr("id + 1 AS id"), "fourth")) == list(range(1, 1201, 30))
        newest = context.master.graph.newest
        assert newest is not None
        assert newest.restarts == 1
        assert ids(chain.third()) == list(range(0, 1200, 30))
