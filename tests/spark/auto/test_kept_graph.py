"""Kept shuffles are vertices like others: what they read is recorded, and stays so over all attempts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider.spark import checkpoint
from airflow_provider.spark.auto.keeping import KeptShuffle
from tests.spark.attempts import Attempts
from tests.spark.auto.watched import AutoAttempt, auto_attempt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def edges(attempt: AutoAttempt) -> dict[str, list[str]]:
    """By name, what each vertex reads."""
    vertices = {identity: vertex.initialized for identity, vertex in attempt.context.master.graph.vertices.items()}
    return {told.name: [vertices[upstream].name for upstream in told.upstream] for told in vertices.values()}


@pytest.mark.integration
def test_what_a_shuffle_reads_is_known_in_each_attempt(
    spark: SparkSession, orders: Path, attempts: Attempts, reading: str
) -> None:
    """A recovery point that the script names, and the shuffle below; an attempt that puts both back forgets neither."""
    read = {
        "even": [],
        "shuffle(customer, amount)": ["even"],
        "shuffle(customer)": ["shuffle(customer, amount)"],
    }

    def script(attempt: AutoAttempt) -> None:
        even = checkpoint(spark.read.parquet(str(orders)).where("amount % 2 = 0"), "even")
        sums = even.groupBy("customer", "amount").count().groupBy("customer").sum("amount")
        assert len(sums.collect()) == 300
        attempt.keep(sums)

    for number in range(3):
        with auto_attempt(attempts, spark) as attempt:
            script(attempt)
            assert edges(attempt) == read
            assert sum(attempt.put_back().values()) >= (2 if number else 0)


def test_what_is_kept_late_is_an_input_all_the_same(
    spark: SparkSession, orders: Path, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shuffle below is found worth keeping only after the one above; until then that reads what is below it."""
    query = (
        spark.read.parquet(str(orders))
        .groupBy("customer", "amount").count()
        .groupBy("customer").sum("amount")
        .groupBy("sum(amount)").count()
    )  # fmt: skip
    low, middle, high = "shuffle(customer, amount)", "shuffle(customer)", "shuffle(sum(amount))"
    look, late = KeptShuffle.look, {low, middle}

    monkeypatch.setattr(
        KeptShuffle, "look", lambda kept, available: None if kept._title in late else look(kept, available)
    )
    with auto_attempt(attempts, spark) as attempt:
        query.collect()
        assert attempt.keep(query) == [high]
        assert edges(attempt) == {high: []}
        late.remove(low)
        attempt.keep(query)
        assert edges(attempt) == {high: [low], low: []}
        late.remove(middle)
        attempt.keep(query)
        assert edges(attempt) == {high: [low, middle], middle: [low], low: []}


def test_a_fresh_start_gives_up_kept_shuffles(spark: SparkSession, orders: Path, attempts: Attempts) -> None:
    """Nothing of them is put back, and what is stored of them is deleted."""
    with auto_attempt(attempts, spark) as attempt:
        sums = spark.read.parquet(str(orders)).groupBy("customer").sum("amount")
        sums.collect()
        assert attempt.keep(sums) == ["shuffle(customer)"]
        assert attempt.stored_files()
    attempts.fresh = "somebody has cleared the task"
    with auto_attempt(attempts, spark) as attempt:
        assert (attempt.wanted, attempt.stored_files(), edges(attempt)) == (set(), [], {})
        assert len(spark.read.parquet(str(orders)).groupBy("customer").sum("amount").collect()) == 300
        assert attempt.put_back() == {}
