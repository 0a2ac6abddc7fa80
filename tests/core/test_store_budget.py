"""Which kept shuffles go for others, so that a job holds no more than it may."""

from __future__ import annotations

from typing import Any

from airflow_provider.core import events as ev
from airflow_provider.core.events import SHUFFLE
from airflow_provider.core.store_budget import room_for
from tests.core.examples import done, end, init, start
from tests.support.replaying import replay

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
