"""Snapshots in the store: replay starts from the newest good one, and old blocks go without letting zombies pass."""

from __future__ import annotations

import json
import tempfile
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider.core.errors import StoreError, StoreUnavailable
from airflow_provider.core.events import AttemptStarted
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.options import RecoveryOptions
from airflow_provider.storage.event_log import JobEventLog, LoggedEvents
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.snapshots import Snapshots
from tests.storage.conftest import PREFIX, wait_until
from tests.storage.writing_attempts import SLOW, Attempt, block_key, block_keys
from tests.support.stores import WatchedStore


class Recorder(Attempt):
    """An attempt that keeps the graph of what it has appended, as a driver does."""

    def __init__(self, store: ObjectStore, options: RecoveryOptions = SLOW) -> None:
        super().__init__(store, options)
        self.store = store
        self.graph = ExecutionGraph()

    def begin(self) -> ExecutionGraph:
        self.graph = super().begin()
        return self.graph

    def record(self, *numbers: int) -> None:
        """One block for each event."""
        for number in numbers:
            self.append(number)
            self.graph.apply(self.event(number))
            assert self.writer.flush()

    def snapshot(self) -> int:
        """Take a snapshot and wait until it is stored and what it makes superfluous is gone."""
        self.writer.snapshot(self.graph.copy())
        number = self.writer.blocks
        wait_until(lambda: number in Snapshots(self.store, PREFIX).numbers())
        return number


def told(graph: ExecutionGraph) -> dict[int, list[str]]:
    return {epoch: [skip.name for skip in attempt.skipped] for epoch, attempt in graph.attempts.items()}


def folded(logged: LoggedEvents) -> ExecutionGraph:
    """The graph that all of the events make, one after the other."""
    graph = logged.base()
    for position in range(len(logged.events) + 1):
        for lost_before, loss in logged.losses:
            if lost_before == position:
                graph.lose(loss)
        for event in logged.events[position : position + 1]:
            graph.apply(event)
    return graph


def snapshot_key(number: int) -> str:
    return f"{PREFIX}/snapshots/{number:010d}.jsonl"


def test_replay_starts_from_the_newest_snapshot(store: ObjectStore) -> None:
    """It and the blocks after it are read, nothing else, and the graph is the same as from all blocks."""
    attempt = Recorder(store)
    attempt.begin()
    attempt.record(1, 2, 3)
    number = attempt.snapshot()
    attempt.record(4)
    attempt.writer.close()
    calls: list[tuple[str, str]] = []
    watched = WatchedStore(store, lambda operation, key: calls.append((operation, key)))
    replayed = JobEventLog(watched, PREFIX).replay()
    fetched = sorted(key for operation, key in calls if operation in {"get", "download"})
    assert fetched == [block_key(number), snapshot_key(number)]
    assert (replayed.next_block, replayed.newest_epoch) == (number + 1, 1)
    whole = folded(JobEventLog(store, PREFIX).read())
    assert (replayed.graph.attempts, replayed.graph.problems) == (whole.attempts, whole.problems)


def test_a_snapshot_holds_what_was_appended_before_it_and_nothing_later(files: FileObjectStore) -> None:
    """Taken between two events of one buffer, it splits them: its number is the block of the second."""
    attempt = Recorder(files)
    graph = attempt.begin()
    attempt.append(1)
    graph.apply(attempt.event(1))
    attempt.writer.snapshot(graph.copy())
    attempt.append(2)
    assert attempt.writer.flush()
    attempt.writer.close()
    (number,) = Snapshots(files, PREFIX).numbers()
    assert told(Snapshots(files, PREFIX).read(number).graph) == {1: ["event 1"]}
    assert told(JobEventLog(files, PREFIX).replay().graph) == {1: ["event 1", "event 2"]}
    assert number == 3


def test_a_snapshot_alone_is_enough(files: FileObjectStore) -> None:
    """Where no block follows it, the next block has its number."""
    attempt = Recorder(files)
    attempt.begin()
    attempt.record(1)
    number = attempt.snapshot()
    attempt.writer.close()
    replayed = JobEventLog(files, PREFIX).replay()
    assert (replayed.next_block, told(replayed.graph)) == (number, {1: ["event 1"]})
    second = Recorder(files)
    assert told(second.begin()) == {1: ["event 1"], 2: []}
    second.writer.close()
    assert block_keys(files)[-1] == block_key(number)


def with_header(body: bytes, **change: object) -> bytes:
    first, _, rest = body.partition(b"\n")
    line = json.dumps(json.loads(first[9:]) | change)
    return f"{zlib.crc32(line.encode()):08x} {line}\n".encode() + rest


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda body: body[:-20], "records"),
        (lambda body: body.replace(b"event 1", b"event 7"), "checksum"),
        (lambda body: b"", "checksum"),
        (lambda body: with_header(body, format=2), "format is 2"),
        (lambda body: with_header(body, job="jobs/other/@job"), "jobs/other/@job"),
        (lambda body: with_header(body, block=99), "snapshot 99"),
        (lambda body: with_header(body, more=1), "more"),
    ],
)
def test_a_snapshot_that_cannot_be_trusted_is_said_and_passed_over(
    files: FileObjectStore, damage: Callable[[bytes], bytes], word: str
) -> None:
    """Cut, changed, empty, of another version, job or number: the older one is used, then the blocks."""
    attempt = Recorder(files)
    attempt.begin()
    attempt.record(1, 2)
    first = attempt.snapshot()
    attempt.record(3)
    second = attempt.snapshot()
    attempt.record(4)
    attempt.writer.close()
    key = snapshot_key(second)
    files.put(key, damage(files.get(key)))
    logged = JobEventLog(files, PREFIX).load()
    assert logged.snapshot is not None
    assert logged.snapshot.number == first
    assert f"snapshot {second} is not used" in logged.problems[0]
    assert word in logged.problems[0]
    assert told(JobEventLog(files, PREFIX).replay().graph) == {1: ["event 1", "event 2", "event 3", "event 4"]}


def test_without_any_good_snapshot_the_blocks_tell_all(files: FileObjectStore) -> None:
    """As long as only one snapshot was taken, nothing is deleted, and a damaged one costs nothing but time."""
    attempt = Recorder(files)
    attempt.begin()
    attempt.record(1, 2)
    number = attempt.snapshot()
    attempt.writer.close()
    files.put(snapshot_key(number), b"rubbish")
    logged = JobEventLog(files, PREFIX).load()
    assert logged.snapshot is None
    assert told(JobEventLog(files, PREFIX).replay().graph) == {1: ["event 1", "event 2"]}
    assert logged.lost_blocks == []


def test_blocks_are_deleted_once_two_snapshots_hold_them(store: ObjectStore) -> None:
    """The newest two snapshots, all blocks since the older one, and the first block of each attempt stay."""
    first = Recorder(store)
    first.begin()
    first.record(1, 2, 3)
    first.writer.close()
    second = Recorder(store)
    second.begin()  # block 5
    second.record(4, 5)
    assert second.snapshot() == 8
    assert len(block_keys(store)) == 7
    second.record(6)
    assert second.snapshot() == 9
    second.record(7)
    assert second.snapshot() == 10
    second.writer.close()
    assert block_keys(store) == [block_key(number) for number in (1, 5, 9)]
    assert Snapshots(store, PREFIX).numbers() == [10, 9]
    third = Recorder(store)
    assert told(third.begin()) == {1: ["event 1", "event 2", "event 3"], 2: [f"event {n}" for n in (4, 5, 6, 7)], 3: []}
    third.record(8, 9)
    third.snapshot()
    third.record(10)
    third.snapshot()
    third.writer.close()
    assert block_keys(store) == [block_key(number) for number in (1, 5, 10, 13)]


def test_a_zombie_is_fenced_though_the_blocks_after_its_own_are_deleted(files: FileObjectStore) -> None:
    """The number that it would take is the first block of its successor, and that one stays for ever."""
    zombie = Recorder(files)
    zombie.begin()
    zombie.record(1)
    successor = Recorder(files)
    successor.begin()
    for number in range(4):
        successor.record(2 * number, 2 * number + 1)
        successor.snapshot()
    zombie.append(99)
    assert not zombie.writer.flush()
    wait_until(lambda: zombie.fenced)
    zombie.writer.close()
    successor.writer.close()
    assert (zombie.fenced, zombie.broken) == ([2], [])
    assert len(block_keys(files)) < 8, "some blocks were deleted"


def test_a_zombies_own_snapshot_is_true_and_harms_nobody(files: FileObjectStore) -> None:
    """It holds confirmed blocks only, so a successor that meets it loses nothing, whatever it makes superfluous."""
    zombie = Recorder(files)
    zombie.begin()
    zombie.record(1, 2)
    zombie.snapshot()
    zombie.record(3)
    late = zombie.graph.copy()
    successor = Recorder(files)
    successor.begin()
    successor.record(4)
    zombie.writer.snapshot(late)
    zombie.writer.close()
    successor.writer.close()
    expected = {1: ["event 1", "event 2", "event 3"], 2: ["event 4"]}
    assert told(JobEventLog(files, PREFIX).replay().graph) == expected
    assert len(Snapshots(files, PREFIX).numbers()) == 2


def test_whoever_begins_in_a_hole_begins_again_at_the_end(files: FileObjectStore) -> None:
    """The number that was free when the store was read has been taken, and deleted, before the first block is put."""
    old = Recorder(files)
    old.begin()
    old.record(1)
    new = Recorder(files)
    once = iter([True])

    def make_first(graph: ExecutionGraph) -> AttemptStarted:
        if next(once, False):
            for number in range(2, 8):  # an attempt that is still at work fills the number, and deletes it
                old.record(number)
                old.snapshot()
            assert block_key(3) not in block_keys(files)
        return AttemptStarted(epoch=2)

    graph = new.writer.begin(make_first)
    assert told(graph) == {1: [f"event {number}" for number in range(1, 8)], 2: []}
    old.append(99)
    assert not old.writer.flush()
    old.writer.close()
    assert told(JobEventLog(files, PREFIX).replay().graph) == told(graph)
    new.append(8)
    assert new.writer.flush()
    new.writer.close()
    assert told(JobEventLog(files, PREFIX).replay().graph)[2] == ["event 8"]


def test_a_reader_that_is_overtaken_by_a_deletion_reads_again(files: FileObjectStore) -> None:
    """Blocks that vanish between the listing and the request are in a newer snapshot; nothing counts as lost."""
    writer = Recorder(files)
    writer.begin()
    writer.record(1, 2)
    once = iter([True])

    def overtake(operation: str, key: str) -> None:
        if (operation, key) == ("get", block_key(2)) and next(once, False):
            for number in (3, 4, 5):
                writer.record(number)
                writer.snapshot()
            wait_until(lambda: key not in block_keys(files))

    replayed = JobEventLog(WatchedStore(files, overtake), PREFIX).replay()
    writer.writer.close()
    assert (replayed.graph.problems, replayed.lost_blocks) == ([], [])
    assert told(replayed.graph) == {1: [f"event {number}" for number in range(1, 6)]}


@pytest.mark.parametrize(("operation", "said"), [("put_new", "stored"), ("delete", "deleted"), ("list", "deleted")])
def test_a_store_that_refuses_a_snapshot_costs_the_snapshot_only(
    files: FileObjectStore, operation: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once per snapshot, and truly; the recording goes on."""
    failing = [False]

    def fail(called: str, key: str) -> None:
        if failing[0] and called == operation and ("/snapshots/" in key or operation != "put_new"):
            raise StoreUnavailable("not now")

    attempt = Recorder(WatchedStore(files, fail))
    attempt.begin()
    attempt.record(1)
    attempt.writer.snapshot(attempt.graph.copy())
    wait_until(lambda: Snapshots(files, PREFIX).numbers())
    failing[0] = True
    attempt.record(2)
    attempt.writer.snapshot(attempt.graph.copy())
    attempt.record(3)
    attempt.writer.close()
    assert f"could not be {said}: not now" in caplog.text
    assert attempt.broken == []
    assert told(JobEventLog(files, PREFIX).replay().graph) == {1: ["event 1", "event 2", "event 3"]}


def test_closing_waits_for_a_snapshot_though_recording_has_stopped(files: FileObjectStore) -> None:
    """Nothing touches the store once the writer is closed; the next attempt may read it."""
    broken, reached, gate = threading.Event(), threading.Event(), threading.Event()

    def hold(operation: str, key: str) -> None:
        if operation == "put_new" and "/snapshots/" in key:
            reached.set()
            gate.wait(20)
        elif operation == "put_new" and broken.is_set():
            raise StoreError("not any more")

    attempt = Recorder(WatchedStore(files, hold))
    attempt.begin()
    attempt.record(1)
    attempt.writer.snapshot(attempt.graph.copy())
    assert reached.wait(60)
    broken.set()
    attempt.append(2)
    assert not attempt.writer.flush()
    wait_until(lambda: not attempt.writer._thread.is_alive())
    threading.Timer(0.2, gate.set).start()
    attempt.writer.close()
    assert Snapshots(files, PREFIX).numbers() == [attempt.writer.blocks]


def test_a_store_that_refuses_to_delete_costs_room_only(
    files: FileObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says that the snapshot is stored and that old blocks are not deleted; the next snapshot deletes them."""
    refused: list[str] = []

    def refuse(operation: str, key: str) -> None:
        if operation == "delete" and "/events/" in key and not refused:
            refused.append(key)
            raise StoreUnavailable("not now", remedy="Wait.")

    attempt = Recorder(WatchedStore(files, refuse))
    attempt.begin()
    for number in (1, 2):
        attempt.record(number)
        second = attempt.snapshot()
    wait_until(lambda: "could not be deleted" in caplog.text)
    assert f"Snapshot {second} of the job event store is stored, but" in caplog.text
    assert "could not be deleted: not now Wait." in caplog.text
    assert "could not be stored" not in caplog.text
    first_to_go = block_key(2)
    assert first_to_go in block_keys(files)
    attempt.record(3)
    attempt.snapshot()
    attempt.writer.close()
    assert first_to_go not in block_keys(files)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["record", "flush", "snapshot", "restart", "kill"]), max_size=25))
def test_whatever_is_recorded_snapshotted_and_deleted_replay_tells_all_of_it(steps: list[str]) -> None:
    """Any order of events, flushes, snapshots, orderly restarts and take-overs replays to what was recorded."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        store = FileObjectStore(Path(folder))
        attempt = Recorder(store)
        attempt.begin()
        expected: dict[int, list[str]] = {1: []}
        zombies: list[Recorder] = []
        for count, step in enumerate(steps):
            if step == "record":
                attempt.append(count)
                attempt.graph.apply(attempt.event(count))
                expected[attempt.claim.epoch].append(f"event {count}")
            elif step == "flush":
                assert attempt.writer.flush()
            elif step == "snapshot":
                attempt.writer.snapshot(attempt.graph.copy())
            else:
                if step == "restart":
                    attempt.writer.close()
                else:
                    assert attempt.writer.flush()
                    zombies.append(attempt)
                attempt = Recorder(store)
                attempt.begin()
                expected[attempt.claim.epoch] = []
        attempt.writer.close()
        for zombie in zombies:
            zombie.append(99)
            assert not zombie.writer.flush()
            zombie.writer.close()
        replayed = JobEventLog(store, PREFIX).replay()
        assert told(replayed.graph) == expected
        assert (replayed.graph.problems, replayed.lost_blocks) == ([], [])


@pytest.mark.parametrize("harm", [None, b"", b"rubbish"], ids=["deleted", "empty", "rubbish"])
@pytest.mark.parametrize("key", [block_key(3), block_key(6), snapshot_key(4), snapshot_key(7)])
@pytest.mark.parametrize("every_snapshot", [False, True])
def test_replay_while_reading_is_replay_after_reading(
    files: FileObjectStore, key: str, harm: bytes | None, every_snapshot: bool
) -> None:
    """Whatever is harmed, the graph that blocks are folded into as they come is that of all events."""
    for numbers in ((1, 2), (3, 4)):
        attempt = Recorder(files)
        attempt.begin()
        attempt.record(*numbers)
        attempt.snapshot()
        attempt.writer.close()
    for harmed in (key, *((snapshot_key(4), snapshot_key(7)) if every_snapshot else ())):
        if harm is None:
            files.delete([harmed])
        elif files.exists(harmed):
            files.put(harmed, harm)
    log = JobEventLog(files, PREFIX)
    logged, replayed = log.load(), log.replay()
    assert vars(replayed.graph) | {"_handlers": 0} == vars(folded(logged)) | {"_handlers": 0}
    assert (replayed.next_block, replayed.lost_blocks) == (logged.next_block, logged.lost_blocks)
