"""The report: sums that are right, and a text that says what matters."""

from __future__ import annotations

import json

from airflow_provider.core import events as ev
from airflow_provider.core.report import RETURNED, build_report, format_report
from tests.core.examples import HISTORY, start
from tests.support.replaying import replay


def test_reused_and_computed_are_counted_for_the_newest_attempt() -> None:
    """Partitions of earlier attempts are reused, those of the newest computed; what it did not reach saves nothing."""
    report = build_report("job", replay(HISTORY))
    assert (report.state, report.partitions_reused, report.partitions_computed) == ("FINISHED", 3, 2)
    assert (report.bytes_reused, report.task_seconds_saved) == (300, 6.0)
    a, b, old = report.vertices
    assert (a.name, a.reused, a.computed, a.missing, a.reached, a.finished) == ("a", 2, 0, 0, True, True)
    assert (b.name, b.reused, b.computed, b.missing, b.rows, b.bytes) == ("b", 1, 2, 0, 30, 300)
    assert (b.task_seconds, b.task_seconds_saved) == (4.0, 2.0)
    assert (old.name, old.reached, old.missing) == ("old", False, 1)
    assert [(attempt.epoch, attempt.reason) for attempt in report.attempts] == [(1, ""), (2, "attempt 1 was lost")]
    assert [(skip.name, skip.reason) for skip in report.skipped] == [("c", "not deterministic")]


def test_what_a_retry_would_save_is_of_each_vertex_and_of_all() -> None:
    """The sum is over the vertices; a job that has finished has nothing to retry, so its text does not speak of it."""
    report = build_report("job", replay(HISTORY))
    assert [(vertex.would_reuse, vertex.would_save) for vertex in report.vertices] == [(2, 4.0), (3, 6.0), (1, 2.0)]
    assert (report.retry.reusable, report.retry.partitions, report.retry.task_seconds) == (6, 7, 12.0)
    assert "A retry would" not in format_report(report)
    failed = build_report("job", replay([*HISTORY[:-1], ev.JobFailed(epoch=2, error="no")]))
    last = "A retry would reuse 6 of 7 partitions and save about 12 s of task time."
    assert format_report(failed).splitlines()[-1] == last


def test_what_is_skipped_again_and_again_is_said_once() -> None:
    """With the number of times; what differs in name or reason stays apart."""
    skips = [("a", "r"), ("b", "r"), ("a", "r"), ("a", "s")]
    report = build_report("job", replay([start(1), *(ev.VertexSkipped(epoch=1, name=n, reason=r) for n, r in skips)]))
    assert [(skip.name, skip.reason, skip.times) for skip in report.skipped] == [
        ("a", "r", 2), ("b", "r", 1), ("a", "s", 1),
    ]  # fmt: skip
    lines = format_report(report).splitlines()
    assert {"  skipped a (2 times), b, because r", "  skipped a, because s"} <= set(lines)


def test_many_that_are_skipped_for_one_reason_are_one_line() -> None:
    """The first names, and how many more."""
    skips = [ev.VertexSkipped(epoch=1, name=f"query {n}", reason="no shuffle") for n in range(20)]
    (line,) = (
        line for line in format_report(build_report("job", replay([start(1), *skips]))).splitlines() if "no sh" in line
    )
    assert line.endswith("query 6, query 7 and 12 more, because no shuffle")


def test_a_first_attempt_reuses_nothing() -> None:
    """All of it was computed."""
    report = build_report("job", replay(HISTORY[:9]))
    assert (report.partitions_reused, report.partitions_computed, report.task_seconds_saved) == (0, 4, 0.0)


def test_the_report_is_plain_data() -> None:
    """It goes through JSON and XCom unchanged."""
    report = build_report("job", replay(HISTORY)).to_dict()
    assert json.loads(json.dumps(report)) == report
    assert report["vertices"][1]["name"] == "b"


def test_the_text_names_job_state_attempts_vertices_and_savings() -> None:
    """What a person looks for in the task's log, in aligned columns."""
    graph = replay(HISTORY)
    graph.problems.append("block 3 is missing")
    text = format_report(build_report("etl/run", graph))
    lines = text.splitlines()
    assert lines[0] == "Job etl/run: FINISHED in attempt 2"
    assert any("attempt 2: FINISHED (attempt 1 was lost)" in line for line in lines)
    header = next(line for line in lines if "partitions" in line and "computed" in line)
    row = next(line for line in lines if line.strip().startswith("b "))
    assert len(header) == len(row)
    assert row.split() == ["b", "3", "1", "2", "0", "30", "0.0", "4.0", "1.5", "2.0", "6.0"]
    assert any("old (not reached)" in line for line in lines)
    assert "  skipped c, because not deterministic" in lines
    assert "  note: block 3 is missing" in lines
    assert lines[-1] == "Reused 3 partitions (0.0 MiB), computed 2; saved 6.0 s of task time."


def test_the_attempt_in_the_headline_is_its_epoch() -> None:
    """An attempt that recorded nothing leaves a gap in the count, not in the numbering."""
    text = format_report(build_report("job", replay([start(1), start(5)])))
    assert text.splitlines()[0].endswith("in attempt 5")


def test_nothing_can_be_reported_too() -> None:
    """A job without events."""
    report = build_report("job", replay([]))
    assert (report.state, report.attempts, report.vertices) == ("NONE", [], [])
    assert "job" in format_report(report)


def test_what_a_task_function_returned_counts_only_from_the_attempt_that_succeeded() -> None:
    """One that returned and then died may be followed by one that returns something else, or that keeps nothing."""

    def returned(epoch: int, value: object) -> ev.CoordinatorSnapshot:
        return ev.CoordinatorSnapshot(epoch=epoch, coordinator=RETURNED, state={"attempt": epoch, "value": value})

    lost = [start(1), returned(1, "old")]
    assert build_report("j", replay(lost)).returned is None
    assert build_report("j", replay([*lost, start(2), ev.JobFinished(epoch=2)])).returned is None
    whole = [*lost, start(2), returned(2, None), ev.JobFinished(epoch=2)]
    assert build_report("j", replay(whole)).returned == {"value": None}
