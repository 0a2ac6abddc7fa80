"""What a job may hold of shuffles in its event store: what saves least per byte goes for others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.attempts import Attempts
from tests.spark.auto.watched import AutoAttempt, auto_attempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


QUICK, SMALL = "customer", "amount % 50"
SLOW = "aggregate(sequence(1, 9000 + amount), 0L, (sum, x) -> sum + x) % 50"


class Script:
    """Queries of one shuffle each."""

    def __init__(self, spark: SparkSession, orders: Path) -> None:
        self._spark = spark
        self._orders = orders

    def query(self, key: str) -> DataFrame:
        return self._spark.read.parquet(str(self._orders)).selectExpr("amount", f"{key} AS key").groupBy("key").sum()

    def rows(self, key: str) -> list[tuple[int, ...]]:
        return sorted(tuple(row) for row in self.query(key).collect())

    def held_with(self, attempt: AutoAttempt, key: str) -> int:
        """Bytes that the job holds when a query has run, and its shuffle was kept as far as it may be."""
        query = self.query(key)
        query.collect()
        attempt.keep(query)
        return attempt.context.master.graph.held


@pytest.fixture
def script(spark: SparkSession, orders: Path) -> Script:
    return Script(spark, orders)


@pytest.mark.integration
def test_of_two_shuffles_one_is_kept_where_there_is_room_for_one(
    spark: SparkSession, script: Script, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The job holds no more than it may, says what it does not keep, and a retry puts back what is there; the rows are
    plain Spark's.
    """
    keys = QUICK, SMALL
    expected = [script.rows(key) for key in keys]
    with auto_attempt(Attempts(tmp_path / "roomy"), spark) as attempt:
        one, both = (script.held_with(attempt, key) for key in keys)
    assert one < both
    budget = (one + both) // 2
    tight = Attempts(tmp_path / "tight", {"store_budget": str(budget)})
    with caplog.at_level("INFO"), auto_attempt(tight, spark) as attempt:
        assert max(script.held_with(attempt, key) for key in keys) <= budget
        assert "store_budget" in caplog.text + attempt.skipped()
        attempt.context.master.delete_unneeded()
        assert 0 < sum(path.stat().st_size for path in attempt.stored_files()) <= budget
    with auto_attempt(tight, spark) as attempt:
        assert [script.rows(key) for key in keys] == expected
        assert len(attempt.put_back()) == 1


@pytest.mark.integration
def test_what_took_longer_takes_the_place_of_what_took_less(
    spark: SparkSession, script: Script, attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    """And not the other way round."""
    with auto_attempt(attempts, spark) as attempt:
        size = script.held_with(attempt, QUICK)
    attempts.options, attempts.fresh = {"store_budget": str(size)}, "the test begins anew"
    with caplog.at_level("INFO"), auto_attempt(attempts, spark) as attempt:
        script.held_with(attempt, QUICK)
        quick = list(attempt.application.registry.vertices)
        script.held_with(attempt, SLOW)
        slow = list(attempt.application.registry.vertices)
        assert (len(quick), len(slow), quick != slow) == (1, 1, True)
        assert "given up for a shuffle that saves more" in caplog.text
        script.held_with(attempt, QUICK)
        assert "store_budget" in attempt.skipped()
        assert list(attempt.application.registry.vertices) == slow
