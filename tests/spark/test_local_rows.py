"""Rows that the script gives to ``createDataFrame``, as tables of audits and logs get them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from dateutil.tz import tzlocal  # type: ignore[import-untyped]
from pyspark.sql import Row

from airflow_provider.core.run_values import Value, value_of_one_run
from airflow_provider.spark.identity.local_rows import described
from tests.spark.attempts import Attempts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

AUDITS: dict[str, Callable[[str, SparkSession], Any]] = {
    "a time": lambda name, _: [(name, 20, datetime.now())],  # noqa: DTZ005 - as scripts do
    "a time of a zone": lambda name, _: [(name, 20, datetime.now(UTC))],
    "a text": lambda name, _: [(name, f"finished at {datetime.now(UTC):%Y-%m-%d %H:%M:%S}")],
    "a number": lambda name, _: [(name, time.time())],
    "an id": lambda name, _: [(name, str(uuid.uuid4()))],
    "the application": lambda name, spark: [(name, spark.sparkContext.applicationId)],
    "a dict": lambda name, _: [{"name": name, "at": datetime.now(UTC)}],
    "a Row": lambda name, _: [Row(name=name, at=datetime.now(UTC))],
    "inside": lambda name, _: [(name, [{"began": str(datetime.now(UTC))}])],
}


@pytest.mark.few(2)
@pytest.mark.parametrize("marked", AUDITS)
def test_an_audit_of_each_step_is_there_once(
    spark: SparkSession, attempts: Attempts, tmp_path: Path, marked: str
) -> None:
    """Whatever marks its rows as those of one run: a retry adds its own in the place of those of the attempt before."""
    for _ in range(3):
        with attempts.writes() as (_, output):
            output.prepare(spark)
            for name in ("orders", "customers"):
                audit = spark.createDataFrame(AUDITS[marked](name, spark))
                audit.write.mode("append").parquet(str(tmp_path / "audit"))
    found = spark.read.parquet(str(tmp_path / "audit"))
    assert sorted(row.asDict().get("name", row[0]) for row in found.collect()) == ["customers", "orders"]


def test_an_audit_that_the_retry_does_not_make_stays(spark: SparkSession, attempts: Attempts, tmp_path: Path) -> None:
    """Rows of other steps are other writes: what a retry skips is not taken back."""
    for names in (("orders", "customers"), ("customers", "items")):
        with attempts.writes() as (_, output):
            output.prepare(spark)
            for name in names:
                rows = [(name, datetime.now(UTC))]
                audit = spark.createDataFrame(rows, "name string, at timestamp")
                audit.write.mode("append").parquet(str(tmp_path / "audit"))
    names_there = [row.name for row in spark.read.parquet(str(tmp_path / "audit")).collect()]
    assert sorted(names_there) == ["customers", "items", "orders"]


def mark(value: Value) -> str:
    return "it holds this" if value in ("this", 7) else ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([("a", "this")], [("a", "that")]),
        ([("a", "this")], [("b", "this")]),
        ([("a", "this")], [("a", "this"), ("a", "this")]),
        ([("this", "a")], [("a", "this")]),
        ([("a", "this")], [["a", "this"]]),
        ([Row(a="this")], [Row(b="this")]),
        ([{"a": "this"}], [{"b": "this"}]),
        ([("this",)], [(None,)]),
        ([(7, True)], [(7, 1)]),
    ],
)
def test_what_marks_nothing_counts(one: Any, other: Any) -> None:
    """Other values, their order, their number, names and types tell rows apart, also where some values are marks."""
    found = [described(rows, mark) for rows in (one, other)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].identity != found[1].identity
    assert (found[0].of_each_run or found[0].identity) != (found[1].of_each_run or found[1].identity)


def test_marks_do_not_count() -> None:
    """Rows that differ in them alone are those of the same write; rows without any have one identity only."""
    one, other = described([("a", "this")], mark), described([("a", 7)], mark)
    assert one is not None
    assert other is not None
    assert one.of_each_run == other.of_each_run != ""
    assert one.marked == "it holds this"
    plain = described([("a", "that")], mark)
    assert plain is not None
    assert (plain.of_each_run, plain.marked) == ("", "")


def test_many_rows_are_data() -> None:
    """Of more than a thousand rows no value is a mark."""
    found = described([("a", "this")] * 1001, mark)
    assert found is not None
    assert not found.of_each_run


@pytest.mark.parametrize(
    "value",
    [datetime.min, datetime.max, 10**400, float("nan"), float("inf"), -9, True, None],  # noqa: DTZ901 - as scripts have
)
def test_values_that_no_clock_shows_are_no_marks(value: Any) -> None:
    """They have an identity, as all plain values."""
    now = time.time()
    found = described([("a", value)], lambda each: value_of_one_run((each,), now - 60, now, "app"))
    assert found is not None
    assert not found.of_each_run


@pytest.mark.parametrize(
    ("zone", "same"), [(None, False), (tzlocal(), False), (UTC, True), (ZoneInfo("Asia/Tokyo"), True)]
)
def test_times_of_the_drivers_zone(monkeypatch: pytest.MonkeyPatch, zone: tzinfo | None, same: bool) -> None:
    """Another machine may be in another one; then they are other moments."""
    found = set()
    try:
        for name in ("UTC", "Asia/Tokyo"):
            monkeypatch.setenv("TZ", name)
            time.tzset()
            made = described([("a", datetime(2026, 1, 1, tzinfo=zone))], lambda _: "")
            assert made is not None
            found.add(made.identity)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert len(found) == 2 - same
