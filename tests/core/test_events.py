"""Events: what is written is read back, and nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.core.errors import EventFormatError
from airflow_provider.core.events import (
    MOST_PARTITIONS,
    JobEvent,
    JobFailed,
    JobFinished,
    PartitionFinished,
    PartitionsReset,
    VertexInitialized,
    decode_event,
    encode_event,
)
from tests.core.examples import events


@given(events)
def test_any_event_survives_the_store(event: JobEvent) -> None:
    """Every event, with any values of its fields' types, is one line and is read back equal, of the same type."""
    line = encode_event(event)
    assert "\n" not in line
    assert "\r" not in line
    assert decode_event(line) == event
    assert type(decode_event(line)) is type(event)


@given(events)
def test_an_event_has_one_form(event: JobEvent) -> None:
    """Equal events are equal bytes: a block's content can be compared."""
    assert encode_event(decode_event(encode_event(event))) == encode_event(event)


def test_the_format_on_disk_is_fixed() -> None:
    """Histories must replay for ever: these lines, as the first release wrote them, never change."""
    assert encode_event(JobFinished(epoch=2, at=1.5)) == (
        '{"at":1.5,"epoch":2,"store_retries":0,"type":"JobFinished","version":2}'
    )
    reset = PartitionsReset(epoch=2, vertex="v", indexes=(1, 2), reason="lost")
    assert encode_event(reset) == (
        '{"at":0.0,"epoch":2,"indexes":[1,2],"reason":"lost","type":"PartitionsReset","version":1,"vertex":"v"}'
    )


def test_fields_with_defaults_may_be_absent() -> None:
    """What a later release adds is not in old histories."""
    line = '{"epoch":1,"type":"VertexInitialized","version":1,"vertex":"v","name":"n","fingerprint":"f",' + (
        '"parallelism":2,"layout":"l","deterministic":true}'
    )
    assert decode_event(line) == VertexInitialized(
        epoch=1, vertex="v", name="n", fingerprint="f", parallelism=2, layout="l", deterministic=True
    )


_GOOD = json.loads(
    encode_event(
        PartitionFinished(
            epoch=1, vertex="v", layout="l", index=0, key="k", rows=1, bytes=2, checksum="c", duration=0.5, attempt=1
        )
    )
)


@pytest.mark.parametrize(
    "change",
    [
        {"type": "SomethingElse"},
        {"type": None},
        {"type": ["PartitionFinished"]},
        {"version": 2},
        {"version": "1"},
        {"version": True},
        {"version": None},
        {"index": "0"},
        {"index": 0.0},
        {"index": True},
        {"index": None},
        {"vertex": 3},
        {"duration": "long"},
        {"duration": True},
        {"unknown": 1},
    ],
    ids=str,
)
def test_a_wrong_field_is_refused(change: dict[str, object]) -> None:
    """Unknown types, newer versions, unknown fields and wrong types are errors, never guesses."""
    with pytest.raises(EventFormatError):
        decode_event(json.dumps(_GOOD | change))


@pytest.mark.parametrize("field", sorted(set(_GOOD) - {"at"}))
def test_a_missing_field_is_refused(field: str) -> None:
    """No value is made up for what has no default."""
    with pytest.raises(EventFormatError):
        decode_event(json.dumps({name: value for name, value in _GOOD.items() if name != field}))


@pytest.mark.parametrize(
    "change",
    [{"indexes": ["1"]}, {"indexes": [True]}, {"indexes": [1.0]}, {"indexes": [None]}, {"indexes": {}}, {"indexes": 1}],
    ids=str,
)
def test_the_elements_of_lists_are_checked_too(change: dict[str, object]) -> None:
    """An index that is no number would reset nothing, silently."""
    good = json.loads(encode_event(PartitionsReset(epoch=1, vertex="v", indexes=(1,), reason="r")))
    with pytest.raises(EventFormatError):
        decode_event(json.dumps(good | change))


def test_the_values_of_mappings_are_checked_too() -> None:
    """The parts of a fingerprint are texts."""
    event = VertexInitialized(
        epoch=1, vertex="v", name="n", fingerprint="f", parallelism=2, layout="l", deterministic=True, parts={"a": "b"}
    )
    with pytest.raises(EventFormatError, match="parts"):
        decode_event(json.dumps(json.loads(encode_event(event)) | {"parts": {"a": 1}}))


@pytest.mark.parametrize(
    "line", ["", "x", "[]", "null", "1", '"text"', "{}", '{"type":"JobFinished"}', '{"version":1}', '{"type":']
)
def test_what_is_no_event_is_refused(line: str) -> None:
    """Any other JSON, and what is none."""
    with pytest.raises(EventFormatError):
        decode_event(line)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_does_not_know_are_refused(number: str) -> None:
    """Neither written nor read: other tools could not read them."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_event(JobFinished(epoch=1, at=float(number.replace("Infinity", "inf"))))
    with pytest.raises(EventFormatError):
        decode_event('{"at":%s,"epoch":1,"type":"JobFinished","version":1}' % number)  # noqa: UP031


@given(st.text())
def test_any_text_is_an_event_or_an_error(text: str) -> None:
    """Reading ends in one of two ways."""
    with pytest.raises(EventFormatError):
        decode_event(text)


def test_an_error_of_a_job_may_hold_anything() -> None:
    """Error messages come from users' code."""
    event = JobFailed(epoch=1, error='line\u2028 "quotes" \\ \x00 🚀')
    assert decode_event(encode_event(event)) == event


@pytest.mark.parametrize("parallelism", [-1, MOST_PARTITIONS + 1, 10**8])
def test_a_vertex_that_claims_too_much_is_not_read(parallelism: int) -> None:
    """Whoever can write to the store cannot make its readers fill their memory with one line."""
    fields: dict[str, Any] = {"vertex": "v", "name": "v", "fingerprint": "f", "layout": "l", "deterministic": True}
    most = VertexInitialized(epoch=1, at=1.0, parallelism=MOST_PARTITIONS, **fields)
    line = encode_event(most)
    assert decode_event(line) == most
    with pytest.raises(EventFormatError, match=f"has {parallelism} partitions"):
        decode_event(line.replace(f'"parallelism":{MOST_PARTITIONS}', f'"parallelism":{parallelism}'))
