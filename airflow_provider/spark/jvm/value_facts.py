"""Read facts from serialized Spark values: names, literals, seeds, operands, what a map leaves out."""

from __future__ import annotations

import struct

from airflow_provider.spark.jvm.java_stream import JavaArray, JavaObject, JavaType, Unreadable, Value
from airflow_provider.spark.jvm.known_classes import LEFT_OUT_KEYS

_LIST = "scala.collection.immutable.List$SerializationProxy"
_BUFFER = "scala.collection.mutable.ArrayBuffer"
"""The forms of Scala 2.12."""
_PROXY = "scala.collection.generic.DefaultSerializationProxy"
_FACTORY = "scala.collection.IterableFactory$ToFactory"
"""The forms of Scala 2.13."""
_SEQUENCES = {"List", "Vector", "ArrayBuffer", "ListBuffer", "ArraySeq", "Seq", "IndexedSeq", "Queue"}
_ENDS = {"ListSerializeEnd", "SerializeEnd"}
_AROUND_ARRAYS = {
    "scala.collection.immutable.ArraySeq$ofRef": "unsafeArray",
    "scala.collection.mutable.ArraySeq$ofRef": "array",
    "scala.collection.mutable.WrappedArray$ofRef": "array",
}
_PAIR = "scala.Tuple2"
_SMALL_MAP = "scala.collection.immutable.Map$Map"
_TEXT = "org.apache.spark.unsafe.types.UTF8String"
_NUMBERS = {"java.lang.Long": ">q", "java.lang.Integer": ">i", "java.lang.Double": ">d"}


def is_expression(name: str) -> bool:
    """Whether a class of this name may be one of Spark's expressions."""
    return name.startswith("org.apache.spark.sql.")


def short_name(value: Value) -> str:
    """Return the class of an object without package, looking through Scala's serialization proxy."""
    if not isinstance(value, JavaObject):
        return ""
    name = value.type.name
    if name == "scala.runtime.ModuleSerializationProxy":
        module = value.get("moduleClass")
        name = module.type.name if isinstance(module, JavaType) and module.type is not None else ""
    return name.rsplit(".", 1)[-1].rstrip("$")


def literal_in(value: Value) -> str | int | float | None:
    """Return the text or number that a literal holds; ``None`` for anything else."""
    if not isinstance(value, JavaObject):
        return None
    if value.type.name == _TEXT:
        text = value.parts[-1].extra[0]  # its length in four bytes, then UTF-8
        return primitive(text)[4:].decode("utf-8", "replace")
    if value.type.name in _NUMBERS:
        (number,) = struct.unpack(_NUMBERS[value.type.name], primitive(value.get("value")))
        return number  # type: ignore[no-any-return]
    return None


def operands_in(value: Value) -> list[Value]:
    """Return the operands that a field holds: itself, or the elements of a sequence.

    :raises Unreadable: it is a sequence of an unknown kind
    """
    if not isinstance(value, JavaObject) or is_expression(value.type.name):
        return [value]
    found = elements_in(value)
    if found is None:
        found = [item for part in value.parts for item in part.extra]
    if not found:
        raise Unreadable(f"the operands in a {value.type.name} cannot be read")
    return found


def elements_in(value: JavaObject) -> list[Value] | None:
    """Return the elements of a Scala ``Seq``; ``None`` for any other object, and for a kind of it that is not known.

    Two equal plans may hold different kinds of it: where one has a list, the other one has a buffer or an array.
    """
    name = value.type.name
    if name == _BUFFER:
        return _items(value.get("array"))[: int.from_bytes(primitive(value.get("size0")), "big")]
    if name in _AROUND_ARRAYS:
        return _items(value.get(_AROUND_ARRAYS[name]))
    if name == _PROXY:
        factory = value.get("factory")
        if isinstance(factory, JavaObject) and factory.type.name == _FACTORY:
            made = short_name(factory.get("factory"))
            return _written(value)[1:] if made in _SEQUENCES else None  # behind their number
        return None
    return _written(value) if name == _LIST else None


def _items(array: Value) -> list[Value]:
    assert isinstance(array, JavaArray)  # noqa: S101 - of objects
    return array.items


def _written(value: JavaObject) -> list[Value]:
    return [item for item in value.parts[-1].extra if short_name(item) not in _ENDS]


def names_a_column(value: Value) -> bool:
    """Whether an expression, or one of a sequence, holds a column."""
    pending, seen = [value], set[int]()
    while pending:
        each = pending.pop()
        if isinstance(each, JavaObject) and id(each) not in seen:
            seen.add(id(each))
            if short_name(each) == "AttributeReference":
                return True
            pending += [item for part in each.parts for item in (*part.values, *part.extra)]
        elif isinstance(each, JavaArray):  # of a buffer of Scala 2.12
            pending += each.items
    return False


def seed_in(value: Value) -> int | None:
    """Return the number in a literal, a ``Some`` or a boxed number; ``None`` for anything else."""
    while isinstance(value, JavaObject):
        if value.type.name not in _AROUND_SEEDS:
            return None
        value = value.get("value")
    return int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else None


_AROUND_SEEDS = {
    "org.apache.spark.sql.catalyst.expressions.Literal", "scala.Some", "java.lang.Long", "java.lang.Integer",
}  # fmt: skip


def bytes_in(value: Value) -> bytes | None:
    """Return the only array of bytes that a value holds."""
    found: list[bytes] = []
    pending: list[Value] = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, JavaArray) and one.type.name == "[B":
            found.append(one.raw)
        elif isinstance(one, JavaObject):
            for part in one.parts:
                pending += [*part.values, *part.extra]
    return found[0] if len(found) == 1 else None


def primitive(value: Value) -> bytes:
    """Return a primitive value as it is kept: its bytes."""
    assert isinstance(value, bytes)  # noqa: S101 - the reader keeps primitives so
    return value


def left_out_of_maps(value: JavaObject) -> dict[str, str]:
    """Return the fields of a small Scala map, or of a pair in a larger one, whose value does not count, with the key
    that represents it.
    """
    name = value.type.name
    if name == _PAIR:
        key = value.get("_1")
        return {"_2": key} if isinstance(key, str) and key in LEFT_OUT_KEYS else {}
    if not name.startswith(_SMALL_MAP):
        return {}
    names = {field: value.get(field) for _, field in value.type.fields if "key" in field}
    return {
        field.replace("key", "value"): key
        for field, key in names.items()
        if isinstance(key, str) and key in LEFT_OUT_KEYS
    }
