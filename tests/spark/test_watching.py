"""What is learnt from watching a script; no Spark runs."""

from __future__ import annotations

import pytest

from airflow_provider.spark.application import CurrentApplication
from airflow_provider.spark.identity.known import Draws


class Context:
    """Stands for a ``SparkContext``."""


def test_nothing_of_it_is_believed_of_the_next_application(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark counts its RDDs and broadcast variables from 0 again, so an id would stand for other rows."""
    from pyspark import SparkContext

    first, second = Context(), Context()
    current = CurrentApplication()
    states = []
    for now in (first, first, None, second):
        monkeypatch.setattr(SparkContext, "_active_spark_context", now)
        states.append(current.state())
    assert states[0] is states[1]
    assert len({id(state) for state in states}) == 3


def test_a_draw_has_one_name_for_its_script() -> None:
    """Seeds are numbered as they come; one that a script gave stands for itself."""
    draws = Draws()
    draws.note(2**62)
    assert draws.name(2**62, left_open=False) == draws.name(2**62, left_open=True)
    assert draws.name(-(2**61), left_open=True) == draws.name(-(2**61), left_open=True)
    names = [
        draws.name(2**62, left_open=True),
        draws.name(-(2**61), left_open=True),
        draws.name(2**61, left_open=True),
        draws.name(2**61, left_open=False),
        draws.name(7, left_open=True),
        draws.name(0, left_open=True),
        draws.unnamed(),
        draws.unnamed(),
    ]
    assert len({*names}) == len(names)
