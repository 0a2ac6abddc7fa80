"""What a new attempt needs of the last one's vertices."""

from __future__ import annotations

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


def test_an_unfinished_vertex_is_needed_even_if_its_readers_are_finished() -> None:
    """A producer that lost partitions afterwards is not optional for that."""
    history = [start(), *_finished("a"), *_finished("b", "a")]
    lost = ev.PartitionsReset(epoch=1, vertex="a", indexes=(0,), reason="lost")
    assert classify(replay([*history, lost]))["a"] is Need.RESERVE


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
