"""The format of a block: whatever happens to its bytes, only what was written is ever read."""

from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.core.events import (
    AttemptStarted,
    JobEvent,
    JobFinished,
    JobStateChanged,
    PartitionsReset,
    VertexSkipped,
    encode_event,
)
from airflow_provider.storage.blocks import BlockHeader, decode_block, encode_block

JOB = "jobs/a/@job"
EVENTS: list[JobEvent] = [
    AttemptStarted(epoch=3, reason="a\nb"),
    JobStateChanged(epoch=3, state="RUNNING"),
    VertexSkipped(epoch=3, name="späße", reason="\u2028 \x85 no"),
    JobFinished(epoch=3),
]


def _block(events: list[JobEvent] = EVENTS, **header: object) -> bytes:
    fields = {"job": JOB, "block": 7, "epoch": 3, "owner": "me", "records": len(events), **header}
    return encode_block(BlockHeader(**fields), [encode_event(event) for event in events])  # type: ignore[arg-type]


def _line(text: str) -> bytes:
    return f"{zlib.crc32(text.encode()):08x} {text}\n".encode()


def test_a_block_is_read_as_it_was_written() -> None:
    """Header and events come back whole, with any character in them."""
    block = decode_block(_block(), JOB, 7)
    assert block.problem == ""
    assert block.header == BlockHeader(JOB, 7, 3, "me", 4)
    assert list(block.events) == EVENTS


def test_every_line_is_a_checksum_and_json() -> None:
    """The format on disk: eight hexadecimal digits of CRC-32, a space, JSON; so that other tools can read it."""
    lines = _block().splitlines()
    assert len(lines) == 5
    for line in lines:
        assert int(line[:8], 16) == zlib.crc32(line[9:])
        json.loads(line[9:])
    assert json.loads(lines[0][9:]) == {
        "block": 7, "epoch": 3, "format": 1, "job": JOB, "owner": "me", "records": 4,
    }  # fmt: skip


def test_a_torn_tail_keeps_the_whole_lines_before_it() -> None:
    """Cut anywhere, a block yields the events whose lines are whole, and says that something is missing."""
    for length in range(len(_block())):
        data = _block()[:length]
        block = decode_block(data, JOB, 7)
        # A last line that lacks nothing but its line break is whole too.
        whole = data.count(b"\n") + (_block()[length : length + 1] == b"\n")
        assert list(block.events) == EVENTS[: max(0, whole - 1)]
        assert (block.header is None) == (whole == 0)
        if 0 < whole < 5:
            assert "missing" in block.problem or "cannot be read" in block.problem
        assert block.problem


@given(st.integers(0, len(_block()) - 1), st.integers(1, 255))
def test_a_changed_byte_is_noticed_wherever_it_is(position: int, change: int) -> None:
    """Bit rot never changes an event: the block counts up to the damaged line."""
    data = bytearray(_block())
    data[position] ^= change
    block = decode_block(bytes(data), JOB, 7)
    assert block.problem or (list(block.events) == EVENTS and bytes(data).lower() == _block())
    assert list(block.events) == EVENTS[: len(block.events)]


@given(st.binary(max_size=200))
def test_any_bytes_can_be_read(data: bytes) -> None:
    """Reading never raises and trusts nothing without a header."""
    block = decode_block(data, JOB, 7)
    assert block.problem
    assert (block.header, block.events) == (None, ())


@pytest.mark.parametrize(
    "data",
    [
        _block(job="jobs/b/@job"),
        _block(block=8),
        _block(format=2),
        _block(records=-1),
        _block(records=True),
        _block(epoch=0),
        _block(epoch="3"),
        _line("[]") + _block(),
        _line("null"),
        _line('{"format":1}'),
        _line('{"format":1,"job":"jobs/a/@job","block":7,"epoch":3,"owner":"x","records":0,"more":1}'),
    ],
)
def test_a_foreign_or_unknown_block_is_not_trusted(data: bytes) -> None:
    """Another job's block, another number, a newer format, a header that makes no sense: nothing of it is used."""
    block = decode_block(data, JOB, 7)
    assert block.header is None
    assert block.events == ()
    assert block.problem


@pytest.mark.parametrize(
    "bad",
    [
        '{"type":"FromTheFuture","version":1,"epoch":3}',
        '{"type":"JobFinished","version":99,"epoch":3,"at":0.0}',
        '{"type":"JobFinished","version":1,"at":0.0}',
        encode_event(JobFinished(epoch=2)),
        "not JSON",
    ],
)
def test_a_record_that_cannot_be_understood_ends_the_block(bad: str) -> None:
    """What follows an unknown event may depend on it; what stands before it does not."""
    header = BlockHeader(JOB, 7, 3, "me", 3)
    data = encode_block(header, [encode_event(EVENTS[0]), bad, encode_event(EVENTS[1])])
    block = decode_block(data, JOB, 7)
    assert block.header == header
    assert list(block.events) == EVENTS[:1]
    assert "record 2 of 3" in block.problem


def test_more_records_than_announced_are_a_problem() -> None:
    """A block says how many events it holds; others did not come with it."""
    block = decode_block(_block(records=2), JOB, 7)
    assert list(block.events) == EVENTS[:2]
    assert "does not end with its 2 records" in block.problem


def test_an_empty_block_is_sound() -> None:
    """No events is a valid number of events."""
    assert decode_block(_block([]), JOB, 7).problem == ""


def test_a_reset_keeps_its_indexes() -> None:
    """Lists in events survive as tuples."""
    reset: list[JobEvent] = [PartitionsReset(epoch=3, vertex="v", indexes=(0, 5), reason="r")]
    assert list(decode_block(_block(reset), JOB, 7).events) == reset
