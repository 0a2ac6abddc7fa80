"""A pinned file that vanishes within an attempt: the source is pinned anew at once, its readers start over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider.core.errors import ResetFailed
from airflow_provider.core.failure import UnrecoverableError
from airflow_provider.spark import checkpoint, source, step
from tests.spark.attempts import Attempts, vertices

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

BEFORE = [(10, 1), (11, 1), (20, 2), (21, 2)]
AFTER = [(10, 1), (11, 1), (12, 1), (30, 3)]


class Orders:
    """A folder with a partition for each day, of which files come and go."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.resets: list[tuple[str, str]] = []
        for day in (1, 2):
            self.add(day, "a", [day * 10, day * 10 + 1])

    def add(self, day: int, name: str, ids: list[int]) -> None:
        (self.folder / f"day={day}").mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": ids}), self.folder / f"day={day}" / f"{name}.parquet")

    def change(self) -> None:
        """One of the files goes, a file and a partition come."""
        (self.folder / "day=2" / "a.parquet").unlink()
        self.add(1, "b", [12])
        self.add(3, "a", [30])

    def source(self, on_reset: Callable[[str, str], object] | None = None) -> DataFrame:
        read = self.spark.read.parquet(str(self.folder)).withColumnRenamed("id", "order")
        return source("orders", read, on_reset=on_reset)

    def told(self, name: str, reason: str) -> None:
        self.resets.append((name, reason))


def rows(df: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.order, row.day) for row in df.select("order", "day").collect())


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    options = {"restart_strategy_fixed_delay_delay": "10 ms", "restart_strategy_fixed_delay_attempts": "2"}
    return Attempts(tmp_path / "store", options={"recovery_points": "explicit", **options})


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> Orders:
    return Orders(spark, tmp_path / "orders")


def test_a_source_is_pinned_anew_in_the_middle_of_an_attempt(
    attempts: Attempts, orders: Orders, caplog: pytest.LogCaptureFixture
) -> None:
    """The checkpoint that meets the loss has the rows of the new listing, and so has the DataFrame that the script had
    before, under the same columns. The script is told once, log and event store say why, and a retry finds all of it.
    """
    with attempts.attempt() as context:
        frame = orders.source(orders.told)
        order = frame["order"]
        orders.change()
        kept = checkpoint(frame, "kept")
        assert rows(kept) == rows(frame) == AFTER
        assert kept.where(order > 11).count() == frame.where(order > 11).count() == 2
        assert rows(checkpoint(frame.where("day = 1"), "later")) == AFTER[:3]
        [(name, reason)] = orders.resets
        assert (name, reason.partition(",")[0]) == ("orders", "1 of its 2 files are gone or were changed")
        assert f"source/orders is pinned anew, and what reads it starts over: {reason}" in caplog.text
        assert context.master.graph.attempts[1].restarts == 1
        known = context.master.coordinator("source/orders")
        assert known is not None
        assert known["reason"] == reason
    with attempts.attempt() as context:
        frame = orders.source(orders.told)
        assert rows(checkpoint(frame, "kept")) == AFTER
        assert rows(checkpoint(frame.where("day = 1"), "later")) == AFTER[:3]
        assert {vertex.computed for vertex in vertices(context).values()} == {0}
    assert len(orders.resets) == 1


@pytest.mark.integration
def test_what_has_read_the_source_is_computed_again(attempts: Attempts, orders: Orders) -> None:
    """A recovery point that was complete before the loss, and one that reads only that: whatever reads them afterwards
    has the rows of the new listing. Nobody can read the old ones by mistake, and a retry finds the new ones.
    """

    def script(change: Callable[[], None]) -> tuple[DataFrame, list[tuple[int, int, int | None]]]:
        frame = orders.source()
        first = checkpoint(frame.where("day < 3"), "first")
        second = checkpoint(first.selectExpr("order", "day", "order * 2 AS twice"), "second")
        change()
        both = frame.join(second.select("order", "twice"), "order", "left").selectExpr("order", "day", "twice")
        found = checkpoint(both, "both").sort("order").collect()
        return second, [(row.order, row.day, row.twice) for row in found]

    expected = [(10, 1, 20), (11, 1, 22), (12, 1, 24), (30, 3, None)]
    with attempts.attempt() as context:
        second, found = script(orders.change)
        assert found == expected
        with pytest.raises(Exception, match="second-"):
            second.collect()
        # One that the script makes of what it had before is the new one.
        assert rows(checkpoint(second.where("twice > 20"), "third")) == [(11, 1), (12, 1)]
        assert not context.application.sources["source/orders"].on_reset
    with attempts.attempt() as context:
        second, found = script(lambda: None)
        assert found == expected
        assert rows(second) == AFTER[:3]
        assert {vertex.computed for vertex in vertices(context).values()} == {0}


@pytest.mark.few(1)
@pytest.mark.parametrize("look", ["rows", "step", "cache", "auto"])
def test_what_may_be_elsewhere_already_takes_another_attempt(
    attempts: Attempts, orders: Orders, look: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the script has looked at rows and does not want to be told, where some are cached, or auto mode looks on:
    the attempt fails as it would without a pin, and the next one has the new rows everywhere.
    """
    if look == "auto":
        attempts.options["recovery_points"] = "auto"
    with attempts.attempt() as context:
        frame = orders.source(orders.told if look == "cache" else None)
        if look == "rows":
            assert frame.count() == 4
        elif look == "step":
            assert step("count", lambda: 4, version="1") == 4
        other = orders.spark.range(3)
        if look == "cache":
            other.cache().count()
        orders.change()
        try:
            with pytest.raises(Exception, match=r"day=2/a\.parquet"):
                checkpoint(frame, "kept")
        finally:
            other.unpersist()
        assert "Only the next attempt can pin it anew" in caplog.text
        assert not context.application.resets
    with attempts.attempt():
        assert rows(checkpoint(orders.source(), "kept")) == AFTER
    assert orders.resets == []


def test_a_script_that_is_told_has_looked_at_its_own_risk(attempts: Attempts, orders: Orders) -> None:
    """With ``on_reset`` the source is pinned anew whatever the script has looked at."""
    with attempts.attempt():
        frame = orders.source(orders.told)
        assert frame.count() == 4
        orders.change()
        assert rows(checkpoint(frame, "kept")) == AFTER
    assert len(orders.resets) == 1


@pytest.mark.few(1)
@pytest.mark.parametrize("error", [ValueError("too late"), UnrecoverableError("too late")])
def test_a_script_may_refuse(attempts: Attempts, orders: Orders, error: Exception) -> None:
    """Whatever ``on_reset`` raises fails the attempt, with the source and what it said; the next attempt goes on from
    the new listing.
    """

    def refuse(name: str, reason: str) -> None:
        raise error

    with attempts.attempt():
        frame = orders.source(refuse)
        orders.change()
        with pytest.raises(ResetFailed, match=r"'orders' was pinned anew .* on_reset failed: .*too late") as raised:
            checkpoint(frame, "kept")
        assert raised.value.__cause__ is error
    with attempts.attempt():
        assert rows(checkpoint(orders.source(refuse), "kept")) == AFTER


def test_what_cannot_be_listed_is_not_pinned_anew(attempts: Attempts, orders: Orders) -> None:
    """A folder that is empty now, or partitions of other columns: the attempt fails."""
    with attempts.attempt() as context:
        frame = orders.source()
        (orders.folder / "day=2" / "a.parquet").unlink()
        orders.add(1, "a", [1])
        (orders.folder / "day=1" / "a.parquet").rename(orders.folder / "a.parquet")
        (orders.folder / "day=1").rmdir()
        (orders.folder / "day=2").rmdir()
        with pytest.raises(Exception, match=r"day="):
            checkpoint(frame, "kept")
        assert not context.application.resets
