"""Reading the job event store: one contiguous sequence of immutable blocks, written by one attempt after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from airflow_provider.recovery.collector import no_collection
from airflow_provider.recovery.errors import ObjectNotFound
from airflow_provider.recovery.events import JobEvent
from airflow_provider.recovery.graph import ExecutionGraph
from airflow_provider.recovery.loss import Loss
from airflow_provider.storage.blocks import Block, decode_block
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.snapshots import Snapshot, Snapshots

_READERS = 16
"""Blocks fetched at once: a long job has thousands of them, each a small request."""
_TRIES = 5
"""How often the log is read anew because a driver at work has replaced blocks by a snapshot meanwhile."""


@dataclass(frozen=True)
class LoggedEvents:
    """What the job event store tells from one block on.

    :ivar next_block: number of the first block that is not written yet
    :ivar problems: one sentence for each block that was not, or not wholly, used
    :ivar lost_blocks: their numbers; events are missing there, among them perhaps a reset
    :ivar newest_epoch: highest epoch that wrote a block; 0 if none did
    :ivar newest_owner: whose claim that was; empty if only a snapshot tells of it
    :ivar fences: blocks that must never be deleted: the first of each attempt, and what cannot be read
    :ivar losses: before which of the events records are lost, by its position, and what is known of them
    :ivar snapshot: what stands for the blocks before the first one read; ``None`` if there are none
    """

    events: list[JobEvent]
    next_block: int
    problems: list[str] = field(default_factory=list)
    lost_blocks: list[int] = field(default_factory=list)
    newest_epoch: int = 0
    fences: frozenset[int] = frozenset()
    losses: list[tuple[int, Loss]] = field(default_factory=list)
    snapshot: Snapshot | None = None
    newest_owner: str = ""

    def base(self) -> ExecutionGraph:
        """Return the graph before the first of the events, with what is wrong with the store as its problems."""
        graph = self.snapshot.graph.copy() if self.snapshot is not None else ExecutionGraph()
        for problem in self.problems:
            graph.note(problem)
        return graph

    def replay(self) -> ExecutionGraph:
        """Return the graph that snapshot and events tell, with what is wrong with the store among its problems."""
        graph = self.base()
        losses = deque(self.losses)
        with no_collection():
            for position in range(len(self.events) + 1):
                while losses and losses[0][0] == position:
                    graph.lose(losses.popleft()[1])
                if position < len(self.events):
                    graph.apply(self.events[position])
        return graph


class JobEventLog:
    """The event store of the job whose objects lie below *prefix*, as a reader sees it."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def read(self, from_block: int = 1) -> LoggedEvents:
        """Return the events of block *from_block* and all later ones, in the order of the store.

        One listing and one request per block; where *from_block* is not the first, a follower's case, its block is
        asked for first, so that nothing new costs one request and no listing.

        :raises StoreError: the store cannot be read; damaged blocks are no error but a problem in the answer
        """
        if from_block > 1 and self.block(from_block) is None:
            return LoggedEvents([], from_block)
        return self._read(from_block, [number for number in self.numbers() if number >= from_block])

    def load(self) -> LoggedEvents:
        """Return the newest good snapshot and the events after it: all that is known of the job.

        Two listings, and one request for the snapshot and for each block after it.

        :raises StoreError: the store cannot be read; damaged snapshots and blocks are no error but problems
        """
        snapshots = Snapshots(self._store, self._prefix)
        for last in (*[False] * (_TRIES - 1), True):
            numbers = snapshots.numbers()
            snapshot, problems = snapshots.newest(numbers)
            start = snapshot.number if snapshot is not None else 1
            present = [number for number in self.numbers() if number >= start]
            logged = self._read(start, present)
            if last or not logged.lost_blocks or snapshots.numbers() == numbers:
                break
            # A driver at work deletes blocks once a newer snapshot holds them: then that one is to be read.
        newest = max([logged.newest_epoch, *(snapshot.graph.attempts if snapshot is not None else ())])
        owner = logged.newest_owner if logged.newest_epoch == newest else ""
        fences = logged.fences | (snapshot.fences if snapshot is not None else frozenset())
        return replace(
            logged,
            problems=[*problems, *logged.problems],
            newest_epoch=newest,
            newest_owner=owner,
            fences=fences,
            snapshot=snapshot,
        )

    def numbers(self) -> list[int]:
        """Return the numbers of all blocks, in order. One listing."""
        folder = f"{self._prefix}/events/"
        numbers = (_number(info.key.removeprefix(folder)) for info in self._store.list(folder))
        return sorted({number for number in numbers if number is not None})

    def delete(self, numbers: Iterable[int]) -> None:
        """Delete blocks; see ``storage.compaction`` for which may be."""
        self._store.delete([self.key(number) for number in numbers])

    def _read(self, start: int, present: list[int]) -> LoggedEvents:
        next_block = present[-1] + 1 if present else start
        with no_collection(), ThreadPoolExecutor(max(1, min(_READERS, len(present)))) as pool:
            blocks = dict(zip(present, pool.map(self.block, present), strict=True))
        return _collect(start, next_block, blocks)

    def block(self, number: int) -> Block | None:
        """Return one block, ``None`` if it does not exist."""
        try:
            return decode_block(self._store.get(self.key(number)), self._prefix, number)
        except ObjectNotFound:
            return None

    def key(self, number: int) -> str:
        """Return the key of block *number*."""
        return f"{self._prefix}/events/{number:010d}.jsonl"


def _collect(first: int, end: int, blocks: dict[int, Block | None]) -> LoggedEvents:
    events: list[JobEvent] = []
    problems: list[str] = []
    lost: list[int] = []
    losses: list[tuple[int, Loss]] = []
    fences: set[int] = set()
    newest, owner = 0, ""
    for number in range(first, end):
        block = blocks.get(number) or Block(None, problem="it is missing")
        if block.header is None or block.header.epoch > newest:
            fences.add(number)
        if block.header is not None and block.header.epoch >= newest:
            newest, owner = block.header.epoch, block.header.owner
        events.extend(block.events)
        if block.problem:
            losses.append((len(events), loss_of(number, block)))
            lost.append(number)
            problems.append(describe(number, block))
    return LoggedEvents(events, end, problems, lost, newest, frozenset(fences), losses, newest_owner=owner)


def loss_of(number: int, block: Block) -> Loss:
    """Return what is known of the lost records of a block that is not, or not wholly, used."""
    return Loss(number, block.header.epoch if block.header is not None else 0, first_read=bool(block.events))


def describe(number: int, block: Block) -> str:
    """Return one sentence about what is wrong with a block and how much of it is used."""
    used = f"its first {len(block.events)} events are used" if block.events else "nothing of it is used"
    return f"block {number} is damaged or foreign, {block.problem}; {used}"


def _number(name: str) -> int | None:
    stem = name.removesuffix(".jsonl")
    return int(stem) if stem != name and stem.isascii() and stem.isdigit() and int(stem) > 0 else None
