"""What has finished is never run again: steps, pinned sources and streaming queries, over attempts of one job."""

from __future__ import annotations

import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.core.errors import ConfigurationError
from airflow_provider.spark import checkpoint, source, step, streaming
from tests.spark.attempts import Attempts, vertices

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

LIMIT = 10


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    return Attempts(tmp_path / "store")


@pytest.fixture
def calls() -> list[object]:
    return []


# -- step ------------------------------------------------------------------------------------------------


def test_a_step_runs_once_per_job(attempts: Attempts, tmp_path: Path) -> None:
    """A retry returns the result that the first attempt kept; the side effect happens once."""
    log = tmp_path / "log"

    def notify(word: str) -> dict[str, Any]:
        with log.open("a") as file:
            file.write(word)
        return {"word": word, "pair": (1, 2)}

    for _ in range(3):
        with attempts.attempt():
            assert step("notify", notify, "x") == {"word": "x", "pair": [1, 2]}
            assert step("notify", notify, "x") == {"word": "x", "pair": [1, 2]}
    assert log.read_text() == "x"


def test_a_step_whose_function_or_arguments_changed_runs_again(
    attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    """Another constant in the function, another argument: each makes it another step, and the log says so."""
    caplog.set_level(logging.INFO)
    with attempts.attempt():
        assert step("add", lambda x: x + 1, 1) == 2
    with attempts.attempt():
        assert step("add", lambda x: x + 1, 1) == 2
        assert "step/add: finished in attempt 1, not run again" in caplog.text
    with attempts.attempt():
        assert step("add", lambda x: x + 2, 1) == 3
        assert "step/add runs again: its function or its arguments have changed" in caplog.text
    with attempts.attempt():
        assert step("add", lambda x: x + 2, 5) == 7


def test_two_steps_of_one_name_are_two_steps(attempts: Attempts, calls: list[object]) -> None:
    """As in a loop over arguments."""
    for _ in range(2):
        with attempts.attempt():
            results = [step("square", lambda n: len(calls.append(n) or str(n * n)), n) for n in (1, 10)]
            assert results == [1, 3]


def test_dataframes_count_with_their_plan_and_inputs(spark: SparkSession, attempts: Attempts, tmp_path: Path) -> None:
    """The same frame read again is the same argument; a file more is another one."""
    folder, log = tmp_path / "in", tmp_path / "log"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), folder / "a.parquet")

    def count(df: DataFrame) -> int:
        with log.open("a") as file:
            file.write("x")
        return df.count()

    for expected, runs in ((2, 1), (2, 1)):
        with attempts.attempt():
            assert step("count", count, spark.read.parquet(str(folder))) == expected
        assert len(log.read_text()) == runs
    pq.write_table(pa.table({"id": [3]}), folder / "b.parquet")
    with attempts.attempt():
        assert step("count", count, spark.read.parquet(str(folder))) == 3


def test_a_version_stands_for_everything(attempts: Attempts, calls: list[object]) -> None:
    """The user vouches: other code under the same text is the same step."""
    with attempts.attempt():
        assert step("train", lambda: 1, version="1") == 1
    with attempts.attempt():
        assert step("train", lambda: 2, version="1") == 1
        assert step("train", lambda: 2, version="2") == 2


def test_what_cannot_be_told_apart_runs_at_every_attempt(
    attempts: Attempts, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """An open file among the arguments: the log says why, and how to say more."""
    with (tmp_path / "f").open("w") as handle:
        for _ in range(2):
            with attempts.attempt():
                assert step("write", lambda file: file.write("x"), handle) == 1
    assert (tmp_path / "f").read_text() == "xx"
    assert 'version="…"' in " ".join(
        caplog.messages
    )  # the text may be JSON, once PySpark's logger has touched pytest's handler


def save(model: dict[str, Any], folder: Path) -> None:
    (folder / "nested").mkdir()
    (folder / "nested" / "model.txt").write_text(model["weights"])


def load(folder: Path) -> dict[str, Any]:
    return {"weights": (folder / "nested" / "model.txt").read_text()}


def test_a_model_is_kept_with_the_users_own_save_and_load(attempts: Attempts, tmp_path: Path) -> None:
    """Trained once; a damaged model is trained again, and never loaded."""
    log = tmp_path / "log"

    def train() -> dict[str, Any]:
        with log.open("a") as file:
            file.write("x")
        return {"weights": "w" * 100}

    for _ in range(2):
        with attempts.attempt():
            assert step("train", train, save=save, load=load) == {"weights": "w" * 100}
    assert log.read_text() == "x"
    [stored] = (tmp_path / "store").rglob("model.txt")
    stored.chmod(0o644)
    stored.write_text("v" * 100)
    for _ in range(2):
        with attempts.attempt():
            assert step("train", train, save=save, load=load) == {"weights": "w" * 100}
    assert log.read_text() == "xx"


def test_a_failed_step_runs_again(attempts: Attempts, calls: list[object]) -> None:
    """Nothing is kept of it, and its error is the user's own."""

    def flaky() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("not yet")
        return len(calls)

    with attempts.attempt(), pytest.raises(ValueError, match="not yet"):
        step("flaky", flaky, version="1")
    for _ in range(2):
        with attempts.attempt():
            assert step("flaky", flaky, version="1") == 2


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}, "x" * 2**21])
def test_a_result_that_is_no_json_is_refused_with_the_remedy(attempts: Attempts, value: object) -> None:
    """Named, with what to do."""
    with attempts.attempt(), pytest.raises(ConfigurationError, match="save= and load="):
        step("odd", lambda: value, version="1")


def test_without_a_context_a_step_simply_runs(calls: list[object]) -> None:
    """Each time, and whatever it returns."""
    for _ in range(2):
        assert step("plain", calls.append, 1) is None
    assert calls == [1, 1]
    with pytest.raises(ConfigurationError, match="save= and load="):
        step("half", int, save=lambda value, folder: None)


# -- source ----------------------------------------------------------------------------------------------


def orders(spark: SparkSession, folder: Path) -> DataFrame:
    return source("orders", spark.read.parquet(str(folder)).withColumnRenamed("id", "order"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "orders"
    for day in (1, 2):
        (folder / f"day={day}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [day * 10, day * 10 + 1]}), folder / f"day={day}" / "a.parquet")
    return folder


def rows(df: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.order, row.day) for row in df.collect())


FIRST = [(10, 1), (11, 1), (20, 2), (21, 2)]


def test_a_retry_reads_the_files_of_the_first_attempt(
    spark: SparkSession, attempts: Attempts, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A new file and a new partition arrive between two attempts: the retry does not see them, and reuses all."""
    caplog.set_level(logging.INFO)
    with attempts.attempt():
        df = orders(spark, folder)
        assert rows(df) == FIRST
        assert rows(checkpoint(df, "kept")) == FIRST
    pq.write_table(pa.table({"id": [12]}), folder / "day=1" / "b.parquet")
    (folder / "day=3").mkdir()
    pq.write_table(pa.table({"id": [30]}), folder / "day=3" / "a.parquet")
    with attempts.attempt() as context:
        df = orders(spark, folder)
        assert rows(checkpoint(df, "kept")) == FIRST
        assert rows(df) == FIRST
        assert rows(df.where("day = 1")) == FIRST[:2]
        assert vertices(context)["kept"].computed == 0
    assert "source/orders: reading the 2 files that attempt 1 pinned; 2 others have arrived since" in caplog.text
    assert len(rows(source("orders", spark.read.parquet(str(folder)).withColumnRenamed("id", "order")))) == 6


def test_without_a_pin_a_new_file_changes_the_input(spark: SparkSession, attempts: Attempts, folder: Path) -> None:
    """What the pin is for."""
    for expected in (4, 5):
        with attempts.attempt() as context:
            assert checkpoint(spark.read.parquet(str(folder)), "kept").count() == expected
            assert vertices(context)["kept"].reused == 0
        pq.write_table(pa.table({"id": [12]}), folder / "day=1" / "b.parquet")


@pytest.mark.few(1)
@pytest.mark.parametrize("harm", ["removed", "changed", "list damaged"])
def test_a_pin_that_cannot_be_kept_is_renewed(
    spark: SparkSession,
    attempts: Attempts,
    folder: Path,
    tmp_path: Path,
    harm: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A pinned file is gone or changed, or the list is damaged: everything there is read, and the log says so."""
    with attempts.attempt():
        assert rows(checkpoint(orders(spark, folder), "kept")) == FIRST
    pinned = folder / "day=2" / "a.parquet"
    if harm == "removed":
        pinned.unlink()
    elif harm == "changed":
        pq.write_table(pa.table({"id": [99, 21]}), pinned)
        os.utime(pinned, (0, 0))
    else:
        [stored] = (tmp_path / "store").rglob("files.json")
        stored.chmod(0o644)
        stored.write_text(stored.read_text().replace("a.parquet", "x.parquet"))
    pq.write_table(pa.table({"id": [12]}), folder / "day=1" / "b.parquet")
    expected = {
        "removed": [*FIRST[:2], (12, 1)],
        "changed": [*FIRST[:2], (12, 1), (21, 2), (99, 2)],
        "list damaged": sorted([*FIRST, (12, 1)]),
    }[harm]
    with attempts.attempt():
        assert rows(checkpoint(orders(spark, folder), "kept")) == expected
    assert "is pinned anew" in caplog.text
    with attempts.attempt() as context:
        assert rows(checkpoint(orders(spark, folder), "kept")) == expected
        assert vertices(context)["kept"].computed == 0


def test_columns_taken_before_still_resolve(spark: SparkSession, attempts: Attempts, folder: Path) -> None:
    """As with checkpoint."""
    raw = spark.read.parquet(str(folder))
    with attempts.attempt():
        assert source("raw", raw).select(raw["id"]).where(raw["day"] == 1).count() == 2


def test_only_a_file_source_can_be_pinned(spark: SparkSession, attempts: Attempts, folder: Path) -> None:
    """A range, or a join: refused with what to give."""
    raw = spark.read.parquet(str(folder))
    with attempts.attempt():
        for df in (spark.range(3), raw.join(raw.select("id"), "id")):
            with pytest.raises(ConfigurationError, match="one file source"):
                source("odd", df)


# -- streaming -------------------------------------------------------------------------------------------


def test_a_query_that_finished_is_not_started_again_and_one_that_ran_goes_on(
    spark: SparkSession, attempts: Attempts, tmp_path: Path
) -> None:
    """The first attempt dies after a micro-batch: every row arrives once, and a third attempt starts nothing."""
    folder, target = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for part in range(3):
        pq.write_table(pa.table({"id": [part]}), folder / f"{part}.parquet")
    log = tmp_path / "starts"

    def start(location: str, dies_after: int = 10) -> Any:
        with log.open("a") as file:
            file.write(f"{location}\n")

        def write(batch: DataFrame, number: int) -> None:
            if number >= dies_after:
                raise RuntimeError("the driver dies")
            batch.write.mode("overwrite").parquet(f"{target}/batch={number}")

        stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(folder))
        writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", location)
        return writer.trigger(availableNow=True).start()

    with attempts.attempt(), pytest.raises(Exception, match="the driver dies"):
        streaming("copy", lambda location: start(location, dies_after=1))
    for _ in range(2):
        with attempts.attempt():
            told = streaming("copy", start)
            assert told["batches"] == 3
            assert json.loads(json.dumps(told)) == told
            assert sorted(row.id for row in spark.read.parquet(str(target)).collect()) == [0, 1, 2]
    starts = log.read_text().splitlines()
    assert len(starts) == 2
    assert len(set(starts)) == 1


@pytest.mark.parametrize("threads", [0, 2])
def test_a_batch_that_several_threads_write(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, threads: int
) -> None:
    """A stream goes on behind the batches that it has finished, so a retry keeps their rows, whoever wrote them."""
    source, targets = tmp_path / "in", [str(tmp_path / "a"), str(tmp_path / "b")]
    source.mkdir()
    for part in range(3):
        pq.write_table(pa.table({"id": [part]}), source / f"{part}.parquet")

    def write(batch: DataFrame, _: int) -> None:
        def to(target: str) -> None:
            batch.write.mode("append").parquet(target)

        with ThreadPoolExecutor(threads) if threads else nullcontext() as pool:
            list((pool.map if pool else map)(to, targets))

    for _ in range(2):
        with attempts.writes() as (_, output):
            output.prepare(spark)
            stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(source))
            writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "at"))
            writer.trigger(availableNow=True).start().awaitTermination()
            assert [spark.read.parquet(target).count() for target in targets] == [3, 3]


def test_what_a_step_returns_belongs_to_the_script(attempts: Attempts) -> None:
    """A script may take tasks off a list: neither its next call nor a retry gets the shortened one."""
    for _ in range(2):
        with attempts.attempt() as context:
            todo = step("todo", lambda: ["a", "b", "c"])
            assert todo == ["a", "b", "c"]
            todo.pop()
            context.master.note_overhead()
            (kept,) = [state for name, state in context.master.graph.coordinators.items() if "todo" in name]
            assert kept["result"] == ["a", "b", "c"]


class Copying:
    """A query that copies a folder, in a script that can be edited."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.source, self.target, self.log = spark, folder / "in", folder / "out", folder / "starts"
        self.source.mkdir()
        pq.write_table(pa.table({"id": [1, 2]}), self.source / "a.parquet")

    def start(self, factor: int, held: object = None) -> Any:
        """Return what starts it; *factor* is part of its code, as it were."""
        spark, source, target, log = self.spark, str(self.source), f"{self.target}/{factor}", str(self.log)

        def start(location: str) -> Any:
            with open(log, "a") as file:
                file.write(f"{location}\n")
            stream = spark.readStream.schema("id long").parquet(source).selectExpr(f"id * {factor} AS id")
            writer = stream.writeStream.option("checkpointLocation", location).trigger(availableNow=True)
            return (held, writer.start(target))[1]

        return start

    def ids(self, factor: int) -> list[int]:
        return sorted(row.id for row in self.spark.read.parquet(f"{self.target}/{factor}").collect())

    @property
    def starts(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def copying(spark: SparkSession, tmp_path: Path) -> Copying:
    return Copying(spark, tmp_path)


def test_an_edited_query_runs_again(attempts: Attempts, copying: Copying, caplog: pytest.LogCaptureFixture) -> None:
    """From the beginning, with a checkpoint location that none had before, each time that its function has changed
    since it finished; the log says so.
    """
    caplog.set_level(logging.INFO)
    for number, factor in enumerate((1, 1, 3, 3, 1), start=1):
        with attempts.attempt():
            assert streaming("copy", copying.start(factor))["batches"] == 1
        assert len(copying.starts) == (number + 1) // 2
        assert copying.ids(factor) == [factor, 2 * factor]
    assert len(set(copying.starts)) == 3
    assert (
        "streaming/copy: finished in attempt 1, but its function has changed: it runs from the beginning" in caplog.text
    )


def test_a_query_that_was_edited_while_it_ran_goes_on(attempts: Attempts, copying: Copying) -> None:
    """The usual fix of a query that has failed: its checkpoint is kept."""

    def dies(location: str) -> Any:
        copying.start(1)(location).awaitTermination()
        raise RuntimeError("the driver dies")

    with attempts.attempt(), pytest.raises(RuntimeError, match="the driver dies"):
        streaming("copy", dies)
    with attempts.attempt():
        streaming("copy", copying.start(3))
    assert len(copying.starts) == 2
    assert len(set(copying.starts)) == 1


def test_a_query_of_which_nobody_can_say_whether_it_was_edited_counts_as_the_same(
    attempts: Attempts, copying: Copying, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """One that holds an open file, unless a version stands for it; and one of which an older release has recorded no
    identity.
    """
    caplog.set_level(logging.INFO)
    with (tmp_path / "f").open("w") as handle:
        for factor in (1, 3):
            with attempts.attempt():
                streaming("copy", copying.start(factor, handle))
                streaming("versioned", copying.start(factor, handle), version=str(factor))
    assert len(copying.starts) == 3
    assert "streaming/copy: it is unknown whether its function has changed" in caplog.text
    result = {"id": "x", "batches": 7}
    with attempts.attempt() as context:
        context.master.remember("streaming/old", {"status": "FINISHED", "attempt": 1, "result": result})
        assert streaming("old", copying.start(5)) == result


def test_two_queries_of_one_name_are_two_queries(attempts: Attempts, copying: Copying) -> None:
    """Each has its own location and its own end."""
    for _ in range(2):
        with attempts.attempt():
            for factor in (1, 3):
                streaming("copy", copying.start(factor))
    assert len(set(copying.starts)) == len(copying.starts) == 2


def test_a_query_has_to_be_returned(attempts: Attempts) -> None:
    """A function that forgets it is told what it has to do."""
    with attempts.attempt(), pytest.raises(ConfigurationError, match="has to return the query"):
        streaming("nothing", lambda location: None)  # type: ignore[arg-type, return-value]
