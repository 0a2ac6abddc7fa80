"""Reading what is damaged: never trusted, never fatal, always said."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider.core.errors import (
    ObjectNotFound,
    StoreUnavailable,
)
from airflow_provider.storage.blocks import BlockHeader, decode_block, encode_block
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.files import FileObjectStore
from tests.storage.conftest import PREFIX
from tests.storage.writing_attempts import Attempt, block_key, block_keys, names
from tests.support.stores import WatchedStore


@pytest.fixture
def recorded(files: FileObjectStore) -> FileObjectStore:
    """Blocks 1 to 5: the start, and two events in each of the others."""
    attempt = Attempt(files)
    attempt.begin()
    for number in range(2, 6):
        attempt.append(number * 10, number * 10 + 1)
        assert attempt.writer.flush()
    attempt.writer.close()
    return files


def _damage(store: FileObjectStore, block: int, change: Callable[[bytes], bytes]) -> None:
    body = store.get(block_key(block))
    store.put(block_key(block), change(body))


def test_a_missing_block_is_said_and_the_rest_is_read(recorded: FileObjectStore) -> None:
    """A gap is a problem in the answer, not an error."""
    recorded.delete([block_key(3)])
    logged = JobEventLog(recorded, PREFIX).read()
    assert names(logged.events)[1:] == ["event 20", "event 21", "event 40", "event 41", "event 50", "event 51"]
    assert logged.lost_blocks == [3]
    assert "block 3 " in logged.problems[0]
    assert "missing" in logged.problems[0]
    assert logged.next_block == 6


def test_the_newest_epoch_is_the_highest(files: FileObjectStore) -> None:
    """Also where an older attempt's block stands behind, which only a store without create-only writes could do."""
    for number, epoch in enumerate([1, 3, 2], start=1):
        files.put_new(block_key(number), encode_block(BlockHeader(PREFIX, number, epoch, "o", 0), []))
    assert JobEventLog(files, PREFIX).replay().newest_epoch == 3


def test_a_torn_block_gives_the_lines_before_the_tear(recorded: FileObjectStore) -> None:
    """Half a block keeps its first event."""
    _damage(recorded, 5, lambda body: body[:-10])
    logged = JobEventLog(recorded, PREFIX).read()
    assert names(logged.events)[-1] == "event 50"
    assert logged.lost_blocks == [5]
    assert "its first 1 events are used" in logged.problems[0]
    assert logged.next_block == 6


def test_a_corrupt_block_is_not_trusted(recorded: FileObjectStore) -> None:
    """A flipped bit in the header loses the block, and is said."""
    _damage(recorded, 2, lambda body: body.replace(b'"records":2', b'"records":3'))
    logged = JobEventLog(recorded, PREFIX).read()
    assert "event 20" not in names(logged.events)
    assert "event 30" in names(logged.events)
    assert logged.lost_blocks == [2]
    assert "nothing of it is used" in logged.problems[0]


def test_another_jobs_block_is_not_trusted(recorded: FileObjectStore) -> None:
    """A block copied from elsewhere, sound in itself, is foreign; so is one under another number."""
    other = decode_block(recorded.get(block_key(4)), PREFIX, 4).header
    assert other is not None
    recorded.put(block_key(4), encode_block(BlockHeader("jobs/x/@job", 4, 1, "o", 0), []))
    recorded.put(block_key(5), recorded.get(block_key(2)))
    logged = JobEventLog(recorded, PREFIX).read()
    assert names(logged.events)[1:] == ["event 20", "event 21", "event 30", "event 31"]
    assert logged.lost_blocks == [4, 5]
    assert "jobs/x/@job" in logged.problems[0]


def test_strange_names_among_the_blocks_are_ignored(recorded: FileObjectStore) -> None:
    """Only numbered blocks are read."""
    for name in ("readme.txt", "0.jsonl", "x.jsonl", "0000000009.json", "0000000009.jsonl.bak"):
        recorded.put_new(f"{PREFIX}/events/{name}", b"x")
    logged = JobEventLog(recorded, PREFIX).read()
    assert (logged.problems, logged.next_block) == ([], 6)


def test_the_next_attempt_goes_on_behind_the_damage_and_reports_it(recorded: FileObjectStore) -> None:
    """begin() neither fails on damaged blocks nor writes over them; the graph's problems tell of them."""
    recorded.delete([block_key(2)])
    _damage(recorded, 5, lambda body: body[:3])
    attempt = Attempt(recorded)
    graph = attempt.begin()
    attempt.writer.close()
    assert len(graph.problems) == 2
    assert block_keys(recorded)[-1] == block_key(6)
    assert graph.newest is not None
    assert graph.newest.epoch == 2


def test_a_block_that_vanishes_while_it_is_read_is_a_missing_block(recorded: FileObjectStore) -> None:
    """Between the listing and the read somebody may tidy up."""

    def vanish(operation: str, key: str) -> None:
        if operation == "get" and key == block_key(3):
            raise ObjectNotFound("gone")

    assert JobEventLog(WatchedStore(recorded, vanish), PREFIX).read().lost_blocks == [3]


def test_a_log_that_cannot_be_read_is_an_error(recorded: FileObjectStore) -> None:
    """Damage is tolerated, silence is not: a store that does not answer must not look like an empty job."""

    def fail(operation: str, key: str) -> None:
        if operation == "get":
            raise StoreUnavailable("down")

    with pytest.raises(StoreUnavailable):
        JobEventLog(WatchedStore(recorded, fail), PREFIX).read()
