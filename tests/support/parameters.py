"""Parameters of tests."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest


def each_value(left: pytest.MarkDecorator = pytest.mark.walk, /, **axes: Collection[Any]) -> pytest.MarkDecorator:
    """Parametrize a test with all combinations of values, most of them in the walk only.

    :param left: the mark of those
    :param axes: name → values, or id → value. What is left has each value at least once, and beside a long axis the
        others in turn.
    """
    named = [
        dict(values) if isinstance(values, Mapping) else {str(value): value for value in values}
        for values in axes.values()
    ]
    sizes = [len(values) for values in named]
    kept = {tuple(_place(row, sizes, axis) for axis in range(len(sizes))) for row in range(max(sizes))}
    parameters = [
        pytest.param(
            *(value for _, value in combination),
            id="-".join(name for name, _ in combination),
            marks=[] if places in kept else left,
        )
        for places, combination in zip(
            itertools.product(*(range(size) for size in sizes)),
            itertools.product(*(values.items() for values in named)),
            strict=True,
        )
    ]
    return pytest.mark.parametrize(",".join(axes), parameters)


def thinned(values: Iterable[Any], every: int) -> list[Any]:
    """Return values, or tuples of values, as parameters: of so many in a row one, the others in the walk only."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=[pytest.mark.walk] if at % every else [])
        for at, value in enumerate(values)
    ]


def walk_most_cases(items: Iterable[pytest.Item]) -> None:
    """Leave to the walk what tests with the marker ``few(cases)`` have more: of each command's, as many stay, evenly
    chosen. Who asks for one case by its name gets it.
    """
    cases: dict[tuple[Any, ...], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("few") and not item.get_closest_marker("walk"):
            integration = item.get_closest_marker("integration") is not None
            cases[item.location[0], item.location[2].partition("[")[0], integration].append(item)
    for several in cases.values():
        (few,) = several[0].iter_markers("few")
        kept = {place * len(several) // few.args[0] for place in range(few.args[0])}
        for place, item in enumerate(several):
            if place not in kept:
                item.add_marker("walk")


def _place(row: int, sizes: list[int], axis: int) -> int:
    """Return which value of an axis a row has: all count up, and each axis falls behind in a way of its own."""
    return (row + axis * (row // sizes[axis])) % sizes[axis]
