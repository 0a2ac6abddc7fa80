"""Following a job from outside: only what is new is read, and the graph is the one that a replay gives."""

from __future__ import annotations

import pytest

from airflow_provider.core.events import AttemptStarted, JobEvent
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.storage import follower as module
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.follower import JobFollower
from airflow_provider.storage.object_store import ObjectStore
from tests.storage.conftest import PREFIX
from tests.storage.writing_attempts import Attempt, block_key, block_keys, names
from tests.support.stores import WatchedStore


def test_a_look_takes_what_is_new(store: ObjectStore) -> None:
    """Each event is told once, before and after it is folded; the version says whether there was any."""
    attempt = Attempt(store)
    attempt.begin()
    seen: list[JobEvent] = []
    sizes: list[int] = []
    follower = JobFollower(
        JobEventLog(store, PREFIX), before=lambda _: sizes.append(len(follower.graph.attempts)), after=seen.append
    )
    follower.read()
    attempt.append(1)
    attempt.writer.flush()
    version = follower.version
    follower.read()
    assert names(seen) == ["AttemptStarted", "event 1"]
    assert sizes == [0, 1]
    assert follower.version > version
    assert follower.graph.attempts.keys() == JobEventLog(store, PREFIX).replay().graph.attempts.keys()
    attempt.writer.close()


def requests_of_an_idle_look(files: FileObjectStore, *, ended: bool = False) -> dict[str, int]:
    """What a look at a job costs of which nothing new is there; it leaves the version as it was."""
    attempt = Attempt(files)
    attempt.begin()
    attempt.writer.close()
    watched = WatchedStore(files)
    follower = JobFollower(JobEventLog(watched, PREFIX))
    follower.read()
    version = follower.version
    watched.calls.clear()
    follower.read(ended=ended)
    assert follower.version == version
    return dict(watched.calls)


def test_nothing_new_costs_one_request(files: FileObjectStore) -> None:
    """And leaves the version as it was."""
    assert requests_of_an_idle_look(files) == {"get": 1}


def test_a_lost_block_is_a_problem_of_the_graph(files: FileObjectStore) -> None:
    """A follower judges a damaged store as a replay does."""
    attempt = Attempt(files)
    attempt.begin()
    follower = JobFollower(JobEventLog(files, PREFIX))
    follower.read()
    files.put(block_key(2), b"damaged")
    follower.read()
    replayed = JobEventLog(files, PREFIX).replay().graph
    assert (follower.graph.gap, follower.graph.abandoned) == (replayed.gap, replayed.abandoned)
    assert follower.graph.problems == replayed.problems != []


def write_with_snapshots(attempt: Attempt, graph: ExecutionGraph) -> None:
    """Write six events, each in a block of its own and with a snapshot behind it, and end."""
    for number in range(6):
        event = attempt.event(number)
        graph.apply(event)
        attempt.writer.append(event)
        attempt.writer.flush()
        attempt.writer.snapshot(graph.copy())
        attempt.writer.flush()
    attempt.writer.close()


def test_blocks_that_a_snapshot_has_replaced_meanwhile_are_no_loss(files: FileObjectStore) -> None:
    """A driver wrote many blocks between two looks and deleted most of them: its snapshot is read in their place."""
    attempt = Attempt(files)
    attempt.begin()
    follower = JobFollower(JobEventLog(files, PREFIX))
    follower.read()
    attempt.writer.close()
    successor = Attempt(files)
    write_with_snapshots(successor, successor.begin())
    assert len(block_keys(files)) < 8, "some blocks were deleted"
    follower.read()
    assert follower.graph.problems == []
    assert [skip.name for skip in follower.graph.attempts[2].skipped] == [f"event {number}" for number in range(6)]


def test_a_job_that_was_removed_and_began_again_is_read_anew(files: FileObjectStore) -> None:
    """A follower does not wait for ever for a block that will not come."""
    first = Attempt(files)
    first.begin()
    for number in range(5):
        first.append(number)
        first.writer.flush()
    first.writer.close()
    begun: list[ExecutionGraph] = []
    follower = JobFollower(JobEventLog(files, PREFIX), begin=begun.append)
    follower.read()
    files.delete([info.key for info in list(files.list(PREFIX))])
    second = Attempt(files)
    second.writer.begin(lambda graph: AttemptStarted(epoch=1, host="elsewhere"))
    second.writer.close()
    for _ in range(module._IDLE_LOOKS):
        follower.read()
    assert [attempt.host for attempt in follower.graph.attempts.values()] == ["elsewhere"]
    assert len(begun) == 2


@pytest.mark.parametrize(("ended", "peek_every"), [(True, 0), (False, 1)])
def test_the_end_is_found_though_a_snapshot_has_replaced_what_comes_before(
    files: FileObjectStore, ended: bool, peek_every: int
) -> None:
    """A look falls between two blocks, and the driver deletes the second: only a listing shows that more is there."""
    attempt = Attempt(files)
    graph = attempt.begin()
    follower = JobFollower(JobEventLog(files, PREFIX), peek_every=peek_every)
    follower.read()
    write_with_snapshots(attempt, graph)
    assert block_key(2) not in block_keys(files)
    follower.read(ended=ended)
    newest = follower.graph.newest
    assert newest is not None
    assert [skip.name for skip in newest.skipped] == [f"event {number}" for number in range(6)]


def test_a_driver_that_has_recorded_no_end_is_not_read_anew(files: FileObjectStore) -> None:
    """Its last word stays without an event if it was fenced: each look costs a request and a listing."""
    assert requests_of_an_idle_look(files, ended=True) == {"get": 1, "list": 1}
