"""Two drivers of one job: one order of blocks, and nothing of the older one behind the newer one's first."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider.core.errors import Fenced
from airflow_provider.core.events import AttemptStarted
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.files import FileObjectStore
from airflow_provider.storage.object_store import ObjectStore
from tests.storage.conftest import PREFIX, wait_until
from tests.storage.writing_attempts import QUICK, Attempt, names
from tests.support.stores import WatchedStore


def test_a_zombie_is_fenced_by_its_successors_first_block(store: ObjectStore) -> None:
    """After it nothing of the zombie lands, the zombie is told once, and its flush fails at once."""
    zombie = Attempt(store)
    zombie.begin()
    zombie.append(1)
    assert zombie.writer.flush()
    successor = Attempt(store)
    successor.begin()
    zombie.append(2)
    assert not zombie.writer.flush()
    zombie.append(3)
    assert not zombie.writer.flush()
    wait_until(lambda: zombie.fenced)
    zombie.writer.close()
    successor.append(4)
    assert successor.writer.flush()
    successor.writer.close()
    assert zombie.fenced == [2]
    assert zombie.writer.fenced_by == 2
    assert zombie.broken == []
    logged = JobEventLog(store, PREFIX).read()
    assert names(logged.events) == ["AttemptStarted", "event 1", "AttemptStarted", "event 4"]
    assert logged.problems == []


def test_a_zombie_that_writes_between_its_successors_read_and_first_write_is_read_too(files: FileObjectStore) -> None:
    """The successor finds the number taken, reads on, asks for its first event again, and writes behind."""
    zombie = Attempt(files)
    zombie.begin()
    watched = WatchedStore(files)
    successor = Attempt(watched)
    graphs: list[int] = []
    late = iter([1, 2])

    def make_first(graph: ExecutionGraph) -> AttemptStarted:
        newest = graph.newest
        assert newest is not None
        graphs.append(len(newest.skipped))
        for number in itertools.islice(late, 1):
            zombie.append(number)
            assert zombie.writer.flush()
        return AttemptStarted(epoch=2)

    graph = successor.writer.begin(make_first)
    assert graphs == [0, 1, 2]
    assert [skip.name for skip in graph.attempts[1].skipped] == ["event 1", "event 2"]
    zombie.append(3)
    assert not zombie.writer.flush()
    successor.writer.close()
    zombie.writer.close()
    stored = names(JobEventLog(files, PREFIX).read().events)
    assert stored == ["AttemptStarted", "event 1", "event 2", "AttemptStarted"]


@pytest.mark.parametrize("store", ["file", pytest.param("gateway", marks=pytest.mark.process)], indirect=True)
def test_drivers_that_begin_at_once_leave_one_order(store: ObjectStore) -> None:
    """Of drivers that begin at the same moment each either follows the older ones or is fenced by a newer one."""
    for round_ in range(5):
        attempts = [Attempt(store, QUICK) for _ in range(4)]
        start = threading.Barrier(4)

        def begin(attempt: Attempt, start: threading.Barrier = start) -> bool:
            start.wait()
            try:
                attempt.begin()
            except Fenced:
                return False
            attempt.append(attempt.claim.epoch)
            return attempt.writer.flush()

        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(begin, attempts))
        for attempt in attempts:
            attempt.writer.close()
            assert attempt.broken == []
        assert done[-1], "the newest one is never fenced"
        logged = JobEventLog(store, PREFIX).read()
        epochs = [event.epoch for event in logged.events]
        assert epochs == sorted(epochs)
        assert epochs[-1] == attempts[-1].claim.epoch == 4 * (round_ + 1)
        assert logged.problems == []


def test_whoever_comes_too_late_to_begin_is_fenced(store: ObjectStore) -> None:
    """An attempt that claimed first and begins last writes nothing."""
    old = Attempt(store)
    new = Attempt(store)
    new.begin()
    with pytest.raises(Fenced, match="Attempt 1 has been replaced by attempt 2"):
        old.begin()
    old.writer.close()
    new.writer.close()
    assert [event.epoch for event in JobEventLog(store, PREFIX).read().events] == [2]


def test_whoever_is_overtaken_while_beginning_is_fenced(files: FileObjectStore) -> None:
    """The newer attempt's first block comes between the read and the first write."""
    old = Attempt(files)
    new = Attempt(files)

    def make_first(graph: ExecutionGraph) -> AttemptStarted:
        new.begin()
        return AttemptStarted(epoch=1)

    with pytest.raises(Fenced):
        old.writer.begin(make_first)
    new.writer.close()
    assert [event.epoch for event in JobEventLog(files, PREFIX).read().events] == [2]
