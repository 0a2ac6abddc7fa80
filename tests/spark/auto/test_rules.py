"""Where the rules place recovery points, on small trees; no Spark."""

from __future__ import annotations

import pytest

from airflow_provider.spark.auto.rules import Node, Rule, below_order, placements


def scan(size: int = 1000) -> Node:
    return Node("LogicalRelation", size=size)


def project(child: Node, *, python: bool = False) -> Node:
    return Node("Project", (child,), python=python)


def python(child: Node) -> Node:
    return Node("ArrowEvalPython", (child,), python=True)


def aggregate(child: Node, label: str = "k") -> Node:
    return Node("Aggregate", (child,), label=label, shuffles=True)


def join(left: Node, right: Node, *, broadcast: int | None = None) -> Node:
    sent = frozenset() if broadcast is None else frozenset({broadcast})
    return Node("Join", (left, right), shuffles=not sent, broadcast=sent)


def sort(child: Node) -> Node:
    return Node("Sort", (child,), shuffles=True)


def placed(root: Node, *, returns_rows: bool = False, sink: bool = False) -> list[tuple[str, Rule]]:
    """Nodes and rules; with the place before the sink only if that is asked for."""
    found = [(found.node.name, found.rule) for found in placements(root, returns_rows=returns_rows)]
    return [place for place in found if sink or place[1] is not Rule.BEFORE_SINK]


@pytest.mark.parametrize("returns_rows", [False, True])
def test_cheap_plans_are_left_alone(returns_rows: bool) -> None:
    """Scans, projections, filters and broadcast joins by Spark itself get no point, whatever the action."""
    plan = join(project(scan()), Node("Filter", (scan(),)), broadcast=1)
    assert placed(plan, returns_rows=returns_rows) == []


def test_aggregates_and_windows_get_a_point_those_further_down_first() -> None:
    """Each aggregate and each window, in the order in which they are computed."""
    plan = sort(Node("Window", (project(aggregate(scan())),), shuffles=True))
    assert placed(plan) == [("Aggregate", Rule.AGGREGATE), ("Window", Rule.WINDOW)]


def test_an_input_of_a_shuffled_join_is_kept_if_it_was_shuffled_before() -> None:
    """A join below a join is; a plain scan is not."""
    inner = project(join(scan(), scan()))
    assert placed(join(inner, scan())) == [("Project", Rule.JOIN_INPUT)]


def test_an_input_of_an_aggregate_is_kept_if_it_was_shuffled_before() -> None:
    """A join below is, whatever is projected of it; a scan and a broadcast join are not."""
    assert placed(aggregate(project(join(scan(), scan())))) == [
        ("Project", Rule.AGGREGATE_INPUT),
        ("Aggregate", Rule.AGGREGATE),
    ]
    assert placed(aggregate(join(scan(), scan(), broadcast=1))) == [("Aggregate", Rule.AGGREGATE)]


def test_an_input_that_is_kept_already_is_not_kept_twice() -> None:
    """Over an aggregate that has its point, a projection and a filter are cheap."""
    plan = join(project(Node("Filter", (aggregate(scan()),))), scan())
    assert placed(plan) == [("Aggregate", Rule.AGGREGATE)]


def test_what_is_broadcast_is_left_alone_unless_it_runs_python() -> None:
    """The small side of a join is cheap, but a Python function need not be."""
    assert placed(join(scan(), aggregate(scan()), broadcast=1)) == []
    assert placed(join(scan(), aggregate(python(scan())), broadcast=1)) == [
        ("ArrowEvalPython", Rule.FUNCTION_BEFORE_SHUFFLE),
        ("Aggregate", Rule.AGGREGATE),
    ]


def test_results_of_python_functions_are_kept_before_they_are_shuffled() -> None:
    """Highest up, where least columns are left; and not again above the shuffle."""
    plan = sort(aggregate(project(python(scan()))))
    assert placed(plan) == [("Project", Rule.FUNCTION_BEFORE_SHUFFLE), ("Aggregate", Rule.AGGREGATE)]


def test_a_plan_without_a_shuffle_that_runs_python_is_kept_under_its_sink() -> None:
    """Its every row was dear, and the sink keeps none when the job dies."""
    assert placed(project(python(scan()))) == [("Project", Rule.FUNCTION_BEFORE_SINK)]
    assert placed(sort(aggregate(python(scan()))))[-1][1] is not Rule.FUNCTION_BEFORE_SINK


def test_a_join_is_kept_below_what_decides_its_files() -> None:
    """The script has said how many files there are to be, and how rows lie in them; what is covered is kept once."""
    spread = Node("Repartition", (project(join(scan(), scan())),), shuffles=True)
    for plan in (join(scan(), scan()), sort(join(scan(), scan())), sort(spread)):
        assert placed(plan, sink=True)[-1][1] is Rule.BEFORE_SINK
    assert placed(project(sort(spread)), sink=True)[-1] == ("Project", Rule.BEFORE_SINK)
    assert placed(sort(project(aggregate(scan()))), sink=True) == [("Aggregate", Rule.AGGREGATE)]
    assert placed(Node("Repartition", (project(scan()),), shuffles=True), sink=True) == []


def test_what_an_action_returns_is_kept_below_its_order() -> None:
    """Stored partitions have no order, so the sort and the limit stay above the point."""
    result = join(aggregate(scan()), scan())
    plan = Node("GlobalLimit", (Node("LocalLimit", (sort(project(result)),)),))
    assert placed(plan, returns_rows=True)[-1] == ("Project", Rule.RESULT)
    assert placed(plan)[-1] == ("Aggregate", Rule.AGGREGATE)


def test_a_projection_over_rows_without_an_order_is_kept_whole() -> None:
    """Only what passes on a sort's order is looked through."""
    over_sort, over_join = project(sort(scan())), project(join(scan(), scan()))
    assert below_order(over_sort).name == "LogicalRelation"
    assert below_order(over_join) is over_join


def test_bytes_read_are_those_that_are_left_of_a_scan() -> None:
    """Columns that a projection leaves out are not read; a join's estimate, a product, counts for nothing."""
    pruned = Node("Project", (scan(1000),), size=100)
    assert join(pruned, scan(50)).reads == 150
    assert Node("Project", (join(pruned, scan(50)),), size=50).reads == 150


def test_names_tell_the_rule_and_what_it_stands_on() -> None:
    """Short enough for a table."""
    names = [
        found.name for found in placements(join(aggregate(scan(), "a, b"), join(scan(), scan())), returns_rows=False)
    ]
    assert names == ["aggregate(a, b)", "join input(Join)", "before the sink(Join)"]
    (long,) = placements(aggregate(scan(), "column, " * 30), returns_rows=False)
    assert len(long.name) < 62


def test_a_point_below_another_splits_the_plan() -> None:
    """However far down; the highest does not."""
    inner = aggregate(scan(), "a")
    found = placements(aggregate(project(inner), "b"), returns_rows=False)
    assert [(place.node.label, place.splits) for place in found] == [("a", True), ("b", False)]
