"""The page's view of a job: the report's numbers, every partition's state, and small whatever the job's size."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.core import events as ev
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.history import KEPT_EVENTS, JobHistory
from airflow_provider.core.job_view import MOST_CELLS, encode_runs, job_view, merge_cells
from airflow_provider.core.report import build_report
from tests.core.examples import HISTORY, done, end, init, start
from tests.core.examples import events as any_events


def told(events: list[ev.JobEvent]) -> tuple[ExecutionGraph, JobHistory]:
    graph, history = ExecutionGraph(), JobHistory()
    for event in events:
        history.observe(event, graph)
        graph.apply(event)
    return graph, history


def view_of(events: list[ev.JobEvent]) -> dict[str, object]:
    return job_view("job", *told(events))


def vertices_of(events: list[ev.JobEvent]) -> dict[str, dict[str, object]]:
    return {vertex["name"]: vertex for vertex in view_of(events)["vertices"]}  # type: ignore[attr-defined]


def decode(cells: str) -> str:
    return "".join(letter * int(length or 1) for letter, length in re.findall(r"([a-z])(\d*)", cells))


@given(st.text("rcml", max_size=60))
def test_runs_say_the_same_as_the_states(states: str) -> None:
    """Nothing is lost by writing runs."""
    assert decode(encode_runs(states)) == states


def test_a_cell_of_several_partitions_shows_the_one_that_most_wants_to_be_seen() -> None:
    """Lost before missing, missing before computed, computed before reused."""
    assert merge_cells("rrrcrmrlcc", 2) == "rcmlc"
    assert merge_cells("rcm", 2) == "cm"


def test_states_of_partitions_after_a_failure() -> None:
    """Kept, computed now, given up and not yet computed are told apart, index by index."""
    history = [
        start(1), init(1, parallelism=6), done(0), done(1), done(2),
        start(2), ev.PartitionsReset(epoch=2, vertex="v", indexes=(1, 2), reason="lost: not in the store"),
        init(2, parallelism=6), done(2, 2), done(4, 2),
    ]  # fmt: skip
    vertex = vertices_of(history)["v"]
    assert decode(str(vertex["cells"])) == "rlcmcm"
    assert [vertex[state] for state in ("reused", "computed", "lost", "missing")] == [1, 2, 1, 2]
    assert vertex["resets"] == [{"at": 0.0, "attempt": 2, "partitions": 2, "reason": "lost: not in the store"}]
    assert vertex["state"] == "RUNNING"


def test_what_finished_once_and_is_not_there_is_lost_also_without_its_events() -> None:
    """After a snapshot the graph alone says so."""
    graph, _ = told([start(1), init(1), done(0), done(1), end(1), start(2), init(2, layout="other")])
    (vertex,) = job_view("job", graph, JobHistory())["vertices"]
    assert decode(vertex["cells"]) == "ll"


def test_a_changed_vertex_supersedes_the_old_one() -> None:
    """The old one of the name counts no more towards progress; the new one says why it is computed."""
    history = [
        start(1), init(1, "old-f", name="a"), done(0, 1, "old-f"), done(1, 1, "old-f"), end(1, "old-f"),
        start(2), init(2, "new-f", 4, name="a", because=("function f changed",)), done(0, 2, "new-f"),
    ]  # fmt: skip
    view = view_of(history)
    old, new = cast("list[dict[str, object]]", view["vertices"])
    assert (old["state"], new["state"], new["because"]) == ("SUPERSEDED", "RUNNING", ["function f changed"])
    assert (view["stored"], view["partitions"]) == (1, 4)


def test_a_fresh_attempt_forgets_what_was_lost() -> None:
    """What an attempt gives up that starts afresh is no loss of this run."""
    history = [
        start(1), init(1), done(0), ev.PartitionsReset(epoch=1, vertex="v", indexes=(0,), reason="r"),
        start(2, fresh=True, reason="cleared"), init(2),
    ]  # fmt: skip
    assert decode(str(vertices_of(history)["v"]["cells"])) == "mm"


@given(st.lists(any_events, max_size=60))
def test_the_numbers_are_the_reports(events: list[ev.JobEvent]) -> None:
    """Whatever happened, page and task log tell the same sums."""
    graph, history = told(events)
    view, report = job_view("job", graph, history), build_report("job", graph)
    assert (view["state"], view["reused"], view["computed"]) == (
        report.state,
        report.partitions_reused,
        report.partitions_computed,
    )
    assert view["bytes_reused"] == report.bytes_reused
    assert view["retry"] == asdict(report.retry)
    for shown, reported in zip(view["vertices"], report.vertices, strict=True):
        assert (shown["reused"], shown["computed"]) == (reported.reused, reported.computed)
        assert (shown["would_reuse"], shown["would_save"]) == (reported.would_reuse, reported.would_save)
        assert shown["work"] == asdict(reported.work)
        assert shown["lost"] + shown["missing"] == reported.missing


def test_the_sums_of_a_history() -> None:
    """Time and bytes saved are those of reused partitions that the newest attempt came to."""
    view = view_of(HISTORY)
    assert (view["bytes_reused"], view["task_seconds_saved"], view["task_seconds"]) == (300, 6.0, 4.0)
    assert view["skipped"] == [{"name": "c", "reason": "not deterministic", "times": 1}]
    assert [attempt["state"] for attempt in view["attempts"]] == ["LOST", "FINISHED"]  # type: ignore[attr-defined]


def test_partitions_that_finish_one_after_the_other_are_one_sentence() -> None:
    """Newest first; a hundred thousand events do not push everything else out."""
    texts = [told["text"] for told in view_of([start(1), init(), *[done(i % 2) for i in range(500)], end()])["events"]]  # type: ignore[attr-defined]
    assert texts[:2] == ["recovery point 'v': finished", "recovery point 'v': 500 partitions stored"]
    assert len(texts) == 4


def test_an_output_is_told_by_its_name_once_it_is_written() -> None:
    """Not when its write begins, and not by its identity; nor is what recovery remembers for itself."""
    states: list[tuple[str, dict[str, Any]]] = [
        ("sink/0f3a", {"status": "BEGUN", "title": "file:/out"}),
        ("sink/0f3a", {"status": "WRITTEN", "title": "file:/out"}),
        ("unknown-sink/77", {"status": "RETURNED", "title": "table a"}),
        ("sink/0f3a", {"status": "TAKEN_BACK", "title": "file:/out"}),
        ("streaming/clicks", {"status": "RUNNING"}),
        ("streaming/clicks", {"status": "FINISHED"}),
        ("step/load", {"result": 1}),
        ("shuffle/x", {"rows": 1}),
        ("function/returned", {"value": 1}),
    ]
    events = [ev.CoordinatorSnapshot(epoch=1, coordinator=name, state=state) for name, state in states]
    texts = [told["text"] for told in view_of([start(1), *events])["events"]]  # type: ignore[attr-defined]
    assert texts[-2::-1] == [
        "output file:/out: written",
        "output table a: written",
        "output file:/out: taken back",
        "streaming/clicks: kept",
        "step/load: kept",
    ]


def test_a_fenced_drivers_events_are_not_told() -> None:
    """They changed nothing."""
    history = [start(1), init(), start(2), ev.JobFailed(epoch=1, error="late"), start(1)]
    assert [told["attempt"] for told in view_of(history)["events"]] == [2, 1, 1]  # type: ignore[attr-defined]


def test_a_long_story_is_cut() -> None:
    """Only the newest events, and no endless error."""
    history = [start(1), *[ev.VertexSkipped(epoch=1, name=str(i), reason="x" * 5000) for i in range(500)]]
    view = view_of(history)
    assert len(view["events"]) == KEPT_EVENTS  # type: ignore[arg-type]
    assert len(json.dumps(view)) < 200_000


def test_a_hundred_thousand_partitions_are_small() -> None:
    """In the worst mixture: every second one reused."""
    half = [done(index, 1, "v") for index in range(0, 100_000, 2)]
    rest = [done(index, 2, "v") for index in range(1, 100_000, 2)]
    graph, history = told(
        [start(1), init(1, parallelism=100_000), *half, start(2), init(2, parallelism=100_000), *rest]
    )

    assert len(json.dumps(job_view("job", graph, history))) < 200_000


def test_a_larger_job_shows_several_partitions_in_a_cell() -> None:
    """The grid stays within its bound, and no loss is hidden by it."""
    many = 3 * MOST_CELLS
    lost = ev.PartitionsReset(epoch=1, vertex="v", indexes=(7,), reason="r")
    graph, history = told([start(1), init(1, parallelism=many), done(7), lost])
    (vertex,) = job_view("job", graph, history)["vertices"]
    assert (vertex["cell_size"], len(decode(vertex["cells"])), decode(vertex["cells"])[2]) == (3, MOST_CELLS, "l")


def test_steps_and_doubts_are_shown_and_nothing_else_that_the_driver_remembers() -> None:
    """Steps and streaming queries; of a write only why its rows may be there twice."""
    graph, history = ExecutionGraph(), JobHistory()
    graph.apply(ev.AttemptStarted(epoch=1, at=1.0))
    states: dict[str, dict[str, Any]] = {
        "step/load": {"result": 1},
        "streaming/clicks": {"status": "FINISHED"},
        "sink/0f3a": {"status": "WRITTEN", "doubt": ""},
        "unknown-sink/77": {"status": "RETURNED", "doubt": "sink table a: rows may be there twice."},
        "shuffle/x": {"rows": 1},
    }
    for name, state in states.items():
        graph.apply(ev.CoordinatorSnapshot(epoch=1, at=2.0, coordinator=name, state=state))
    view = job_view("job", graph, history)
    assert view["kept"] == ["step/load", "streaming/clicks"]
    assert view["doubts"] == ["sink table a: rows may be there twice."] == build_report("job", graph).doubts
