"""Values that a function holds have equal digests if and only if they are of equal types and contents."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider.spark.identity.functions import FunctionReader
from tests.spark.function_cases import shipped

_READER = FunctionReader({})
_FEW = st.sampled_from([None, False, True, 0, 1, -1, 0.0, -0.0, 1.0, float("nan"), "", "a", "1", b"", b"a", 2**70])
_ATOMS = _FEW | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3)
_KEYS = st.recursive(
    _ATOMS,
    lambda keys: st.lists(keys, max_size=3).map(tuple) | st.frozensets(keys, max_size=3),
    max_leaves=4,
)
_VALUES = st.recursive(
    _ATOMS | _KEYS | st.sets(_KEYS, max_size=4) | st.binary(max_size=3).map(bytearray),
    lambda values: (
        st.lists(values, max_size=4)
        | st.lists(values, max_size=4).map(tuple)
        | st.dictionaries(_KEYS, values, max_size=4)
        | st.lists(_ATOMS, min_size=14, max_size=18)
        | st.lists(_FEW, min_size=16, max_size=16).map(tuple)
        | st.dictionaries(st.integers(0, 40), _FEW, min_size=14, max_size=18)
    ),
    max_leaves=8,
)


def meaning(value: Any) -> Any:
    """What equal values have in common and no others do."""
    kind = type(value)
    if kind is float:
        return kind, struct.pack(">d", value)
    if kind in (list, tuple):
        return kind, tuple(meaning(item) for item in value)
    if kind is dict:
        return kind, tuple((meaning(key), meaning(item)) for key, item in value.items())
    if kind in (set, frozenset):
        return kind, frozenset(meaning(item) for item in value)
    return kind, bytes(value) if kind is bytearray else value


def rebuilt(value: Any) -> Any:
    """An equal value that shares no container with *value*, its sets filled the other way round."""
    kind = type(value)
    if kind is dict:
        return {rebuilt(key): rebuilt(item) for key, item in value.items()}
    if kind in (list, tuple, set, frozenset):
        items = [rebuilt(item) for item in value]
        return kind(reversed(items) if kind in (set, frozenset) else items)
    return bytearray(value) if kind is bytearray else value


def digest(value: Any) -> str:
    found = _READER.read(shipped(lambda: value))
    assert found.opaque == ()
    return found.digest


@given(_VALUES, _VALUES)
@example([True], [1])
@example({1: 0, 2: 0}, {2: 0, 1: 0})
@example([0] * 16, [False] * 16)
@example((0.0,) * 16, (-0.0,) * 16)
@example({frozenset({1, (2, "a")})}, {frozenset({(2, "a"), 1})})
@settings(max_examples=400, deadline=None)
def test_equal_digests_are_equal_values(one: Any, other: Any) -> None:
    """Two values have one digest if and only if they are equal in type and content, down to the last bit."""
    assert (digest(one) == digest(other)) == (meaning(one) == meaning(other))


@given(_VALUES)
@settings(max_examples=200, deadline=None)
def test_a_value_that_is_built_again_has_the_same_digest(value: Any) -> None:
    """Neither the order in which sets were filled nor where values lie in memory counts."""
    assert digest(rebuilt(value)) == digest(value)


@given(_VALUES, st.data())
@settings(max_examples=200, deadline=None)
def test_a_value_changed_in_one_place_has_another_digest(value: Any, data: st.DataObject) -> None:
    """However deep in a value one part is replaced by a different one, the digest differs."""
    changed = _changed(value, data)
    assert (digest(changed) == digest(value)) == (meaning(changed) == meaning(value))


def _changed(value: Any, data: st.DataObject) -> Any:
    kind = type(value)
    if kind in (list, tuple) and value:
        at = data.draw(st.integers(0, len(value) - 1))
        return kind([*value[:at], _changed(value[at], data), *value[at + 1 :]])
    if kind is dict and value:
        at = data.draw(st.sampled_from(range(len(value))))
        return {key: _changed(item, data) if i == at else item for i, (key, item) in enumerate(value.items())}
    return data.draw(_ATOMS)
