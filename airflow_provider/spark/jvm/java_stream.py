"""Read what ``java.io.ObjectOutputStream`` writes, strictly, into plain Python values.

The grammar is public (Java Object Serialization Specification, chapter 6). Nothing is run and no class is looked up: an
object is the names and values in the stream. Whatever the grammar allows but Spark's values do not need (proxies,
resets, exceptions, annotated classes) is an error, and an error means "cannot be read", never "left out".

Primitive values stay the bytes that were written, so that NaN, -0.0 and the like are distinguished exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

_MAGIC = b"\xac\xed\x00\x05"
(
    _NULL, _REFERENCE, _CLASS_DESC, _OBJECT, _STRING, _ARRAY, _CLASS, _BLOCK, _END, _RESET, _LONG_BLOCK, _EXCEPTION,
    _LONG_STRING, _PROXY, _ENUM,
) = range(0x70, 0x7F)  # fmt: skip
_FIRST_HANDLE = 0x7E0000
_WRITE_METHOD, _SERIALIZABLE, _EXTERNALIZABLE, _BLOCK_DATA = 1, 2, 4, 8
_SIZES = {"B": 1, "C": 2, "D": 8, "F": 4, "I": 4, "J": 8, "S": 2, "Z": 1}


class Unreadable(ValueError):
    """The bytes are not in the form that this reader knows."""


@dataclass(eq=False, slots=True)
class JavaClass:
    """A class as a stream describes it.

    :ivar fields: type code and name of each field, in the order in which values are written
    :ivar parent: the next class up that can be serialized
    """

    name: str
    flags: int = 0
    fields: list[tuple[str, str]] = field(default_factory=list)
    parent: JavaClass | None = None

    def chain(self) -> list[JavaClass]:
        """Return the class and those that it extends, the highest first."""
        found: list[JavaClass] = []
        one: JavaClass | None = self
        while one is not None:
            found.insert(0, one)
            one = one.parent
        return found


@dataclass(eq=False, slots=True)
class Part:
    """What one class in an object's chain has written.

    :ivar values: one for each of the class's fields
    :ivar extra: what the class's own ``writeObject`` or ``writeExternal`` added: bytes, and values
    """

    owner: JavaClass
    values: list[Value] = field(default_factory=list)
    extra: list[Value] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class JavaObject:
    """An object: its class, and what each class in its chain has written."""

    type: JavaClass
    parts: list[Part] = field(default_factory=list)

    def get(self, name: str) -> Value:
        """Return the value of a field.

        :raises Unreadable: there is none of that name
        """
        for part in reversed(self.parts):
            for (_, known), value in zip(part.owner.fields, part.values, strict=False):
                if known == name:
                    return value
        raise Unreadable(f"{self.type.name} has no field {name}")


@dataclass(eq=False, slots=True)
class JavaArray:
    """An array; of a primitive type, its bytes."""

    type: JavaClass
    length: int
    items: list[Value] = field(default_factory=list)
    raw: bytes = b""


@dataclass(eq=False, slots=True)
class JavaEnum:
    """A constant of an enum."""

    type: JavaClass
    constant: list[Value] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class JavaType:
    """A ``java.lang.Class``."""

    type: JavaClass | None


Value: TypeAlias = "str | bytes | JavaObject | JavaArray | JavaEnum | JavaType | None"


def read_stream(data: bytes, classes: list[JavaClass] | None = None) -> list[Value]:
    """Return the values that were written to the stream, in order.

    :param classes: gets each class that the stream describes
    :raises Unreadable: it is no such stream, it ends early, or it holds what this reader does not know
    """
    try:
        return _Reader(data, classes if classes is not None else []).read()
    except (IndexError, UnicodeDecodeError) as error:
        raise Unreadable(f"the stream cannot be read: {error}") from error


class _Reader:
    """Reads one stream; a stack of generators represents the nesting, so that depth costs no recursion."""

    def __init__(self, data: bytes, classes: list[JavaClass]) -> None:
        self._data = data
        self._at = 0
        self._handles: list[Value | JavaClass] = []
        self._classes = classes

    def read(self) -> list[Value]:
        if self._take(4) != _MAGIC:
            raise Unreadable("it does not begin as a stream does")
        found: list[Value] = []
        while self._at < len(self._data):
            if self._data[self._at] in (_BLOCK, _LONG_BLOCK):
                found.append(self._block())
            else:
                self._fill(found)
        return found

    def _fill(self, into: list[Value]) -> None:
        """Read one value and everything that it holds, and append it to *into*."""
        first = self._value(into)
        stack = [first] if first is not None else []
        while stack:
            for wanted in stack[-1]:
                nested = self._value(wanted)
                if nested is not None:
                    stack.append(nested)
                    break
            else:
                stack.pop()

    def _value(self, into: list[Value]) -> Iterator[list[Value]] | None:
        """Append the next value to *into*; return a generator that reads the rest of it, if it has a rest."""
        tag = self._byte()
        if tag == _NULL:
            into.append(None)
        elif tag == _REFERENCE:
            referenced = self._referenced()
            if isinstance(referenced, JavaClass):
                raise Unreadable("a class stands where a value should")
            into.append(referenced)
        elif tag in (_STRING, _LONG_STRING):
            text = self._text(self._number(2 if tag == _STRING else 8))
            self._handles.append(text)
            into.append(text)
        elif tag == _OBJECT:
            new = JavaObject(self._require_class())
            self._handles.append(new)
            into.append(new)
            return self._object(new)
        elif tag == _ARRAY:
            return self._array(into)
        elif tag == _ENUM:
            constant = JavaEnum(self._require_class())
            self._handles.append(constant)
            into.append(constant)
            return iter([constant.constant])
        elif tag == _CLASS:
            literal = JavaType(self._class())
            self._handles.append(literal)
            into.append(literal)
        else:
            raise Unreadable(f"unknown tag {tag:#x} at {self._at - 1}")
        return None

    def _object(self, new: JavaObject) -> Iterator[list[Value]]:
        for owner in new.type.chain():
            part = Part(owner)
            new.parts.append(part)
            if owner.flags & _EXTERNALIZABLE:
                if not owner.flags & _BLOCK_DATA:
                    raise Unreadable(f"{owner.name} is written in a form without an end")
                yield from self._extra(part)
            elif owner.flags & _SERIALIZABLE:
                for code, _ in owner.fields:
                    if code in _SIZES:
                        part.values.append(self._take(_SIZES[code]))
                    else:
                        yield part.values
                if owner.flags & _WRITE_METHOD:
                    yield from self._extra(part)
            else:
                raise Unreadable(f"{owner.name} is neither serializable nor externalizable")

    def _extra(self, part: Part) -> Iterator[list[Value]]:
        while True:
            tag = self._data[self._at]
            if tag == _END:
                self._at += 1
                return
            if tag in (_BLOCK, _LONG_BLOCK):
                part.extra.append(self._block())
            else:
                yield part.extra

    def _array(self, into: list[Value]) -> Iterator[list[Value]] | None:
        array = JavaArray(self._require_class(), 0)
        self._handles.append(array)
        into.append(array)
        array.length = self._number(4)
        code = array.type.name[1:2]
        if code in _SIZES:
            array.raw = self._take(array.length * _SIZES[code])
            return None
        if code not in ("L", "["):
            raise Unreadable(f"{array.type.name} is no class of arrays")
        return (array.items for _ in range(array.length))

    # -- classes ---------------------------------------------------------------------------------------------------

    def _require_class(self) -> JavaClass:
        found = self._class()
        if found is None:
            raise Unreadable("a value has no class")
        return found

    def _class(self) -> JavaClass | None:
        """Read a class description; those that it extends follow it."""
        lowest: JavaClass | None = None
        below: JavaClass | None = None
        while True:
            tag = self._byte()
            one: JavaClass | None = None
            if tag == _REFERENCE:
                referenced = self._referenced()
                if not isinstance(referenced, JavaClass):
                    raise Unreadable("a value stands where a class should")
                one = referenced
            elif tag == _CLASS_DESC:
                one = self._new_class()
            elif tag != _NULL:
                raise Unreadable(f"unknown tag {tag:#x} of a class")
            if below is None:
                lowest = one
            else:
                below.parent = one
            if tag != _CLASS_DESC:
                return lowest
            below = one

    def _new_class(self) -> JavaClass:
        new = JavaClass(self._text(self._number(2)))
        self._take(8)  # the class's version: Spark's own version represents it
        self._handles.append(new)
        self._classes.append(new)
        new.flags = self._byte()
        for _ in range(self._number(2)):
            code = chr(self._byte())
            name = self._text(self._number(2))
            if code in "L[":
                self._fill([])  # the type's name
            elif code not in _SIZES:
                raise Unreadable(f"unknown type {code!r} of a field")
            new.fields.append((code, name))
        if self._byte() != _END:
            raise Unreadable(f"{new.name} is annotated")
        return new

    # -- bytes -----------------------------------------------------------------------------------------------------

    def _referenced(self) -> Value | JavaClass:
        index = self._number(4) - _FIRST_HANDLE
        if not 0 <= index < len(self._handles):
            raise Unreadable("a reference points nowhere")
        return self._handles[index]

    def _block(self) -> bytes:
        return self._take(self._number(1 if self._byte() == _BLOCK else 4))

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def _take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) != size:
            raise Unreadable("the stream ends early")
        self._at += size
        return taken

    def _text(self, size: int) -> str:
        """Read Java's modified UTF-8: NUL is two bytes, and a character beyond 16 bits is a pair of surrogates."""
        raw = self._take(size)
        if raw.isascii():
            return raw.decode("ascii")
        text = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
