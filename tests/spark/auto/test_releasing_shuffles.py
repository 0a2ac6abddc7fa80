"""Kept shuffles serve a retry: they go when the output that they were for is written."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tests.spark.attempts import Attempts
from tests.spark.auto.gates import Gate
from tests.spark.auto.watched import AutoAttempt, auto_attempt
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NAME = "shuffle(customer)"


class Script:
    """Writes totals, once a gate is open that stands behind the shuffle."""

    def __init__(self, spark: SparkSession, orders: Path, folder: Path) -> None:
        self._spark = spark
        self._orders = orders
        self._gate = Gate(folder / "gate", "waits")
        self.target = folder / "target"

    def totals(self) -> DataFrame:
        return self._spark.read.parquet(str(self._orders)).groupBy("customer").sum("amount").toDF("customer", "total")

    def write(self) -> None:
        from pyspark.sql import functions as F

        passed = self._gate.passes(F.lit("waits"))
        self.totals().withColumn("passed", passed).write.parquet(str(self.target))

    def kept_and_written(self, attempt: AutoAttempt) -> None:
        """Write, and see to it that the shuffle is in the store before that."""
        self._kept(attempt, lambda _: self._gate.open()).result()

    def kept_and_cut_off(self, attempt: AutoAttempt) -> None:
        """The write fails when the shuffle is in the store."""

        def cut_off(writing: Future[None]) -> None:
            context = self._spark.sparkContext
            wait_until(lambda: context.cancelAllJobs() or writing.done(), "the write is cut off")

        assert "cancelled" in str(self._kept(attempt, cut_off).exception())

    def _kept(self, attempt: AutoAttempt, then: Callable[[Future[None]], object]) -> Future[None]:
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(self.write)
            try:
                wait_until(lambda: attempt.application.look() or attempt.kept() == [NAME], "the shuffle is kept")
                assert attempt.stored_files()
                then(writing)
            finally:
                self._gate.open()
        return writing


@pytest.fixture
def script(spark: SparkSession, orders: Path, tmp_path: Path) -> Script:
    return Script(spark, orders, tmp_path)


def stored(attempt: AutoAttempt) -> bool:
    """Whether map outputs are in the store, after a look at what may go."""
    attempt.application.look()
    attempt.context.master.delete_unneeded()
    return bool(attempt.stored_files())


def test_a_retry_looks_no_more_for_what_has_gone(spark: SparkSession, attempts: Attempts, script: Script) -> None:
    """What survived is put back into the output that it was kept for, and goes with that; no stage of a later query
    runs ahead in search of it.
    """
    with auto_attempt(attempts, spark) as attempt:
        script.kept_and_cut_off(attempt)
    with auto_attempt(attempts, spark) as attempt:
        assert len(attempt.restorer.wanted) == 1
        script.write()
        assert attempt.put_back() == {NAME: 2}
        assert not stored(attempt)
        assert attempt.restorer.wanted == set()
        assert not attempt.restorer.before(spark, script.totals()._jdf.queryExecution())


def test_what_was_kept_for_an_output_goes_when_that_is_written(
    spark: SparkSession, attempts: Attempts, script: Script
) -> None:
    """A retry leaves the output out, keeps and puts back nothing; the rows are there once."""
    with auto_attempt(attempts, spark) as attempt:
        script.kept_and_written(attempt)
        assert not stored(attempt)
    with auto_attempt(attempts, spark) as attempt:
        script.write()
        assert not stored(attempt)
        assert attempt.put_back() == {}
    assert pq.read_table(script.target).num_rows == 300


def test_what_gives_rows_to_the_script_stays(spark: SparkSession, attempts: Attempts, script: Script) -> None:
    """A retry runs that query again, whichever output shares its shuffle."""
    with auto_attempt(attempts, spark) as attempt:
        query = script.totals()
        query.collect()
        assert attempt.keep(query) == [NAME]
        script.kept_and_written(attempt)
        assert stored(attempt)
    with auto_attempt(attempts, spark) as attempt:
        assert len(script.totals().collect()) == 300
        assert attempt.put_back() == {NAME: 2}


def test_a_query_that_comes_later_keeps_its_own(spark: SparkSession, attempts: Attempts, script: Script) -> None:
    """What was released for an output is stored anew for a query whose rows the script gets."""
    with auto_attempt(attempts, spark) as attempt:
        script.kept_and_written(attempt)
        assert not stored(attempt)
        query = script.totals()
        query.collect()
        assert attempt.keep(query) == [NAME]
        assert stored(attempt)


def test_what_a_killed_driver_had_kept_for_a_written_output_goes_when_the_next_one_begins(
    spark: SparkSession, attempts: Attempts, script: Script
) -> None:
    """Nobody would ever ask for it."""
    with auto_attempt(attempts, spark) as attempt:
        script.kept_and_written(attempt)
        assert attempt.stored_files()
    with auto_attempt(attempts, spark) as attempt:
        assert not stored(attempt)
