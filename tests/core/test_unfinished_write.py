"""What is remembered of a write before it begins."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider.core import events as ev
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.unfinished_write import (
    UnfinishedWrite,
    output_state,
    rows_made_again,
    unfinished_writes,
    writes_going_on,
)

WRITE = UnfinishedWrite("file:/out", 1, 77, "file:/out", existed=False, before="d", mode="append", writes=("u",))


def attempt(epoch: int, *, fresh: bool = False) -> ev.AttemptStarted:
    return ev.AttemptStarted(
        epoch=epoch, at=0.0, fresh=fresh, abandoned=False, reason="", application="a.py", host="here"
    )


def begun(epoch: int) -> ExecutionGraph:
    graph = ExecutionGraph()
    graph.apply(attempt(epoch))
    for name, state in {"sink/a": WRITE.to_state(), "sink/b": {"status": "WRITTEN"}, "step/a": {"result": 1}}.items():
        graph.apply(ev.CoordinatorSnapshot(epoch=epoch, at=0.0, coordinator=name, state=state))
    return graph


def test_a_write_is_remembered_with_all_that_its_end_needs() -> None:
    """As plain JSON, with the names that are learnt later; anything else, also of older releases, is none."""
    assert UnfinishedWrite.from_state(WRITE.to_state()) == WRITE
    known = WRITE.known_as("v")
    assert (known.writes, known.watched, WRITE.watched) == (("u", "v"), True, False)
    assert UnfinishedWrite.from_state({"status": "WRITING", "attempt": 1, "before": ""}) is None
    assert UnfinishedWrite.from_state({**WRITE.to_state(), "status": "WRITTEN"}) is None
    assert UnfinishedWrite.from_state("WRITING") is None


def test_it_is_told_which_writes_of_an_attempt_go_on() -> None:
    """While it writes, and when it has returned; what earlier attempts went on with is over."""
    going = replace(WRITE, tasks=1200, left_out=1100)
    assert UnfinishedWrite.from_state(going.to_state()) == going
    assert WRITE.going_on() == going.taken_over(2, 88).going_on() == {}
    written = {**output_state("WRITTEN", 1, "file:/out", ()), **going.going_on()}
    told = ["output file:/out goes on: 1,100 of its 1,200 tasks had been committed by earlier attempts"]
    for state in (going.to_state(), written):
        assert writes_going_on({"sink/a": state, "sink/b": WRITE.to_state(), "step/c": "text"}, 1) == told
        assert writes_going_on({"sink/a": state}, 2) == []


def test_what_older_releases_remembered_was_not_watched() -> None:
    """They did not wait for Spark's name of a write, so that one without a name may have been committed."""
    known = {**WRITE.to_state(), "suspects": ["s"], "latest": 7, "deaths": 1}
    del known["watched"]
    assert UnfinishedWrite.from_state(known) == WRITE
    assert not WRITE.watched


def test_only_earlier_attempts_are_unfinished() -> None:
    """What this attempt writes at the moment is not, nor what was written, nor what is no write."""
    states = begun(1).coordinators
    assert unfinished_writes(states, 2) == {"sink/a": WRITE}
    assert unfinished_writes(states, 1) == {}


def test_an_attempt_that_starts_afresh_knows_what_was_killed() -> None:
    """It reuses nothing, and yet takes back what a killed write has left; behind a success nothing is unfinished."""
    graph = begun(1)
    graph.apply(attempt(2, fresh=True))
    assert graph.coordinators == {"sink/a": WRITE.to_state()}
    graph = begun(1)
    graph.apply(ev.JobFinished(epoch=1, at=0.0, store_retries=0))
    graph.apply(attempt(2, fresh=True))
    assert graph.coordinators == {}


def test_what_another_run_has_left_is_not_taken_back() -> None:
    """It belongs to whoever that run belongs to."""
    graph = begun(1)
    graph.apply(replace(attempt(2, fresh=True), another_run=True))
    assert graph.coordinators == {}


def test_what_functions_have_read_for_is_made_again_at_another_moment() -> None:
    """Rows that were added for automatic retries alone go, with those that each attempt makes again."""
    added = replace(WRITE, moment="first").addition()
    state = {"status": "WRITTEN", "attempt": 1, "title": "file:/out", "write": "u", **added}
    assert rows_made_again({"sink/a": state}, 2, "first") == {}
    assert set(rows_made_again({"sink/a": state}, 2, "cleared")) == {"sink/a"}
    assert rows_made_again({"sink/a": state}, 1, "cleared") == {}
    assert rows_made_again({"sink/a": {**state, "moment": "cleared"}}, 2, "cleared") == {}
    assert replace(WRITE, mode="overwrite", moment="first").addition() == {}


def test_where_such_rows_were_the_first_all_are_made_again() -> None:
    """Rows that only an empty place takes come back when all others are gone: they stand last, and with them goes what
    is certain to be the same there, and nowhere else.
    """

    def added(location: str, status: str, **more: object) -> dict[str, object]:
        place = {"location": location, "created": False, "table": ""}
        return {"status": status, "attempt": 1, "title": "it", "write": "w", "files": 1, **place, **more}

    found = {
        "sink/a": added("here", "REPEATED", mode="error"),
        "sink/b": added("here", "WRITTEN", mode="append"),
        "sink/c": added("there", "WRITTEN", mode="append"),
        "sink/d": added("there", "REPEATED", mode="append"),
    }
    assert list(rows_made_again(found, 2, "")) == ["sink/b", "sink/d", "sink/a"]
