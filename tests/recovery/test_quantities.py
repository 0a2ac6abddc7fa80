"""Quantities as people read them."""

from __future__ import annotations

import pytest

from airflow_provider.recovery.quantities import bytes_text


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
