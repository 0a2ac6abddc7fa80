"""What a new attempt needs of the last one's vertices."""

from __future__ import annotations

import pytest

from airflow_provider.core import events as ev
from airflow_provider.core.classify import Need, classify
from tests.core.examples import done, end, init, start
from tests.support.replaying import replay


def _finished(vertex: str, *upstream: str, epoch: int = 1) -> list[ev.JobEvent]:
    return [init(epoch, vertex, 1, upstream=upstream), done(0, epoch, vertex), end(epoch, vertex)]


def test_nothing_is_needed_of_nothing() -> None:
    """An empty graph."""
    assert classify(replay([])) == {}


def test_an_unfinished_vertex_and_what_it_reads_are_reserved() -> None:
    """The producer of an unfinished consumer is kept although it is finished."""
    graph = replay([start(), *_finished("a"), init(1, "b", upstream=("a",))])
    assert classify(graph) == {"a": Need.RESERVE, "b": Need.RESERVE}


def test_a_vertex_whose_readers_are_all_finished_is_optional() -> None:
    """One unfinished reader among them makes it needed."""
    history = [start(), *_finished("a"), *_finished("b", "a"), *_finished("c", "a")]
    assert classify(replay(history)) == {"a": Need.OPTIONAL, "b": Need.RESERVE, "c": Need.RESERVE}
    assert classify(replay([*history, init(1, "d", upstream=("a",))]))["a"] is Need.RESERVE


def lost(vertex: str, epoch: int = 1) -> ev.PartitionsReset:
    return ev.PartitionsReset(epoch=epoch, vertex=vertex, indexes=(0,), reason="lost")


def test_a_vertex_that_lost_partitions_is_optional_as_long_as_its_readers_are_finished() -> None:
    """Whoever read it needs it no more; once a reader has lost some, too, both are needed."""
    history = [start(), *_finished("a"), *_finished("b", "a")]
    assert classify(replay([*history, lost("a")]))["a"] is Need.OPTIONAL
    assert classify(replay([*history, lost("a"), lost("b")])) == {"a": Need.RESERVE, "b": Need.RESERVE}


def test_a_vertex_that_never_finished_is_needed_whoever_has_read_it() -> None:
    """Nobody can have read all of it."""
    history = [start(), init(1, "a", 1), *_finished("b", "a")]
    assert classify(replay(history))["a"] is Need.RESERVE


@pytest.mark.parametrize("order", ["abc", "cba"])
def test_what_only_an_optional_vertex_reads_is_optional(order: str) -> None:
    """Nobody computes the reader, so nobody needs what it reads; in whichever order the events come."""
    events = {"a": _finished("a"), "b": _finished("b", "a"), "c": _finished("c", "b")}
    history = [start(), *(event for vertex in order for event in events[vertex]), lost("a"), lost("b")]
    assert classify(replay(history)) == {"a": Need.OPTIONAL, "b": Need.OPTIONAL, "c": Need.RESERVE}


def test_a_reader_that_is_released_needs_nothing() -> None:
    """A vertex with new code has taken its place; where that has read the same, it counts, and else nobody does."""
    history = [start(), *_finished("a"), init(1, "n-old", name="n", upstream=("a",)), start(2)]
    new = [init(2, "n-new", 1, name="n", upstream=("a",)), done(0, 2, "n-new"), end(2, "n-new")]
    assert classify(replay([*history, *new, lost("a", 2)]))["a"] is Need.OPTIONAL
    other = init(2, "n-new", name="n")
    assert classify(replay([*history, other, lost("a", 2)]))["a"] is Need.RESERVE


def written(status: str, *vertices: str, name: str = "sink/1") -> ev.CoordinatorSnapshot:
    return ev.CoordinatorSnapshot(epoch=1, coordinator=name, state={"status": status, "reads": list(vertices)})


def test_what_only_written_outputs_read_is_optional() -> None:
    """A retry leaves out an output that is committed; one that it writes, or writes anew each time, has to be read."""
    history = [start(), *_finished("a"), lost("a"), written("WRITTEN", "a")]
    assert classify(replay(history))["a"] is Need.OPTIONAL
    for status in ("WRITING", "REPEATED", "UNKNOWN"):
        assert classify(replay([*history, written(status, "a", name="sink/2")]))["a"] is Need.RESERVE
    assert classify(replay([*history, init(1, "b", upstream=("a",))]))["a"] is Need.RESERVE


def test_an_output_is_needed_however_many_vertices_have_read_the_same() -> None:
    """The vertex that read it too is finished, the output is not written."""
    history = [start(), *_finished("a"), *_finished("b", "a"), lost("a"), written("WRITING", "a")]
    assert classify(replay(history))["a"] is Need.RESERVE


def test_a_shuffle_is_no_reader_of_a_recovery_point_that_the_script_names() -> None:
    """It is made for an action or an output, which may need the rest; of another shuffle it is the reader."""
    history = [start(), *_finished("a"), *_shuffle("s", "a"), *_shuffle("t", "s")]
    assert classify(replay(history)) == {"a": Need.RESERVE, "s": Need.OPTIONAL, "t": Need.RESERVE}


def _shuffle(vertex: str, *upstream: str) -> list[ev.JobEvent]:
    return [init(1, vertex, 1, upstream=upstream, rule=ev.SHUFFLE), done(0, 1, vertex), end(1, vertex)]


def test_what_nothing_reads_may_feed_an_output() -> None:
    """The last vertex of a script is needed until the job has ended."""
    assert classify(replay([start(), *_finished("a")])) == {"a": Need.RESERVE}


def test_a_vertex_with_new_code_supersedes_the_old_one() -> None:
    """The same name, another identity, reached by a later attempt: the old one's partitions are released."""
    history = [
        start(1), init(1, "n-old", name="n"),
        start(2), init(2, "n-new", name="n"),
    ]  # fmt: skip
    assert classify(replay(history)) == {"n-old": Need.RELEASE, "n-new": Need.RESERVE}


def test_code_that_is_put_back_supersedes_what_came_between() -> None:
    """The one that was reached last counts, not the one that was seen first last."""
    history = [
        start(1), init(1, "n-old", name="n"),
        start(2), init(2, "n-new", name="n"),
        start(3), init(3, "n-old", name="n"),
    ]  # fmt: skip
    assert classify(replay(history)) == {"n-old": Need.RESERVE, "n-new": Need.RELEASE}


def test_a_name_used_twice_by_one_script_makes_two_needed_vertices() -> None:
    """A checkpoint in a loop: neither supersedes the other, not even when the next attempt has reached only one."""
    history = [start(1), init(1, "n-1", name="n"), init(1, "n-2", name="n")]
    assert classify(replay(history)) == {"n-1": Need.RESERVE, "n-2": Need.RESERVE}
    again = [*history, start(2), init(2, "n-1", name="n")]
    assert classify(replay(again)) == {"n-1": Need.RESERVE, "n-2": Need.RESERVE}
