"""What Spark itself says it did: the executed plan of each query, its jobs, stages, tasks and the bytes shuffled."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PLAN = (
    (re.compile(r"#\d+L?"), "#"),
    (re.compile(r"\b(plan_id|id|runId|stageId|rdd|number|isFinalPlan)=\S+?(?=[,\]\s)]|$)"), r"\1=<>"),
    (re.compile(r"\[\d+\]"), "[<>]"),
    (re.compile(r"(file:)?(?<![\w.])/(?:[\w.=+%-]+/)+[\w.=+%-]*"), "<path>"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"(?<=[A-Za-z]_)[0-9a-f]{12}(?![0-9A-Za-z])"), "<uid>"),  # of a transformer of MLlib
    (re.compile(r"@[0-9a-f]+\b"), "@<hash>"),
    (
        re.compile(
            r"\b(RDD|rdd|\w*QueryStage|subquery|dynamicpruning|Subquery|lambda_?\w*?|x_|a_|i_|_gen_alias_)\D?\d+"
        ),
        r"\1<>",
    ),
    (re.compile(r"-?\b\d{12,}\b"), "<seed>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+"), "<now>"),
    (re.compile(r"Sample ([\d.]+), ([\d.]+), (\w+), -?\d+"), r"Sample \1, \2, \3, <seed>"),
    (re.compile(r"0x[0-9a-f]+"), "0x<hash>"),
    (re.compile(r"\$\$Lambda\$\d+"), "$$Lambda"),  # numbered in the order in which the JVM meets them
    (re.compile(r"WholeStageCodegen \(\d+\)"), "WholeStageCodegen (<>)"),  # numbered as the stages end
)
_SIDE = re.compile(r"\bBuild(Left|Right)\b")
_OF_A_SIDE = ("BroadcastQueryStage", "BroadcastExchange", "InputAdapter", "WholeStageCodegen")
"""Nodes that stand on the one side of a join or on the other, as it is broadcast or not."""


@dataclass
class Query:
    """One SQL execution.

    :ivar plan: the plan as it was at the end, a line for each node
    :ivar initial: the plan as it was at the beginning
    :ivar unsided: the plan at the end without what tells which side of a join was broadcast
    :ivar failed: it ended with an error; how many of its tasks ran before is chance
    """

    description: str
    plan: str
    jobs: int = 0
    stages: int = 0
    tasks: int = 0
    records: int = 0
    bytes: int = 0
    initial: str = ""
    unsided: str = ""
    failed: bool = False


@dataclass
class Run:
    """One application, or several one after another in one driver.

    :ivar other: jobs, stages and tasks outside of SQL executions
    """

    queries: list[Query] = field(default_factory=list)
    other: Counter[str] = field(default_factory=Counter)


def read_events(folder: Path) -> Run:
    """Read the event logs of a driver, application by application."""
    run = Run()
    files = [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(".")]
    for file in sorted(files, key=lambda file: file.stat().st_mtime):
        _application(file, run)
    return run


def _events(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            return  # the last line of a driver that was killed


def _application(file: Path, run: Run) -> None:
    queries: dict[int, Query] = {}
    query_of_stage: dict[int, int | None] = {}
    for event in _events(file):
        kind = event["Event"].rpartition(".")[2]
        if kind == "SparkListenerSQLExecutionStart":
            plan = _plan(event["sparkPlanInfo"])
            queries[event["executionId"]] = Query(event["description"], plan, initial=plan)
        elif kind == "SparkListenerSQLAdaptiveExecutionUpdate" and event["executionId"] in queries:
            query = queries[event["executionId"]]
            query.plan, query.unsided = _plan(event["sparkPlanInfo"]), unsided(event["sparkPlanInfo"])
        elif kind == "SparkListenerSQLExecutionEnd" and event["executionId"] in queries:
            queries[event["executionId"]].failed = bool(event.get("errorMessage"))
        elif kind == "SparkListenerJobStart":
            text = (event.get("Properties") or {}).get("spark.sql.execution.id")
            number = int(text) if text is not None else None
            query_of_stage |= dict.fromkeys(event["Stage IDs"], number)
            if number in queries:
                queries[number].jobs += 1
            else:
                run.other["jobs"] += 1
        elif kind == "SparkListenerStageCompleted":
            info = event["Stage Info"]
            found = queries.get(query_of_stage.get(info["Stage ID"]))  # type: ignore[arg-type]
            if found:
                found.stages += 1
            else:
                run.other["stages"] += 1
        elif kind == "SparkListenerTaskEnd":
            _task(event, queries.get(query_of_stage.get(event["Stage ID"])), run)  # type: ignore[arg-type]
    run.queries += [queries[number] for number in sorted(queries)]


def _task(event: dict[str, Any], query: Query | None, run: Run) -> None:
    if query is None:
        run.other["tasks"] += 1
        return
    query.tasks += 1
    written = (event.get("Task Metrics") or {}).get("Shuffle Write Metrics", {})
    query.records += written.get("Shuffle Records Written", 0)
    query.bytes += written.get("Shuffle Bytes Written", 0)


def _plan(info: dict[str, Any], depth: int = 0) -> str:
    lines = [f"{'  ' * depth}{_node(info)}"]
    return "\n".join([*lines, *(_plan(child, depth + 1) for child in info["children"])])


def unsided(info: dict[str, Any]) -> str:
    """A plan in one line. AQE broadcasts the side of a join that is small and ends first."""
    node, children = _node(info), [unsided(child) for child in info["children"]]
    if node.startswith(_OF_A_SIDE):
        return ", ".join(children)
    if node.startswith("BroadcastHashJoin"):
        node, children = _SIDE.sub("Build<>", node), sorted(children)
    return f"{node}({', '.join(children)})"


def _node(info: dict[str, Any]) -> str:
    text = info["simpleString"]
    for pattern, replacement in _PLAN:
        text = pattern.sub(replacement, text)
    return f"{info['nodeName'].split(' (')[0]}: {text}"


def plan_differences(plain: Run, other: Run, *, again: Sequence[Run] = (), tolerance: float = 0.05) -> list[str]:
    """Say which executions of plain Spark another run has not, and the reverse.

    :param again: other runs of plain Spark. What AQE makes of a plan can depend on which of two stages ends first, so
        that plain Spark does not always have equal plans: what one of its runs has is plain Spark's, and where its
        runs differ among themselves, only the plan that AQE begins with has to be equal
    :param tolerance: by which the bytes of a shuffle may differ, since rows are compressed in the order they come
    """
    lost, more = _unmatched(plain, other, tolerance)
    unsteady: set[str] = set()
    for run in again:
        gone, new = _unmatched(plain, run, tolerance)
        unsteady |= {query.initial for query in gone} & {query.initial for query in new}
        lost_again, _ = _unmatched(run, other, tolerance)
        lost = [query for query in lost if any(_equal(query, one, tolerance) for one in lost_again)]
        _, more = _unmatched(run, Run(more), tolerance)
    found = [f"only plain: {_shown(query)}" for query in lost if query.initial not in unsteady]
    found += [f"only the other: {_shown(query)}" for query in more if query.initial not in unsteady]
    if len(other.queries) not in {len(run.queries) for run in (plain, *again)}:
        found.append(f"{len(plain.queries)} queries by plain Spark, {len(other.queries)} by the other")
    if other.other not in [run.other for run in (plain, *again)]:
        found.append(f"outside of queries: {dict(plain.other)} and {dict(other.other)}")
    return found


def _unmatched(plain: Run, other: Run, tolerance: float) -> tuple[list[Query], list[Query]]:
    """What each of two runs has and the other has not, one query against one."""
    rest, lost = list(other.queries), []
    for query in plain.queries:
        match = next((one for one in rest if _equal(query, one, tolerance)), None)
        if match is None:
            lost.append(query)
        else:
            rest.remove(match)
    return lost, rest


def _equal(one: Query, other: Query, tolerance: float) -> bool:
    if (one.initial, one.failed) != (other.initial, other.failed):
        return False
    if one.plan != other.plan and (not one.unsided or one.unsided != other.unsided):
        return False
    if one.failed:
        return True
    if (one.jobs, one.stages, one.tasks, one.records) != (other.jobs, other.stages, other.tasks, other.records):
        return False
    return abs(one.bytes - other.bytes) <= max(200, tolerance * one.bytes)


def _shown(query: Query) -> str:
    return (
        f"{query.description.splitlines()[0] if query.description else '?'}: {query.jobs} jobs, {query.stages} stages, "
        f"{query.tasks} tasks, {query.records} records, {query.bytes} bytes shuffled\n{query.plan}"
    )
