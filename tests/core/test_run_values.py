"""By which values a plan is known to belong to one run."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider.core.run_values import Value, value_of_one_run

BEGIN = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
NOW = BEGIN + timedelta(minutes=10)
INSIDE = BEGIN + timedelta(minutes=3, microseconds=123456)
SECONDS = INSIDE.timestamp()
LOCAL = INSIDE.astimezone()
DRAWN = uuid.uuid4()


def found(value: Value) -> str:
    return value_of_one_run([value], BEGIN.timestamp(), NOW.timestamp(), "local-1772600767000")


@pytest.mark.parametrize(
    "value",
    [
        SECONDS,
        int(SECONDS),
        int(SECONDS * 1000),
        int(SECONDS * 10**6),
        int(SECONDS * 10**9),
        int((SECONDS + LOCAL.utcoffset().total_seconds()) * 10**6),  # type: ignore[union-attr]
        INSIDE.isoformat(),
        LOCAL.isoformat(),
        str(LOCAL.replace(tzinfo=None)),
        f"{INSIDE:%Y-%m-%d %H:%M}",
        f"{INSIDE:%Y%m%d%H%M%S}",
        f"run_{INSIDE:%Y%m%d_%H%M%S}_v2",
        f"{INSIDE:%Y-%m-%dT%H-%M-%SZ}",
    ],
    ids=str,
)
def test_the_time_of_the_attempt(value: Value) -> None:
    """A number of seconds or of parts of seconds, or a text, in UTC or local time, between begin and now."""
    assert found(value) == "it holds the time of this attempt"


@pytest.mark.parametrize(
    "value", [str(DRAWN), DRAWN.hex, f"load-{DRAWN}", str(DRAWN).upper()], ids=["usual", "hex", "inside", "upper"]
)
def test_a_uuid(value: str) -> None:
    """In its usual forms, also inside of a text."""
    assert found(value) == "it holds a UUID"


def test_the_application() -> None:
    """Spark's id of the application, also inside of a text."""
    assert found("by local-1772600767000") == "it holds the id of this Spark application"


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Customer#000000300",
        "2026-03-04",
        "20260304",
        "2026-03-03T05:08:00",
        (BEGIN - timedelta(seconds=7)).isoformat(),  # the end of a data interval that the attempt works on
        (BEGIN - timedelta(days=1)).timestamp(),
        int((NOW + timedelta(days=1)).timestamp() * 1000),
        "9999-99-99 99:99:99",
        "0123456789abcdef" * 4,
        0,
        -1,
        2**31 - 1,
        float("nan"),
        float("inf"),
    ],
    ids=str,
)
def test_what_any_run_may_hold(value: Value) -> None:
    """Days, moments of other days, keys, digests, numbers that are none."""
    assert found(value) == ""
