"""What Python functions make of files that they read by themselves: kept for automatic retries, or with a version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider.spark import checkpoint
from airflow_provider.spark.interception import intercepted
from airflow_provider.spark.sinks.once import SinksOnce
from airflow_provider.spark.sinks.take_back import OutputAttempt
from tests.spark.attempts import Attempts, vertices
from tests.spark.auto.watched import auto_attempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class Rates:
    """A file with a number by which a function of the tasks multiplies."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path = spark, path
        self.are(2)

    def are(self, rate: int) -> None:
        self.path.write_text(str(rate))

    def read(self) -> DataFrame:
        path = str(self.path)

        def multiplied(frames: Iterator[Any]) -> Iterator[Any]:
            with open(path) as file:
                rate = int(file.read())
            for frame in frames:
                yield frame * rate

        return self.spark.range(1, 4, 1, 2).mapInPandas(multiplied, "id long")


@pytest.fixture
def rates(spark: SparkSession, tmp_path: Path) -> Rates:
    return Rates(spark, tmp_path / "rates")


@contextmanager
def writing(attempts: Attempts, spark: SparkSession) -> Iterator[None]:
    """An attempt that writes outputs once."""
    with attempts.attempt() as context:
        output = OutputAttempt(context.master)
        with intercepted(SinksOnce(context, output).stages()):
            output.prepare(spark)
            yield


def ids(df: DataFrame) -> list[int]:
    return sorted(row.id for row in df.select("id").collect())


@pytest.mark.integration
def test_a_recovery_point_is_kept_for_automatic_retries_alone(
    attempts: Attempts, rates: Rates, caplog: pytest.LogCaptureFixture
) -> None:
    """With what is made of it; and if nobody can tell whether an attempt is one, for none. The log says why."""
    caplog.set_level("INFO", "airflow_provider")
    for series, rate, expected, computed in (
        ("first", 2, [2, 4, 6], 2),
        ("first", 3, [2, 4, 6], 0),
        ("cleared", 3, [3, 6, 9], 2),
        ("", 4, [4, 8, 12], 2),
        ("", 5, [5, 10, 15], 2),
    ):
        attempts.series = series
        rates.are(rate)
        with attempts.attempt() as context:
            read = checkpoint(rates.read(), "read")
            assert ids(checkpoint(read.selectExpr("id + 1 AS id"), "made")) == [each + 1 for each in expected]
            assert {vertex.computed for vertex in vertices(context).values()} == {computed}
    assert (
        "checkpoint 'read' is computed again, because its functions read something by themselves (open)" in caplog.text
    )
    told = "Python functions read files or services by themselves (open), which may have changed: this attempt"
    assert caplog.text.count(told) == 3  # by each attempt that is no automatic retry
    assert "set the option source_version" in caplog.text


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["of the job", "of the recovery point"])
def test_with_a_version_it_is_as_any_other(attempts: Attempts, rates: Rates, how: str) -> None:
    """Whoever retries has it as long as the text is the same."""
    for series, version, rate, expected in (
        ("first", "monday", 2, [2, 4, 6]),
        ("cleared", "monday", 3, [2, 4, 6]),
        ("again", "tuesday", 4, [4, 8, 12]),
    ):
        attempts.series = series
        attempts.options = {"source_version": version} if how == "of the job" else {}
        rates.are(rate)
        with attempts.attempt():
            own = "" if how == "of the job" else version
            assert ids(checkpoint(rates.read(), "read", version=own)) == expected


def test_the_jobs_version_counts_for_functions_of_which_no_reading_is_seen(
    attempts: Attempts, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Another text: what any Python function makes is computed again, all else is reused."""
    caplog.set_level("INFO", "airflow_provider")

    def unseen(frames: Iterator[Any]) -> Iterator[Any]:
        yield from frames

    found: list[dict[str, int]] = []
    for version in ("monday", "monday", "tuesday"):
        attempts.options = {"source_version": version}
        with attempts.attempt() as context:
            plain = checkpoint(spark.range(1, 4, 1, 2), "plain")
            checkpoint(plain.mapInPandas(unseen, "id long"), "unseen")
            found.append({name: vertex.computed for name, vertex in vertices(context).items()})
    assert found == [{"plain": 2, "unseen": 2}, {"plain": 0, "unseen": 0}, {"plain": 0, "unseen": 2}]
    assert "checkpoint 'unseen' is computed again, because source_version was monday, is tuesday" in caplog.text
    assert "checkpoint 'plain' is computed again" not in caplog.text


def test_a_shuffle_is_put_back_for_automatic_retries_alone(
    attempts: Attempts, spark: SparkSession, rates: Rates
) -> None:
    """In auto mode, too."""
    for series, rate, expected, put_back in (
        ("first", 2, [2, 4, 6], {}),
        ("first", 3, [2, 4, 6], {"shuffle(id)": 2}),
        ("cleared", 4, [4, 8, 12], {}),
    ):
        attempts.series = series
        rates.are(rate)
        with auto_attempt(attempts, spark) as attempt:
            df = rates.read().groupBy("id").count()
            assert ids(df) == expected
            assert attempt.put_back() == put_back
            assert attempt.keep(df) == ["shuffle(id)"]


def overwrite(df: DataFrame, target: Path) -> None:
    df.write.mode("overwrite").parquet(str(target))


def append(df: DataFrame, target: Path) -> None:
    df.write.mode("append").parquet(str(target))


def create(df: DataFrame, target: Path) -> None:
    df.write.parquet(str(target))


def through_a_recovery_point(df: DataFrame, target: Path) -> None:
    append(checkpoint(checkpoint(df, "read").where("id > 0"), "some"), target)


@pytest.mark.few(1)
@pytest.mark.parametrize("write", [overwrite, append, create, through_a_recovery_point])
def test_an_output_is_written_again_once_the_task_was_cleared(
    attempts: Attempts, spark: SparkSession, rates: Rates, tmp_path: Path, write: Callable[[DataFrame, Path], None]
) -> None:
    """In the place of what the attempts before it have written, and not beside it."""
    target = tmp_path / "target"
    for series, rate, expected in (("first", 2, [2, 4, 6]), ("first", 3, [2, 4, 6]), ("cleared", 4, [4, 8, 12])):
        attempts.series = series
        rates.are(rate)
        with writing(attempts, spark):
            write(rates.read(), target)
        assert ids(spark.read.parquet(str(target))) == expected


def test_an_output_that_the_script_does_not_make_any_more_goes(
    attempts: Attempts, spark: SparkSession, rates: Rates, tmp_path: Path
) -> None:
    """Once the task was cleared, as with all rows that are others each time."""
    target = tmp_path / "target"
    spark.range(100, 101).write.parquet(str(target))
    for series in ("first", "cleared"):
        attempts.series = series
        with writing(attempts, spark):
            if series == "first":
                append(rates.read(), target)
                assert ids(spark.read.parquet(str(target))) == [2, 4, 6, 100]
            else:
                assert ids(spark.read.parquet(str(target))) == [100]


def make_table(df: DataFrame, target: Path) -> None:
    df.write.option("path", str(target)).saveAsTable("read_by_functions")


@pytest.mark.few(1)
@pytest.mark.parametrize("series", ["retried", "cleared"])
@pytest.mark.parametrize("write", [append, make_table])
def test_an_output_that_was_killed_behind_its_commit(
    attempts: Attempts,
    spark: SparkSession,
    rates: Rates,
    tmp_path: Path,
    write: Callable[[DataFrame, Path], None],
    series: str,
) -> None:
    """Its rows are there once, whoever retries; a table that is made stays as it is, unless the task was cleared."""
    target = tmp_path / "target"

    def died(*_: object) -> None:
        raise Killed

    with writing(attempts, spark), pytest.MonkeyPatch.context() as patched, suppress(Killed):
        patched.setattr(SinksOnce, "_returned", died)
        patched.setattr(SinksOnce, "_guarded", lambda self, do: do())
        write(rates.read(), target)
    assert ids(spark.read.parquet(str(target))) == [2, 4, 6]
    rates.are(3)
    attempts.series = series
    try:
        with writing(attempts, spark):
            write(rates.read(), target)
        spark.catalog.refreshByPath(str(target))
        stays = write is make_table and series == "retried"
        assert ids(spark.read.parquet(str(target))) == ([2, 4, 6] if stays else [3, 6, 9])
    finally:
        spark.sql("DROP TABLE IF EXISTS read_by_functions")


class Killed(BaseException):
    """Stands for the end of a driver."""
