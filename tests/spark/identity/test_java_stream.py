"""The reader of Java's serialization gives back what was written, or an error; no Spark runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider.spark.jvm.java_stream import JavaArray, JavaObject, Unreadable, Value, read_stream
from airflow_provider.spark.jvm.value_digest import ValueDigest
from airflow_provider.spark.jvm.value_facts import names_a_column, operands_in
from tests.spark.identity.java_writer import Given, JavaWriter, Thing
from tests.support.parameters import each_value

names = st.text("abc", min_size=1, max_size=2)
longs = st.integers(-(2**63), 2**63 - 1)


def things(values: st.SearchStrategy[Given]) -> st.SearchStrategy[Given]:
    """Objects whose class follows from the names and kinds of their fields, as a real class would."""

    def thing(fields: dict[str, Given], extra: list[Given] | None) -> Thing:
        kinds = "".join(f"{name}{isinstance(item, int):d}" for name, item in sorted(fields.items()))
        return Thing(f"some.Thing{kinds}{extra is not None:d}", fields, extra)

    anything = st.one_of(values, longs)
    return st.one_of(
        st.lists(values, max_size=4),
        st.builds(thing, st.dictionaries(names, anything, max_size=4), st.none() | st.lists(values, max_size=3)),
    )


values = st.recursive(st.none() | st.text(max_size=8), things, max_leaves=12)


def plain(value: Value) -> object:
    if isinstance(value, JavaObject):
        fields = {
            name: int.from_bytes(item, "big", signed=True) if code == "J" and isinstance(item, bytes) else plain(item)
            for part in value.parts
            for (code, name), item in zip(part.owner.fields, part.values, strict=True)
        }
        return (value.type.name, fields, [plain(item) for part in value.parts for item in part.extra])
    if isinstance(value, JavaArray):
        return [plain(item) for item in value.items]
    return value


def expected(value: Given) -> object:
    if isinstance(value, Thing):
        return (
            value.name,
            {name: item if isinstance(item, int) else expected(item) for name, item in value.fields.items()},
            [expected(item) for item in value.extra or []],
        )
    if isinstance(value, list):
        return [expected(item) for item in value]
    return value


@given(st.lists(values, max_size=3))
def test_what_was_written_is_read(written: list[Given]) -> None:
    """Objects, arrays, texts of any characters, references to what came before, in any nesting."""
    writer = JavaWriter()
    for value in written:
        writer.write(value)
    assert [plain(value) for value in read_stream(bytes(writer.data))] == [expected(value) for value in written]


@given(values, st.data())
def test_a_stream_that_ends_early_is_an_error(written: Given, data: st.DataObject) -> None:
    """However much of it is there."""
    whole = bytes(JavaWriter().write(Thing("some.Pair", {"a": written, "b": written}, [b"end"])).data)
    end = data.draw(st.integers(0, len(whole) - 1))
    if end == 4:  # a stream that holds nothing
        assert read_stream(whole[:end]) == []
    else:
        with pytest.raises(Unreadable):
            read_stream(whole[:end])


@given(st.binary(max_size=60))
def test_anything_else_is_an_error(noise: bytes) -> None:
    """Never another exception, whatever the bytes."""
    for data in (noise, b"\xac\xed\x00\x05" + noise, b"\xac\xed\x00\x05sr" + noise):
        with suppress(Unreadable):
            assert isinstance(read_stream(data), list)


def test_an_object_is_one_wherever_it_is_referred_to() -> None:
    """Two fields that hold the same object hold the same object."""
    shared = Thing("some.Shared", {"x": 1})
    (pair,) = read_stream(bytes(JavaWriter().write(Thing("some.Pair", {"a": shared, "b": shared})).data))
    assert isinstance(pair, JavaObject)
    assert pair.get("a") is pair.get("b")
    with pytest.raises(Unreadable, match="no field"):
        pair.get("c")


def test_depth_costs_no_recursion() -> None:
    """Ten thousand objects inside one another are read."""
    header = bytes(JavaWriter().write(Thing("some.Link", {"next": None})).data)
    body = header[:-1]
    again = b"sq" + (0x7E0000).to_bytes(4, "big")
    (outer,) = read_stream(body + again * 10_000 + b"p")
    depth = 0
    one: Value = outer
    while isinstance(one, JavaObject):
        depth, one = depth + 1, one.get("next")
    assert depth == 10_001


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"}\0\0\0\0", "unknown tag"),
        (b"y", "unknown tag"),
        (b"{", "unknown tag"),
        (b"q\x00\x7e\x00\x07", "points nowhere"),
        (b"sp", "no class"),
        (b"sr\x00\x01a" + b"\0" * 8 + b"\x04\0\0xp", "without an end"),
        (b"sr\x00\x01a" + b"\0" * 8 + b"\x00\0\0xp", "neither"),
        (b"sr\x00\x01a" + b"\0" * 8 + b"\x02\0\0px", "annotated"),
        (b"sr\x00\x01a" + b"\0" * 8 + b"\x02\0\x01Q\x00\x01b", "unknown type"),
    ],
)
def test_what_values_of_spark_do_not_need_is_refused(body: bytes, reason: str) -> None:
    """Proxies, resets, exceptions, annotated classes, forms without an end: an error says which."""
    with pytest.raises(Unreadable, match=reason):
        read_stream(b"\xac\xed\x00\x05" + body)


@pytest.mark.parametrize("column", [True, False])
def test_a_column_is_found_in_a_buffer_of_scala_2_12(column: bool) -> None:
    """It holds its elements in an array; what Scala 2.13 writes has them one by one."""
    name = "AttributeReference" if column else "Literal"
    order = Thing("SortOrder", {"child": Thing(f"org.apache.spark.sql.catalyst.expressions.{name}", {}, None)}, None)
    writer = JavaWriter()
    writer.write(Thing("scala.collection.mutable.ArrayBuffer", {"array": [order, None], "size0": 1}, None))
    (buffer,) = read_stream(bytes(writer.data))
    assert names_a_column(buffer) is column


def module(name: str) -> Thing:
    """A Scala object, as its proxy writes it; the reader gets its name from the class."""
    return Thing(f"{name}$")


def of_factory(name: str, elements: list[Given]) -> Thing:
    """A collection as Scala 2.13 writes it; a list does not know how long it is."""
    factory = Thing("scala.collection.IterableFactory$ToFactory", {"factory": module(f"scala.{name}")}, None)
    end = [module("scala.collection.generic.SerializeEnd")] if name == "List" else []
    extra = [b"\xff\xff\xff\xff" if end else len(elements).to_bytes(4, "big"), *elements, *end]
    return Thing("scala.collection.generic.DefaultSerializationProxy", {"factory": factory}, extra)


SEQUENCES: dict[str, Callable[[list[Given]], Thing]] = {
    "List of 2.12": lambda elements: Thing(
        "scala.collection.immutable.List$SerializationProxy",
        {},
        [*elements, module("scala.collection.immutable.ListSerializeEnd")],
    ),
    "ArrayBuffer of 2.12": lambda elements: Thing(
        "scala.collection.mutable.ArrayBuffer", {"array": [*elements, *[None] * 3], "size0": len(elements)}, None
    ),
    "List": lambda elements: of_factory("List", elements),
    "Vector": lambda elements: of_factory("Vector", elements),
    "ArraySeq": lambda elements: Thing("scala.collection.immutable.ArraySeq$ofRef", {"unsafeArray": [*elements]}, None),
}


def read(one: Thing) -> Value:
    (value,) = read_stream(bytes(JavaWriter().write(one).data))
    return value


@each_value(kind=SEQUENCES)
def test_sequences_are_told_by_their_elements(kind: Callable[[list[Given]], Thing]) -> None:
    """Equal plans hold lists, buffers or arrays; what a buffer has room for says nothing. A set is no sequence."""

    def digest(one: Value) -> bytes:
        return ValueDigest(lambda _: pytest.fail("asked for a class"), lambda _: {}).digest(one, positional=True)

    elements: list[list[Given]] = [[], ["a"], ["b"], ["a", "b"], ["b", "a"], [None]]
    sequences = [read(kind(each)) for each in elements]
    assert [digest(one) for one in sequences] == [digest(read(SEQUENCES["List"](each))) for each in elements]
    assert len(set(map(digest, sequences))) == len(sequences)
    assert [operands_in(one) for one in sequences[1:5]] == elements[1:5]
    assert digest(read(of_factory("HashSet", ["a"]))) not in map(digest, sequences)


def test_operands_in_another_kind_of_sequence_are_not_left_out() -> None:
    """That would make one sum of many columns look like another."""
    with pytest.raises(Unreadable, match="operands in a scala"):
        operands_in(read(Thing("scala.collection.immutable.Vector", {"a": "b"})))
