"""The format of one block of the job event store: checksummed lines of JSON. Pure; see ``docs`` for the layout.

Every line is the CRC-32 of its JSON (eight hexadecimal digits), a space, the JSON. The first line is a header with the
block's number, its owner, and the number of events. A block is valid up to its first line that cannot be trusted: later
lines may depend on what was lost.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from airflow_provider.core.errors import EventFormatError
from airflow_provider.core.events import JobEvent, decode_event

FORMAT = 1


@dataclass(frozen=True)
class BlockHeader:
    """A block's first line.

    :ivar job: the job's prefix
    :ivar owner: the claim's owner, which makes every attempt's blocks unique
    :ivar records: number of events
    """

    job: str
    block: int
    epoch: int
    owner: str
    records: int
    format: int = FORMAT


@dataclass(frozen=True)
class Block:
    """The trusted part of a stored block.

    :ivar header: ``None`` if the block cannot be trusted at all
    :ivar events: empty if the lines were folded while they were read
    :ivar problem: what is wrong with the block; empty text if it is sound
    :ivar used: number of events that can be trusted
    :ivar sealed: ``False`` if it should have a seal but has no valid one (see ``storage.sealing``)
    """

    header: BlockHeader | None
    events: tuple[JobEvent, ...] = ()
    problem: str = ""
    used: int = 0
    sealed: bool = True


def encode_block(header: BlockHeader, events: Sequence[str]) -> bytes:
    """Return a block of events encoded by :func:`encode_event`."""
    lines = [json.dumps(asdict(header), sort_keys=True, separators=(",", ":")), *events]
    return checksummed(lines)


def checksummed(lines: Iterable[str]) -> bytes:
    """Return lines of JSON, each behind its checksum."""
    return "".join(f"{zlib.crc32(line.encode()):08x} {line}\n" for line in lines).encode()


def decode_block(data: bytes, job: str, number: int) -> Block:
    """Read a block that should be block *number* of *job*. Never raises: :attr:`Block.problem` says what is wrong."""
    events: list[JobEvent] = []

    def take(line: bytes, epoch: int) -> None:
        event = decode_event(line.decode())
        if event.epoch != epoch:
            raise ValueError(f"it speaks of attempt {event.epoch}, the block of {epoch}")
        events.append(event)

    block = fold_block(data, job, number, take)
    return replace(block, events=tuple(events))


def fold_block(data: bytes, job: str, number: int, take: Callable[[bytes, int], None]) -> Block:
    """Pass the JSON of each event of a block to *take*; return the block without events.

    :param take: called with the line and the block's epoch; raises ``EventFormatError`` or ``ValueError`` for an
        invalid line, which ends the block
    """
    lines = data.split(b"\n")
    try:
        header = _header(lines[0])
    except (ValueError, TypeError) as error:
        return Block(None, problem=f"its header cannot be read: {error}")
    if (header.job, header.block) != (job, number):
        return Block(None, problem=f"it is block {header.block} of {header.job}")
    used = 0
    for line in lines[1 : header.records + 1]:
        try:
            take(_checked(line), header.epoch)
        except (EventFormatError, ValueError) as error:
            problem = f"record {used + 1} of {header.records} cannot be read: {error}"
            return Block(header, problem=problem, used=used)
        used += 1
    problem = ""
    if used < header.records:
        problem = f"{header.records - used} of {header.records} records are missing"
    elif lines[header.records + 1 :] != [b""]:
        problem = f"it does not end with its {header.records} records"
    return Block(header, problem=problem, used=used)


def checked(line: bytes) -> str:
    """Return the JSON of a line that :func:`checksummed` wrote.

    :raises ValueError: the line has changed
    """
    return _checked(line).decode()


def _checked(line: bytes) -> bytes:
    checksum, _, body = line.partition(b" ")
    if len(checksum) != 8 or int(checksum, 16) != zlib.crc32(body):
        raise ValueError("its checksum is wrong")
    return body


def _header(line: bytes) -> BlockHeader:
    fields = json.loads(checked(line))
    if not isinstance(fields, dict):
        raise TypeError("it is no header")
    if fields.get("format") != FORMAT:
        raise ValueError(f"its format is {fields.get('format')!r}, this release reads {FORMAT}")
    header = BlockHeader(**fields)
    for name, kind in {"job": str, "owner": str, "block": int, "epoch": int, "records": int}.items():
        value = getattr(header, name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError(f"{name} is {value!r}")
    if header.records < 0 or header.epoch < 1:
        raise ValueError("its numbers make no sense")
    return header
