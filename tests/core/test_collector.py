"""The collector is kept off while a large state is read, and no longer."""

from __future__ import annotations

import gc

import pytest

from airflow_provider.core.collector import no_collection


def test_the_collector_comes_back_at_the_end_of_the_outermost() -> None:
    """And not before, however deep they are nested."""
    with no_collection():
        with no_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_comes_back_after_an_error() -> None:
    """What is read may be damaged."""
    with pytest.raises(ValueError, match="damaged"), no_collection():
        raise ValueError("damaged")
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off() -> None:
    """Whoever has switched it off keeps it so."""
    gc.disable()
    try:
        with no_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
