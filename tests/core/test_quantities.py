"""Quantities as people read them."""

from __future__ import annotations

import pytest

from airflow_provider.core.quantities import bytes_text, seconds_text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (5 * 2**20, "5.0 MiB"),
        (2**40, "1.0 TiB"),
        (2**50 * 1.5, "1.5 PiB"),
        (2**60, "1,024.0 PiB"),
    ],
)
def test_the_unit_suits_the_number(size: float, text: str) -> None:
    """Below 1,024 of a unit it is that unit; above the largest one, many of it."""
    assert bytes_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min 00 s"),
        (310, "5 min 10 s"),
        (3599.7, "1 h 00 min"),
        (7_380, "2 h 03 min"),
        (10_000_000, "2,777 h 46 min"),
    ],
)
def test_a_time_has_two_units_at_most(seconds: float, text: str) -> None:
    """Tenths of seconds, seconds, minutes, hours; rounded before it is cut, so that there are never 60 of a unit."""
    assert seconds_text(seconds) == text
