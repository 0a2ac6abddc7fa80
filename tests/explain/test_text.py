"""How an explanation reads."""

from __future__ import annotations

import json

from airflow_provider.spark.auto.rules import Rule
from airflow_provider.spark.explain.explanation import ExplainedAction, ExplainedNode, ExplainedPoint, Explanation
from airflow_provider.spark.explain.text import _REASONS, WIDTH, format_explanation

ORDERS = ExplainedNode("LogicalRelation", "file:/data/orders", 3 * 2**20)
LINES = ExplainedNode("LogicalRelation", "file:/data/lineitem", 2**30)
TOTALS = ExplainedPoint("aggregate", "aggregate(l_orderkey)", 12.3, measured=True)
JOINED = ExplainedNode(
    "Join", "inner", children=(ORDERS, ExplainedNode("Aggregate", "l_orderkey", 512, (LINES,), TOTALS))
)


def explained(plan: ExplainedNode | None, **more: object) -> Explanation:
    return Explanation("job.py", [ExplainedAction(1, "write.parquet", "job.py:7", plan)], **more)  # type: ignore[arg-type]


def test_a_plan_is_a_tree_with_its_points() -> None:
    """Results stand above their inputs, several inputs are branches, and a point stands below its node."""
    assert format_explanation(explained(ExplainedNode("Sort", "price DESC", 2048, (JOINED,)))).splitlines() == [
        "1. write.parquet  job.py:7",
        "   Sort price DESC  2.0 KiB",
        "   Join inner",
        "   ├─ LogicalRelation file:/data/orders  3.0 MiB",
        "   └─ Aggregate l_orderkey  512 B",
        "        + recovery point 'aggregate(l_orderkey)': it reads much and returns little; computing takes about "
        "12.3 s; looked",
        "          at again when its shuffles have run",
        "      LogicalRelation file:/data/lineitem  1.0 GiB",
        "",
        "job.py: 1 action, 1 recovery point, 0 places not taken",
        "No Spark job ran",
    ]


def test_the_shuffles_that_are_kept() -> None:
    """They are told with the point for which they run."""
    point = ExplainedPoint("aggregate", "aggregate(a)", 9, shuffles=("shuffle(a)", "shuffle(b)"))
    text = " ".join(format_explanation(explained(ExplainedNode("Aggregate", "a", point=point))).split())
    assert "about 9.0 s; until then the files of shuffle(a), shuffle(b) are kept, task by task" in text


def test_a_place_that_is_not_worth_it_says_why() -> None:
    """It is told with its reason, counted apart, and is no recovery point."""
    point = ExplainedPoint("aggregate", "aggregate(a)", 0.01, "computing it takes about 0.0 s, which is too little")
    text = format_explanation(explained(ExplainedNode("Aggregate", "a", point=point)))
    assert "     - no recovery point 'aggregate(a)': computing it takes about 0.0 s, which is too little" in text
    assert "job.py: 1 action, 0 recovery points, 1 place not taken" in text


def test_what_is_stored_already_names_the_action() -> None:
    """A second action that finds the same rows reads them, and they are not counted twice."""
    point = ExplainedPoint("aggregate", "aggregate(a)", 5, kept_by=1)
    text = format_explanation(explained(ExplainedNode("Aggregate", "a", point=point)))
    assert "= recovery point 'aggregate(a)': stored by action 1, read from there" in text
    assert "0 recovery points, 0 places not taken" in text


def test_a_failed_script_is_told_in_its_last_line() -> None:
    """What was seen stands before, then that the script went no further, and why."""
    lines = format_explanation(explained(ORDERS, error="job.py:9: KeyError: 'x'", jobs={"parquet": 2})).splitlines()
    assert lines[-3:] == [
        "No job of the script ran; to make its plans, Spark itself ran: parquet 2",
        "The script went no further, which may be because its actions returned nothing here:",
        "  job.py:9: KeyError: 'x'",
    ]


def test_wide_and_deep_plans_stay_readable() -> None:
    """Long labels are cut; a chain of a hundred nodes is not indented."""
    plan = ExplainedNode("Project", ", ".join(f"column{i}" for i in range(100)))
    for _ in range(100):
        plan = ExplainedNode("Project", "a" * 300, children=(plan,))
    assert max(map(len, format_explanation(explained(plan)).splitlines())) <= WIDTH


def test_every_rule_has_its_reason() -> None:
    """A rule of auto mode that has none here would be told by its bare name."""
    assert {str(rule) for rule in Rule} <= _REASONS.keys()


def test_json_says_the_same() -> None:
    """All that is in the text is there for programs."""
    told = json.loads(json.dumps(explained(JOINED).to_dict()))
    (action,) = told["actions"]
    assert (action["action"], action["place"]) == ("write.parquet", "job.py:7")
    assert action["plan"]["children"][1]["point"]["name"] == "aggregate(l_orderkey)"
