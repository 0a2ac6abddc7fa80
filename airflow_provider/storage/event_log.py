"""Read the job event store: one contiguous sequence of immutable blocks, written by one attempt after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from airflow_provider.core.collector import no_collection
from airflow_provider.core.errors import CorruptObject, ObjectNotFound
from airflow_provider.core.events import JobEvent
from airflow_provider.core.graph import ExecutionGraph
from airflow_provider.core.line_fold import LineFold
from airflow_provider.core.loss import Loss
from airflow_provider.storage.blocks import Block, decode_block, fold_block
from airflow_provider.storage.keys import numbers_in
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.sealing import NOT_SEALED, refuse_sealed
from airflow_provider.storage.snapshots import Snapshot, Snapshots

_READERS = 16
"""Blocks fetched at once: a long job has thousands of them, each a small request."""
_NOT_TRUSTED = f"what the event store holds of the job is {NOT_SEALED}"
_TRIES = 5
"""How often the log is read anew because a driver at work has replaced blocks by a snapshot meanwhile."""


@dataclass(frozen=True)
class LoggedEvents:
    """The events of the job event store from one block on.

    :ivar next_block: number of the first block not written yet
    :ivar problems: one sentence for each block that was not used in full
    :ivar lost_blocks: the numbers of those blocks; their missing events may include a reset
    :ivar losses: position of an event → the lost records before it
    :ivar snapshot: the snapshot that replaces the blocks before the first one read; ``None`` if there are none
    :ivar untrusted: whether there are blocks and none of them has a valid seal
    """

    events: list[JobEvent]
    next_block: int
    problems: list[str] = field(default_factory=list)
    lost_blocks: list[int] = field(default_factory=list)
    losses: list[tuple[int, Loss]] = field(default_factory=list)
    snapshot: Snapshot | None = None
    untrusted: bool = False

    def base(self) -> ExecutionGraph:
        """Return the graph before the first of the events, with the store's problems."""
        graph = self.snapshot.graph.copy() if self.snapshot is not None else ExecutionGraph()
        if self.snapshot is None and self.untrusted:
            graph.abandoned = _NOT_TRUSTED
        for problem in self.problems:
            graph.note(problem)
        return graph


R = TypeVar("R", LoggedEvents, "Replayed")


@dataclass(frozen=True)
class Replayed:
    """The replayed state of a job, and the end of its event store; other fields are as in :class:`LoggedEvents`.

    :ivar graph: the graph, with the store's problems
    :ivar newest_epoch: highest epoch that wrote a block; 0 if there is none
    :ivar newest_owner: the owner of its claim; empty text if only a snapshot mentions it
    :ivar fences: blocks that must never be deleted: the first of each attempt, and unreadable ones
    :ivar snapshot: number of the snapshot that the replay began with; 0 if it began with the first block
    """

    graph: ExecutionGraph
    next_block: int
    newest_epoch: int
    newest_owner: str
    fences: frozenset[int]
    lost_blocks: list[int]
    snapshot: int

    @property
    def empty(self) -> bool:
        """Whether nothing is stored."""
        return not self.snapshot and self.next_block == 1 and not self.graph.problems


class JobEventLog:
    """The reader of the event store of the job with the key prefix *prefix*."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def read(self, from_block: int = 1) -> LoggedEvents:
        """Return the events of block *from_block* and all later ones, in order.

        One listing and one request per block. If *from_block* is not the first block, as for a follower, it is
        requested first, so that finding nothing new costs one request and no listing.

        :raises StoreError: the store cannot be read; damaged blocks are not errors but problems in the result
        """
        if from_block > 1 and self.block(from_block) is None:
            return LoggedEvents([], from_block)
        return self._events(_Tally(from_block, self.numbers()))

    def load(self) -> LoggedEvents:
        """Return the newest good snapshot and the events after it, for callers that need each event.

        Two listings, and one request for the snapshot and for each block after it.

        :raises StoreError: the store cannot be read; damaged snapshots and blocks are not errors but problems
        """

        def events(snapshot: Snapshot | None, wrong: list[str], tally: _Tally) -> LoggedEvents:
            logged = self._events(tally)
            return replace(logged, problems=[*wrong, *logged.problems], snapshot=snapshot)

        return self._newest(events)

    def replay(self) -> Replayed:
        """Return the job's state, the fold of :meth:`load`, without keeping the events in memory.

        The same requests as :meth:`load`; blocks are applied while the next ones are fetched.

        :raises StoreError: the store cannot be read; damaged snapshots and blocks are not errors but problems
        """
        return self._newest(self._replay)

    def _newest(self, read: Callable[[Snapshot | None, list[str], _Tally], R]) -> R:
        """Call *read* for the blocks after the newest good snapshot.

        :param read: called with the snapshot, the problems of newer ones, and the blocks
        """
        snapshots = Snapshots(self._store, self._prefix)
        for last in (*[False] * (_TRIES - 1), True):
            numbers = snapshots.numbers()
            snapshot, problems = snapshots.newest(numbers)
            start = snapshot.number if snapshot is not None else 1
            found = read(snapshot, problems, _Tally(start, self.numbers()))
            # A running driver deletes blocks once a newer snapshot holds them: then read that one.
            if last or not found.lost_blocks or snapshots.numbers() == numbers:
                return found
        raise AssertionError("the last try returns")

    def _replay(self, snapshot: Snapshot | None, wrong: list[str], tally: _Tally) -> Replayed:
        graph = snapshot.graph if snapshot is not None else ExecutionGraph()
        newest = max(graph.attempts, default=0)
        noted, graph.problems = graph.problems, []
        fold = LineFold(graph)
        with no_collection():
            for number, data in self._bodies(tally):
                block = data if isinstance(data, Block) else fold_block(data, self._prefix, number, fold.fold)
                if tally.add(number, block):
                    graph.lose(loss_of(number, block))
                    fold = LineFold(graph)
        # The store's problems come first, before those of events that do not fit.
        told, graph.problems = graph.problems, noted
        if snapshot is None and tally.untrusted:
            graph.abandoned = _NOT_TRUSTED
        for problem in (*wrong, *tally.problems, *told):
            graph.note(problem)
        return Replayed(
            graph,
            tally.next_block,
            max(newest, tally.newest),
            tally.owner if tally.newest >= newest else "",
            frozenset(tally.fences) | (snapshot.fences if snapshot is not None else frozenset()),
            tally.lost,
            snapshot.number if snapshot is not None else 0,
        )

    def _bodies(self, tally: _Tally) -> Iterator[tuple[int, bytes | Block]]:
        """Yield each block's number and :meth:`_body`; a few are fetched ahead."""
        with ThreadPoolExecutor(max(1, min(_READERS, len(tally.present)))) as pool:
            ahead: deque[tuple[int, Future[bytes | Block] | None]] = deque()
            for number in tally.numbers:
                ahead.append((number, pool.submit(self._body, number) if number in tally.present else None))
                if len(ahead) > _READERS:
                    yield _fetched(*ahead.popleft())
            while ahead:
                yield _fetched(*ahead.popleft())

    def _body(self, number: int) -> bytes | Block:
        """Return a block's bytes, or a stand-in for one that is missing or cannot be trusted."""
        try:
            return refuse_sealed(self._store.get(self.key(number)), self.key(number))
        except ObjectNotFound:
            return _MISSING
        except CorruptObject:
            return UNSEALED

    def numbers(self) -> list[int]:
        """Return the numbers of all blocks, in order. One listing."""
        return sorted({number for number in numbers_in(self._store, f"{self._prefix}/events/", ".jsonl") if number > 0})

    def replaced(self, number: int) -> bool:
        """Whether a snapshot covers block *number*, so that it may have been deleted. One listing."""
        return any(newer > number for newer in Snapshots(self._store, self._prefix).numbers())

    def delete(self, numbers: Iterable[int]) -> None:
        """Delete blocks; ``storage.compaction`` says which may be deleted."""
        self._store.delete([self.key(number) for number in numbers])

    def _events(self, tally: _Tally) -> LoggedEvents:
        events: list[JobEvent] = []
        losses: list[tuple[int, Loss]] = []
        with no_collection():
            for number, data in self._bodies(tally):
                block = data if isinstance(data, Block) else decode_block(data, self._prefix, number)
                events.extend(block.events)
                if tally.add(number, block):
                    losses.append((len(events), loss_of(number, block)))
        return LoggedEvents(events, tally.next_block, tally.problems, tally.lost, losses, untrusted=tally.untrusted)

    def block(self, number: int) -> Block | None:
        """Return one block, ``None`` if it does not exist."""
        data = self._body(number)
        if isinstance(data, Block):
            return data if data is not _MISSING else None
        return decode_block(data, self._prefix, number)

    def key(self, number: int) -> str:
        """Return the key of block *number*."""
        return f"{self._prefix}/events/{number:010d}.jsonl"


class _Tally:
    """What the blocks reveal besides their events; names are as in :class:`Replayed`.

    :param start: the first block to read
    :param stored: the numbers of the stored blocks
    """

    def __init__(self, start: int, stored: list[int]) -> None:
        present = [number for number in stored if number >= start]
        self.present = frozenset(present)
        self.next_block = present[-1] + 1 if present else start
        self.numbers = range(start, self.next_block)
        self._problems: list[str] = []
        self._unsealed: list[int] = []
        self._trusted = 0
        self.lost: list[int] = []
        self.fences: set[int] = set()
        self.newest, self.owner = 0, ""

    def add(self, number: int, block: Block) -> bool:
        """Add the next block; return whether some or all of its events are lost."""
        if block.header is None or block.header.epoch > self.newest:
            self.fences.add(number)
        if block.header is not None and block.header.epoch >= self.newest:
            self.newest, self.owner = block.header.epoch, block.header.owner
        if not block.sealed:
            self._unsealed.append(number)
        elif block.problem:
            self._problems.append(describe(number, block))
        self._trusted += block.header is not None
        if block.problem:
            self.lost.append(number)
        return bool(block.problem)

    @property
    def problems(self) -> list[str]:
        """One sentence for each block that was not used in full, and one for all unsealed blocks."""
        if len(self._unsealed) < 2:
            return [*self._problems, *(describe(number, UNSEALED) for number in self._unsealed)]
        first, last = self._unsealed[0], self._unsealed[-1]
        told = f"{len(self._unsealed)} blocks from {first} to {last} are {NOT_SEALED}; nothing of them is used"
        return [*self._problems, told]

    @property
    def untrusted(self) -> bool:
        """Whether there are blocks and none of them has a valid seal."""
        return bool(self._unsealed) and not self._trusted


_MISSING = Block(None, problem="it is missing")
UNSEALED = Block(None, problem=f"it is {NOT_SEALED}", sealed=False)
"""What is known of a block whose seal is missing or wrong."""


def _fetched(number: int, future: Future[bytes | Block] | None) -> tuple[int, bytes | Block]:
    return number, future.result() if future is not None else _MISSING


def loss_of(number: int, block: Block) -> Loss:
    """Return what is known of the lost records of a block that was not used in full."""
    return Loss(number, block.header.epoch if block.header is not None else 0, first_read=bool(block.used))


def describe(number: int, block: Block) -> str:
    """Return one sentence about a block's problem and how much of the block is used."""
    used = f"its first {block.used} events are used" if block.used else "nothing of it is used"
    return f"block {number} is damaged or foreign, {block.problem}; {used}"
