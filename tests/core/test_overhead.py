"""What recovery costs an attempt: each second counted once."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import SimpleNamespace

import pytest

from airflow_provider.core import events as ev
from airflow_provider.core.history import JobHistory
from airflow_provider.core.job_view import job_view
from airflow_provider.core.overhead import OVERHEAD, Overhead, overhead_of, overhead_text
from airflow_provider.core.report import build_report, format_report
from tests.core.examples import start
from tests.support.replaying import replay


class _Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    times = SimpleNamespace(thread_time=lambda: clock.now / 2, monotonic=clock)
    monkeypatch.setattr("airflow_provider.core.overhead.time", times)
    return clock


def test_each_second_counts_once(clock: _Clock) -> None:
    """What is counted inside is not counted outside; what Spark does for the script is nobody's."""
    overhead = Overhead()
    with overhead.on("waiting"):
        clock.now += 4
        with overhead.not_ours():
            clock.now += 100
            with overhead.on("waiting"):
                clock.now += 2
        with suppress(ValueError), overhead.on("storing"):
            clock.now += 8
            raise ValueError
        clock.now += 16
    assert overhead.state(3) == {"attempt": 3, "spent": {"waiting": [11.0, 22.0], "storing": [4.0, 8.0]}}


def test_threads_do_not_count_each_others_time(clock: _Clock) -> None:
    """What a thread counts while another one is at something else is that thread's."""
    overhead = Overhead()

    def other() -> None:
        with overhead.on("storing"):
            clock.now += 2

    with overhead.on("looking"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert overhead.state(1)["spent"] == {"storing": [1.0, 2.0], "looking": [1.0, 2.0]}


def test_the_newest_attempts_overhead_is_in_report_and_view() -> None:
    """As far as it has said so; an earlier attempt's is not taken for it."""
    overhead = Overhead()
    overhead.set("in the JVM", 9.0, 0.0)
    overhead.set("in the JVM", 1.25, 0.0)
    overhead.add("looking", 0.5, 2.0)
    history = [start(1), ev.CoordinatorSnapshot(epoch=1, coordinator=OVERHEAD, state=overhead.state(1))]
    expected = {"in the JVM": {"cpu": 1.25, "seconds": 0.0}, "looking": {"cpu": 0.5, "seconds": 2.0}}
    graph = replay(history)
    report = build_report("job", graph)
    assert report.overhead == job_view("job", graph, JobHistory())["overhead"] == expected
    line = "Recovery took 1.8 s of CPU (and on the clock): in the JVM 1.2 s, looking 0.5 s (2.0 s)."
    assert line == overhead_text(expected)
    assert line in format_report(report).splitlines()
    graph = replay([*history, start(2)])
    assert overhead_of(graph.coordinators, 2) == build_report("job", graph).overhead == {}
    assert overhead_text({}) not in format_report(build_report("job", graph))
