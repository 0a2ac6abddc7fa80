"""The plans of a first attempt are the user's: what Spark's event log says of them is what it says without recovery."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.differential.differential import MORE_PLAIN_RUNS
from tests.differential.event_log import Query, Run, plan_differences, read_events, unsided
from tests.queries.query_data import query_suite
from tests.queries.runs import JOBS, ScriptRuns

FOR_EVENT_LOGS = {"spark.eventLog.rolling.enabled": "false", "spark.driver.memory": "3g"}


def differences_of(kind: str, scale: float, folder: Path, timeout: float, *, least: int) -> list[str]:
    """What is not plain Spark's in the event log of a first attempt at all queries of a suite, in one driver.

    Adaptive execution decides by what has ended first; a plan that a second plain run has is plain Spark's, too.
    """
    suite = query_suite(kind, scale, folder)
    runs = ScriptRuns(folder, JOBS / "queries.py", (str(suite.folder),), (), FOR_EVENT_LOGS, timeout=timeout)
    plain, recovered = folder / "eventlog-0", folder / "eventlog-1"
    for ended in (runs.plain(folder / "plain"), runs.attempt(folder / "recovered")):
        assert ended.code == 0, ended.log
    first, attempt, more = read_events(plain), read_events(recovered), list[Run]()
    assert len(first.queries) >= least
    while (found := plan_differences(first, attempt, again=more)) and len(more) < MORE_PLAIN_RUNS:
        runs.harness.attempts += 1
        ended = runs.plain(folder / f"plain-again-{len(more)}")
        assert ended.code == 0, ended.log
        more.append(read_events(folder / f"eventlog-{runs.harness.attempts}"))
    return found


@pytest.mark.walk
@pytest.mark.process
@pytest.mark.timeout(900)
def test_tpch_runs_plain_sparks_plans(tmp_path: Path) -> None:
    """TPC-H's executed plans, jobs, stages, tasks and bytes shuffled in a first attempt are plain Spark's."""
    assert differences_of("tpch", 0.05, tmp_path, 400, least=22) == []


@pytest.mark.walk
@pytest.mark.process
@pytest.mark.timeout(3 * 3600)
def test_tpcds_runs_plain_sparks_plans(tmp_path: Path) -> None:
    """TPC-DS's executed plans, jobs, stages, tasks and bytes shuffled in a first attempt are plain Spark's."""
    assert differences_of("tpcds", 1, tmp_path, 3600, least=99) == []


QUERY = Query("collect", "Exchange\n  Scan", 2, 3, 8, 1000, 50_000)


@pytest.mark.parametrize(
    "other",
    [
        replace(QUERY, plan="Scan"),
        replace(QUERY, jobs=3),
        replace(QUERY, stages=2),
        replace(QUERY, tasks=9),
        replace(QUERY, records=999),
        replace(QUERY, bytes=53_000),
    ],
)
def test_each_number_of_a_query_counts(other: Query) -> None:
    """A query with another plan, another number of jobs, stages, tasks or records, or more bytes is a difference."""
    assert len(plan_differences(Run([QUERY]), Run([other]))) == 2
    assert plan_differences(Run([QUERY]), Run([replace(QUERY, bytes=52_000)])) == []
    assert len(plan_differences(Run([QUERY]), Run([QUERY, QUERY]))) == 2


def test_what_plain_spark_does_now_and_then_is_no_difference() -> None:
    """A plan that one run of plain Spark has is plain Spark's; where its runs differ, the beginning counts."""
    other, begun = replace(QUERY, tasks=9), replace(QUERY, initial="Exchange")
    assert plan_differences(Run([QUERY]), Run([other]), again=[Run([other])]) == []
    assert plan_differences(Run([QUERY]), Run([replace(QUERY, tasks=7)]), again=[Run([other])]) == []
    assert len(plan_differences(Run([QUERY]), Run([replace(QUERY, tasks=7)]), again=[Run([QUERY])])) == 2
    assert len(plan_differences(Run([QUERY]), Run([begun]), again=[Run([other])])) == 1
    assert len(plan_differences(Run([QUERY]), Run([]), again=[Run([QUERY])])) == 2


def test_either_side_of_a_join_may_be_broadcast() -> None:
    """Adaptive execution takes the one that ends first. The rest of the plan has to be equal."""
    left, right, other = node("Scan a"), node("Scan b"), node("Scan c")
    plain = unsided(node("BroadcastHashJoin [k], BuildLeft", node("BroadcastExchange", left), right))
    assert unsided(node("BroadcastHashJoin [k], BuildRight", left, node("BroadcastExchange", right))) == plain
    assert unsided(node("BroadcastHashJoin [k], BuildRight", left, node("BroadcastExchange", other))) != plain
    assert unsided(node("SortMergeJoin [k]", left, right)) != unsided(node("SortMergeJoin [k]", right, left))


def node(text: str, *children: dict[str, Any]) -> dict[str, Any]:
    return {"nodeName": text.split()[0], "simpleString": text, "children": list(children)}
