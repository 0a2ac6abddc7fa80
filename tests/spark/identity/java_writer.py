"""A writer of Java's serialization, for values that no JVM has to make; the reverse of the reader under test."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TypeAlias

Given: TypeAlias = "str | int | bytes | list[Given] | Thing | None"


@dataclass
class Thing:
    """An object: class name, fields (numbers are longs), and what its own ``writeObject`` adds."""

    name: str
    fields: dict[str, Given] = field(default_factory=dict)
    extra: list[Given] | None = None
    parent: Thing | None = None


class JavaWriter:
    """Writes values as ``ObjectOutputStream`` does: what was written before is referred to."""

    def __init__(self) -> None:
        self.data = bytearray(b"\xac\xed\x00\x05")
        self._handles: dict[object, int] = {}
        self._count = 0

    def write(self, value: Given) -> JavaWriter:
        if value is None:
            self.data += b"p"
        elif isinstance(value, bytes):
            self.data += b"w" + bytes([len(value)]) + value
        elif isinstance(value, list):
            self.data += b"u"
            self._class("[Ljava.lang.Object;", [], None, 2)
            self._count += 1
            self.data += struct.pack(">i", len(value))
            for item in value:
                self.write(item)
        elif isinstance(value, str):
            self._string(value)
        else:
            assert isinstance(value, Thing)
            key = id(value)
            if self._refer(key):
                return self
            self.data += b"s"
            chain = [value]
            while chain[0].parent is not None:
                chain.insert(0, chain[0].parent)
            self._chain(chain)
            self._handles[key] = self._next()
            for one in chain:
                for item in self._in_order(one).values():
                    self.data += struct.pack(">q", item) if isinstance(item, int) else b""
                    if not isinstance(item, int):
                        self.write(item)
                if one.extra is not None:
                    for item in one.extra:
                        self.write(item)
                    self.data += b"x"
        return self

    def _in_order(self, thing: Thing) -> dict[str, Given]:
        return dict(sorted(thing.fields.items(), key=lambda pair: (not isinstance(pair[1], int), pair[0])))

    def _chain(self, chain: list[Thing]) -> None:
        for one in reversed(chain):
            codes = [("J" if isinstance(item, int) else "L", name) for name, item in self._in_order(one).items()]
            known = self._class(one.name, codes, one, 3 if one.extra is not None else 2, ends=False)
            if known:
                return
        self.data += b"p"

    def _class(self, name: str, codes: list[tuple[str, str]], _: object, flags: int, *, ends: bool = True) -> bool:
        if self._refer(("class", name)):
            return True
        self.data += b"r" + self._utf(name) + b"\0" * 8
        self._handles["class", name] = self._next()
        self.data += bytes([flags]) + struct.pack(">h", len(codes))
        for code, field_name in codes:
            self.data += code.encode() + self._utf(field_name)
            if code == "L":
                self._string("Ljava/lang/Object;")
        self.data += b"x" + (b"p" if ends else b"")
        return False

    def _string(self, text: str) -> None:
        if not self._refer(("text", text)):
            self.data += b"t" + self._utf(text)
            self._handles["text", text] = self._next()

    def _utf(self, text: str) -> bytes:
        units = text.encode("utf-16-be", "surrogatepass")
        raw = b"".join(
            b"\xc0\x80" if unit == "\0" else unit.encode("utf-8", "surrogatepass")
            for unit in (chr(int.from_bytes(units[at : at + 2], "big")) for at in range(0, len(units), 2))
        )
        return struct.pack(">H", len(raw)) + raw

    def _refer(self, key: object) -> bool:
        if key not in self._handles:
            return False
        self.data += b"q" + struct.pack(">i", 0x7E0000 + self._handles[key])
        return True

    def _next(self) -> int:
        self._count += 1
        return self._count - 1
