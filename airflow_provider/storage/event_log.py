"""Reading the job event store: one contiguous sequence of immutable blocks, written by one attempt after another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from airflow_provider.recovery.errors import ObjectNotFound
from airflow_provider.recovery.events import JobEvent
from airflow_provider.storage.blocks import Block, decode_block
from airflow_provider.storage.object_store import ObjectStore

_READERS = 16
"""Blocks fetched at once: a long job has thousands of them, each a small request."""


@dataclass(frozen=True)
class LoggedEvents:
    """What the job event store tells from one block on.

    :ivar next_block: number of the first block that is not written yet
    :ivar problems: one sentence for each block that was not, or not wholly, used
    :ivar lost_blocks: their numbers; events are missing there, among them perhaps a reset
    :ivar newest_epoch: highest epoch that wrote a block; 0 if none did
    """

    events: list[JobEvent]
    next_block: int
    problems: list[str] = field(default_factory=list)
    lost_blocks: list[int] = field(default_factory=list)
    newest_epoch: int = 0


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
        folder = f"{self._prefix}/events/"
        numbers = [_number(info.key.removeprefix(folder)) for info in self._store.list(folder)]
        present = sorted({number for number in numbers if number is not None and number >= from_block})
        next_block = present[-1] + 1 if present else from_block
        with ThreadPoolExecutor(max(1, min(_READERS, len(present)))) as pool:
            blocks = dict(zip(present, pool.map(self.block, present), strict=True))
        return _collect(from_block, next_block, blocks)

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
    newest = 0
    for number in range(first, end):
        block = blocks.get(number) or Block(None, problem="it is missing")
        if block.header is not None:
            newest = max(newest, block.header.epoch)
        events.extend(block.events)
        if block.problem:
            lost.append(number)
            problems.append(describe(number, block))
    return LoggedEvents(events, end, problems, lost, newest)


def describe(number: int, block: Block) -> str:
    """Return one sentence about what is wrong with a block and how much of it is used."""
    used = f"its first {len(block.events)} events are used" if block.events else "nothing of it is used"
    return f"block {number} is damaged or foreign, {block.problem}; {used}"


def _number(name: str) -> int | None:
    stem = name.removesuffix(".jsonl")
    return int(stem) if stem != name and stem.isascii() and stem.isdigit() and int(stem) > 0 else None
