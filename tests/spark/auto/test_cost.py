"""When a recovery point is worth its price; no Spark."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.spark.auto.cost import (
    COPY_RATE,
    FIXED_PRICE,
    PLACING,
    PYTHON_FACTOR,
    PYTHON_START,
    READ_RATE,
    SPLIT_PRICE,
    WAVES,
    CostModel,
)
from airflow_provider.spark.auto.rules import Node, Placement, Rule

SIZES = st.integers(0, 2**50)
SECONDS = st.floats(0, 1e6)


def scan(size: int, *, python: bool = False) -> Node:
    return Node("LogicalRelation", size=size, python=python)


def test_computing_is_estimated_from_what_is_read() -> None:
    """By cores; Python functions take longer."""
    model = CostModel(0.1, cores=4)
    assert model.computing(scan(8 * READ_RATE)) == 2
    assert model.computing(scan(8 * READ_RATE, python=True)) == 2 * PYTHON_FACTOR


def test_short_work_is_not_worth_a_point() -> None:
    """The fixed price alone must fit the part of the budget that is for it."""
    model = CostModel(0.1, cores=2)
    assert model.too_cheap(FIXED_PRICE / 0.1 / PLACING - 0.01)
    assert not model.too_cheap(FIXED_PRICE / 0.1 / PLACING + 0.01)


def aggregates(*seconds: float) -> list[Placement]:
    """Points of a plan, one above the other, the work below each in seconds; those further down first."""
    found: list[Placement] = []
    for each in seconds:
        below = (found[-1].node,) if found else ()
        rest = each - (MODEL.computing(below[0]) if below else 0)
        node = Node("Aggregate", (*below, scan(round(rest * 2 * READ_RATE))))
        found.append(Placement(node, Rule.AGGREGATE, splits=True))
    return [*found[:-1], Placement(found[-1].node, Rule.AGGREGATE)]


def placed(found: list[Placement]) -> list[int]:
    """Which of them are worth their places."""
    refused = MODEL.not_placed(found[-1].node, found)
    return [number for number, placement in enumerate(found) if placement.node not in refused]


MODEL = CostModel(0.1, cores=2)
ONE, SPLIT = FIXED_PRICE / 0.1 / PLACING, (FIXED_PRICE + SPLIT_PRICE) / 0.1 / PLACING
"""Seconds of work that pay for a point, and for one below another."""


def test_points_that_are_placed_add_up() -> None:
    """A plan gets as many as the whole of it pays for, those with most work below first."""
    assert placed(aggregates(ONE - 1)) == []
    assert placed(aggregates(ONE + 1)) == [0]
    assert placed(aggregates(SPLIT + 1, SPLIT + ONE - 1)) == [1]
    assert placed(aggregates(SPLIT + 1, SPLIT + ONE + 1)) == [0, 1]
    assert placed(aggregates(SPLIT + 1, SPLIT + 2, SPLIT + ONE + 1)) == [1, 2]
    assert placed(aggregates(SPLIT + 1, SPLIT + 2, 2 * SPLIT + ONE + 1)) == [0, 1, 2]


def test_little_work_is_not_worth_a_point_in_a_large_plan_either() -> None:
    """A point has to pay for itself."""
    assert placed(aggregates(SPLIT - 1, 1000)) == [1]


@given(SECONDS, SIZES, SIZES)
def test_more_to_store_is_never_cheaper(seconds: float, size: int, more: int) -> None:
    """What is too dear stays too dear with more bytes, and what pays still pays with fewer."""
    model = CostModel(0.1, cores=2)
    if model.too_dear(seconds, size):
        assert model.too_dear(seconds, size + more)


@given(SECONDS, SIZES)
def test_what_is_stored_keeps_within_the_budget(seconds: float, size: int) -> None:
    """The price that was accepted is at most the budget's share of computing."""
    model = CostModel(0.1, cores=2)
    if not model.too_dear(seconds, size):
        assert seconds * 0.1 >= FIXED_PRICE


def test_the_first_point_that_tasks_store_pays_for_starting_python() -> None:
    """Unless computing it runs Python anyway."""
    seconds = (FIXED_PRICE + PYTHON_START) / 0.1
    plain, python = (CostModel(0.1, cores=2).price(scan(100, python=python)) for python in (False, True))
    assert plain.too_dear(seconds - 1, 1000, first=True)
    assert not plain.too_dear(seconds + 1, 1000, first=True)
    assert not plain.too_dear(seconds - 1, 1000)
    assert not python.too_dear(seconds - 1, 1000, first=True)


def test_a_pilot_is_a_small_share_or_none() -> None:
    """One wave of tasks, if there are eight; so what it stores in vain is at most an eighth."""
    price = CostModel(0.1, cores=2).price(scan(100))
    few, many = list(range(2 * WAVES - 1)), list(range(2 * WAVES))
    assert price.pilot(few) == []
    assert price.pilot(many) == [0, 1]


def test_a_pilot_is_judged_by_its_own_seconds() -> None:
    """Storing against computing, both as measured."""
    price = CostModel(0.1, cores=2).price(scan(100))
    assert price.pilot_too_dear(seconds=10, storing=0.5) == ""
    assert "2.0 s for storing what was computed in 8.0 s" in price.pilot_too_dear(seconds=10, storing=2)


@given(st.floats(1, 1e9), st.floats(0, 1e5), st.floats(0, 1e4))
def test_map_outputs_are_copied_within_the_budget(size: float, seconds: float, spent: float) -> None:
    """What has been spent and what is to be copied now take at most the budget's share of the tasks' time."""
    model = CostModel(0.1, cores=4)
    count = model.affordable(size, seconds=seconds, copied=0, spent=spent)
    assert count == 0 or spent + count * size / COPY_RATE <= 0.1 * 4 * seconds * 1.001


def test_a_slow_store_is_noticed() -> None:
    """Once copying has been measured, its own rate counts."""
    model = CostModel(0.1, cores=2)
    quick = model.affordable(2**20, seconds=100, copied=2**30, spent=1)
    slow = model.affordable(2**20, seconds=100, copied=2**20, spent=1)
    assert quick > 1000 > 20 > slow > 0
