"""The explanation of a job that has run: each attempt's share, a tree of recovery points, and what was skipped."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.core import events as ev
from airflow_provider.core.explanation import Amount, Explanation, explain_job
from airflow_provider.core.explanation_text import format_explanation
from airflow_provider.core.report import SkippedReport
from tests.core.examples import done, end, init, start
from tests.core.examples import events as any_events
from tests.support.replaying import replay

SHUFFLE = {"rule": ev.SHUFFLE}
SKIPPED = ev.VertexSkipped(epoch=1, name="count", reason="its plan has no shuffle")
HISTORY = [
    start(1), init(1, "lines", 4, name="shuffle(l_orderkey)", **SHUFFLE), *(done(i, 1, "lines") for i in range(4)),
    end(1, "lines"), init(1, "customers", 2, name="shuffle(c_custkey)", **SHUFFLE), done(0, 1, "customers"),
    init(1, "orders", 4, name="shuffle(o_orderkey)", upstream=("lines", "customers"), **SHUFFLE), done(0, 1, "orders"),
    SKIPPED, SKIPPED,
    start(2, reason="attempt 1 was lost"), ev.VertexReused(epoch=2, vertex="lines", layout="l"),
    init(2, "orders", 4, name="shuffle(o_orderkey)", upstream=("lines", "customers"), **SHUFFLE), done(1, 2, "orders"),
    init(2, "sessions", 2, upstream=("orders", "lines"), because=("function f changed",)), done(0, 2, "sessions"),
    ev.JobFailed(epoch=2, error="ValueError: no"),
]  # fmt: skip

TREE = """\
Job etl/run: FAILED in attempt 2

Attempt 1: LOST
  kept 6 map outputs (600 B), which took 12 s of task time
  skipped count (2 times), because its plan has no shuffle

Attempt 2: FAILED (ValueError: no)
  put back 5 map outputs (500 B), which saved 10 s of task time
  kept 2 map outputs and partitions (200 B), which took 4.0 s of task time

Recovery points, each above those that it reads (= stored by earlier attempts, # computed by attempt 2, . not stored)

recovery point                                              stored  put back  rows   size  task time  retry saves
sessions                            [##########..........]  1 of 2         0    10  100 B      2.0 s        2.0 s
│  computed again because function f changed
├─ shuffle(o_orderkey)              [=====#####..........]  2 of 4         1    20  200 B      4.0 s        4.0 s
│  ├─ shuffle(l_orderkey)           [====================]  4 of 4         4    40  400 B      8.0 s        8.0 s
│  └─ shuffle(c_custkey)            [==========..........]  1 of 2         0    10  100 B      2.0 s        2.0 s
│        not reached by attempt 2
└─ shuffle(l_orderkey) (see above)

A retry would reuse 8 of 12 map outputs and partitions and save about 16 s of task time."""


def explained(events: list[ev.JobEvent] = HISTORY, discarded: str = "") -> Explanation:
    return explain_job("etl/run", replay(events), discarded)


def test_each_attempt_says_what_it_kept_put_back_and_skipped() -> None:
    """What it stored itself, what it took over, and each reason once."""
    first, second = explained().attempts
    assert (first.state, second.state, second.note) == ("LOST", "FAILED", "ValueError: no")
    assert (first.put_back, first.kept) == (Amount(), Amount(6, 6, 600, 12.0))
    assert (second.put_back, second.kept) == (Amount(5, 5, 500, 10.0), Amount(2, 1, 200, 4.0))
    assert first.skipped == [SkippedReport("count", "its plan has no shuffle", 2)]
    assert second.skipped == []


def test_each_recovery_point_says_what_is_stored_and_what_a_retry_would_save() -> None:
    """Partitions, what the newest attempt took over and computed, and the time of what a retry would reuse."""
    points = {point.vertex: point for point in explained().points}
    orders = points["orders"]
    assert (orders.shuffle, orders.upstream, orders.partitions) == (True, ["lines", "customers"], 4)
    assert (orders.stored, orders.put_back, orders.computed) == (2, 1, 1)
    assert (orders.rows, orders.bytes, orders.task_seconds) == (20, 200, 4.0)
    assert (orders.would_reuse, orders.would_save) == (2, 4.0)
    assert points["customers"].notes == ["not reached by attempt 2"]
    assert points["sessions"].notes == ["computed again because function f changed"]
    assert (points["sessions"].shuffle, points["lines"].put_back) == (False, 4)


def test_what_a_whole_recovery_point_hides_was_not_needed() -> None:
    """At any depth; it is not said to be missing, and a retry does not need it either."""
    history = [
        start(1), init(1, "low", 1), done(0, 1, "low"), init(1, "middle", 2, upstream=("low",)),
        init(1, "high", 1, upstream=("middle",)), done(0, 1, "high"), end(1, "high"),
        start(2), ev.VertexReused(epoch=2, vertex="high", layout="l"),
    ]  # fmt: skip
    notes = {point.vertex: point.notes for point in explained(history).points}
    expected = ["not needed in attempt 2: high was put back whole"]
    assert notes == {"low": expected, "middle": expected, "high": []}


def test_the_text_is_a_tree_above_what_is_read() -> None:
    """Results first, each above what it reads, a second reader refers to the first; at last what a retry would save."""
    assert format_explanation(explained()) == TREE


def test_a_job_that_was_discarded_saves_nothing() -> None:
    """Each recovery point says so, and so does the last line."""
    told = explained(discarded="what attempt 2 and earlier ones stored was discarded by ann")
    assert {point.would_reuse for point in told.points} == {0}
    assert "a retry reuses nothing of it" in told.points[0].notes[-1]
    assert format_explanation(told).endswith("because what attempt 2 and earlier ones stored was discarded by ann.")


def test_a_job_that_kept_nothing_says_so() -> None:
    """The reasons are all there is to see."""
    text = format_explanation(explained([start(1), SKIPPED, ev.JobFinished(epoch=1)]))
    assert text.splitlines() == [
        "Job etl/run: FINISHED in attempt 1",
        "",
        "Attempt 1: FINISHED",
        "  kept nothing that is still stored",
        "  skipped count, because its plan has no shuffle",
        "",
        "The job has finished, so there is nothing to retry; when it ended, nothing was kept.",
    ]


@given(st.lists(any_events, max_size=60))
def test_every_recovery_point_has_one_line(events: list[ev.JobEvent]) -> None:
    """Whatever happened, circles included; the explanation is plain data."""
    told = explained(events)
    assert json.loads(json.dumps(told.to_dict())) == told.to_dict()
    assert len(re.findall(r" \[[=#.]{20}\] ", format_explanation(told))) == len(told.points)


def test_a_chain_of_a_thousand_shuffles_is_drawn() -> None:
    """No depth is too deep."""
    chain = [init(1, f"v{n}", upstream=(f"v{n - 1}",)) for n in range(1, 1500)]
    assert len(format_explanation(explained([start(1), init(1, "v0"), *chain])).splitlines()) > 1500
