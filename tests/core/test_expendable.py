"""What a running job can do without, and what stays: what could not be made again, and what saves most per byte."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider.core import events as ev
from airflow_provider.core.events import SHUFFLE
from airflow_provider.core.expendable import needed_no_more, room_for, shuffles_of_written_outputs
from airflow_provider.core.explain import GIVEN, READING
from airflow_provider.core.history import JobHistory
from airflow_provider.core.job_view import job_view
from airflow_provider.core.report import build_report, format_report
from airflow_provider.core.snapshot import decode_graph, encode_graph
from tests.core.examples import done, end, init, start
from tests.support.replaying import replay


def finished(vertex: str, *upstream: str, **fields: Any) -> list[ev.JobEvent]:
    return [init(1, vertex, 1, upstream=upstream, **fields), done(0, 1, vertex), end(1, vertex)]


def output(status: str, *reads: str, name: str = "sink/1") -> ev.JobEvent:
    return ev.CoordinatorSnapshot(epoch=1, coordinator=name, state={"status": status, "reads": list(reads)})


CHAIN = [start(), *finished("a"), *finished("b", "a"), *finished("c", "b")]


def test_of_a_chain_all_but_the_last_one_are_needed_no_more() -> None:
    """The last one is the script's to read, until an output that reads it is written."""
    assert needed_no_more(replay(CHAIN)) == ["a", "b"]
    assert needed_no_more(replay([*CHAIN, output("WRITING", "c")])) == ["a", "b"]
    assert needed_no_more(replay([*CHAIN, output("WRITTEN", "c")])) == ["a", "b", "c"]


def test_what_an_unfinished_vertex_or_output_reads_is_needed() -> None:
    """Whatever else has read it."""
    assert needed_no_more(replay([*CHAIN, init(1, "d", upstream=("a",))])) == ["b"]
    assert needed_no_more(replay([*CHAIN, output("REPEATED", "b")])) == ["a"]


def test_what_could_not_be_made_again_as_it_is_stays() -> None:
    """What is not deterministic, what reads a source of which only the script knows the version, and what functions
    make of what they read by themselves.
    """
    drawn = init(1, "a", 1, parts={})
    drawn = ev.VertexInitialized(**{**vars(drawn), "deterministic": False})
    rest = [done(0, 1, "a"), end(1, "a"), *finished("b", "a")]
    assert needed_no_more(replay([start(), drawn, *rest])) == []
    for part in (GIVEN, f"{READING} open"):
        assert needed_no_more(replay([start(), *finished("a", parts={part: "7"}), *finished("b", "a")])) == []


def test_a_released_vertex_has_no_partitions_and_is_not_lost() -> None:
    """Nothing of it is needed, now or after another release; it counts again when it is computed again."""
    released = [*CHAIN, ev.VertexReleased(epoch=1, vertex="a")]
    graph = replay(released)
    assert (graph.vertices["a"].released, graph.vertices["a"].partitions) == (True, {})
    assert needed_no_more(graph) == ["b"]
    assert needed_no_more(replay([*released, ev.VertexReleased(epoch=1, vertex="b")])) == []
    again = replay([*released, *finished("a")])
    assert (again.vertices["a"].released, again.vertices["a"].finished) == (False, True)


def test_what_is_held_and_was_held_at_the_most_is_counted() -> None:
    """Also across a snapshot and a start from scratch; what is reset or released counts no more."""
    events = [
        *CHAIN,
        ev.VertexReleased(epoch=1, vertex="a"),
        ev.PartitionsReset(epoch=1, vertex="b", indexes=(0,), reason="lost"),
    ]
    for cut in range(len(events) + 1):
        graph = decode_graph(encode_graph(replay(events[:cut])))
        for event in events[cut:]:
            graph.apply(event)
        assert (graph.held, graph.most_held) == (100, 300)
    graph.apply(start(2, fresh=True))
    assert (graph.held, graph.most_held) == (0, 300)


def test_the_report_names_what_is_released_and_the_space() -> None:
    """A released vertex misses nothing, and a retry is not said to need it."""
    report = build_report("job", replay([*CHAIN, ev.VertexReleased(epoch=1, vertex="a")]))
    assert [(vertex.released, vertex.missing) for vertex in report.vertices] == [(True, 0), (False, 0), (False, 0)]
    assert (report.bytes_held, report.most_bytes_held) == (200, 300)
    assert (report.retry.partitions, report.retry.reusable) == (2, 2)
    assert "a (released)" in format_report(report)
    assert "Holds 0.0 MiB now, 0.0 MiB at the most." in format_report(report)


def test_what_was_reused_counts_when_it_is_released() -> None:
    """For the attempt that has reused and released it, also across a snapshot, and not for a later one."""
    events = [*CHAIN, start(2)]
    events += [
        event for name in "ab" for event in (ev.VertexReused(epoch=2, vertex=name, layout="l"), released(2, name))
    ]
    events += [init(2, "a", 1), done(0, 2, "a"), end(2, "a"), released(2, "a"), released(2, "c")]
    for cut in range(len(events) + 1):
        graph = decode_graph(encode_graph(replay(events[:cut])))
        for event in events[cut:]:
            graph.apply(event)
        report = build_report("job", graph)
        assert (report.partitions_reused, report.partitions_computed) == (2, 1)
        assert (report.bytes_reused, report.task_seconds_saved) == (200, 4.0)
        assert [(vertex.reused, vertex.computed) for vertex in report.vertices] == [(1, 1), (1, 0), (0, 0)]
        assert "Reused 2 partitions" in format_report(report)
        view = job_view("job", graph, JobHistory())
        assert (view["reused"], view["computed"], view["bytes_reused"]) == (2, 1, 200)
        graph.apply(start(3))
        assert build_report("job", graph).partitions_reused == 0


def released(epoch: int, vertex: str) -> ev.JobEvent:
    return ev.VertexReleased(epoch=epoch, vertex=vertex)


@pytest.mark.parametrize(
    ("purposes", "status", "goes"),
    [
        (("sink/1",), "WRITTEN", True),
        (("sink/1",), "WRITING", False),
        (("sink/1",), "REPEATED", False),
        (("sink/1", ""), "WRITTEN", False),
        (("sink/1", "sink/2"), "WRITTEN", False),
        ((), "WRITTEN", False),
    ],
)
def test_a_kept_shuffle_goes_when_all_its_queries_are_for_written_outputs(
    purposes: tuple[str, ...], status: str, goes: bool
) -> None:
    """Not if one of them gives rows to the script, or if nobody knows what they are for; whole or not."""
    shuffle = [init(1, "s", 2, rule=SHUFFLE, purposes=purposes), done(0, 1, "s")]
    graph = replay([start(), *shuffle, output(status)])
    assert shuffles_of_written_outputs(graph) == (["s"] if goes else [])


def test_a_kept_shuffle_that_another_querys_reads_stays() -> None:
    """That one is put back only if this one is there."""
    below = [init(1, "s", 1, rule=SHUFFLE, purposes=("sink/1",)), done(0, 1, "s")]
    above = [init(1, "t", 1, rule=SHUFFLE, upstream=("s",), purposes=("",)), done(0, 1, "t")]
    assert shuffles_of_written_outputs(replay([start(), *below, *above, output("WRITTEN")])) == []


BYTES = 100


def kept(vertex: str, seconds: float, *upstream: str, rule: str = SHUFFLE, epoch: int = 1) -> list[ev.JobEvent]:
    """A vertex of one partition of 100 bytes that took so long."""
    fields: dict[str, Any] = {**vars(done(0, epoch, vertex)), "bytes": BYTES, "duration": seconds}
    told: dict[str, Any] = {**vars(init(epoch, vertex, 1, upstream=upstream)), "rule": rule}
    return [ev.VertexInitialized(**told), ev.PartitionFinished(**fields), end(epoch, vertex)]


def going(events: list[ev.JobEvent], budget: int, worth: float = 1e9, *needed: str, size: int = BYTES) -> Any:
    return room_for(replay([start(), *events]), 1, budget, size, worth, needed)


def test_nothing_goes_while_there_is_room() -> None:
    """The budget is for all that the job holds, and what comes."""
    assert going(kept("a", 1), 200) == []
    assert going(kept("a", 1), 199) == ["a"]


def test_what_saves_least_per_byte_goes_first_and_no_more_than_has_to() -> None:
    """What comes must save more than that, or it is not kept itself."""
    events = [*kept("a", 3), *kept("b", 1), *kept("c", 2)]
    assert going(events, 300) == ["b"]
    assert going(events, 200) == ["b", "c"]
    assert going(events, 200, 1.5 / BYTES) is None
    assert going(events, 300, 1.5 / BYTES) == ["b"]
    assert going(events, 50) is None


def test_what_a_kept_shuffle_reads_goes_only_after_it() -> None:
    """The one above could not be put back without it."""
    events = [*kept("below", 1), *kept("above", 2, "below"), *kept("other", 3)]
    assert going(events, 300) == ["above"]
    assert going(events, 200) == ["above", "below"]
    assert going(events, 300, 1e9, "above") == ["other"]


def test_a_recovery_point_of_the_script_stays() -> None:
    """It counts for what the job holds."""
    assert going(kept("named", 1, rule=""), 150) is None
    assert going([*kept("named", 1, rule=""), *kept("a", 1)], 200) == ["a"]


def test_what_an_attempt_has_not_come_to_stays() -> None:
    """It may be about to be put back."""
    events = [start(), *kept("a", 1), start(2)]
    assert room_for(replay(events), 2, 100, 100, 1e9, ()) is None
