"""Parameters of tests: what is left of all combinations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.parameters import each_value

pytest_plugins = ["pytester"]


@given(st.lists(st.integers(1, 5), min_size=2, max_size=3))
def test_each_value_is_run_and_each_combination_walked(sizes: list[int]) -> None:
    """Without the walk each value is there, in as many tests as the longest axis has values; with it, all are."""
    axes = {f"axis{number}": [f"{number}.{value}" for value in range(size)] for number, size in enumerate(sizes)}
    names, parameters = each_value(**axes).args
    assert names == ",".join(axes)
    run = [parameter.values for parameter in parameters if not parameter.marks]
    assert {value for values in run for value in values} == {value for values in axes.values() for value in values}
    product = 1
    for size in sizes:
        product *= size
    assert len(parameters) == len({parameter.values for parameter in parameters}) == product
    assert len(run) == max(sizes) or 1 in sizes


def test_two_short_axes_turn_beside_a_long_one() -> None:
    """Of four kinds and two switches each kind is there once, and each setting of the switches."""
    (_, parameters) = each_value(kind="abcd", one=[False, True], other={"on": 1, "off": 0}).args
    run = [parameter.values for parameter in parameters if not parameter.marks]
    assert run == [("a", False, 1), ("b", True, 0), ("c", True, 1), ("d", False, 0)]
    assert parameters[0].id == "a-False-on"


def test_of_many_cases_few_are_run(pytester: pytest.Pytester) -> None:
    """So many of those that each command has, evenly chosen; the others are walked, and one that is named is run."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.few(2)
        @pytest.mark.parametrize("case", [*range(6), pytest.param(6, marks=pytest.mark.integration)])
        def test_it(case): ...
        """
    )
    pytester.makeconftest("from tests.support.parameters import walk_most_cases as pytest_collection_modifyitems")
    items, _ = pytester.inline_genitems()
    assert [item.name for item in items if not item.get_closest_marker("walk")] == [
        "test_it[0]",
        "test_it[3]",
        "test_it[6]",
    ]
    (item,), _ = pytester.inline_genitems(f"{pytester.path}/test_of_many_cases_few_are_run.py::test_it[4]")
    assert not item.get_closest_marker("walk")
