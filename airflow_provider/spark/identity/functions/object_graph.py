"""Digest the contents of a pickle, so that equal digests mean equal behaviour on an executor.

Types count (``1``, ``True`` and ``1.0`` differ), and so does which parts of a graph are the same object, where that can
be observed. Dictionaries keep their order, because a function may iterate over them; sets have none. What changes no
behaviour is left out unless the code can look at it (:class:`Looked`).
"""

from __future__ import annotations

import hashlib
import marshal
import struct
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from airflow_provider.spark.identity.functions.bytecode import shape
from airflow_provider.spark.identity.functions.pickled import (
    Broadcast,
    Cell,
    Class,
    Function,
    Made,
    StandIn,
    Unknowable,
)

_ATOMS = {type(None), bool, int, float, str, bytes}
_MANY = 16
"""Containers with at least this many plain values are written at once."""
_BIG = 1 << 16
_IMMUTABLE = (
    "datetime.",
    "decimal.",
    "fractions.",
    "ipaddress.",
    "numpy.dtype",
    "numpy._core.multiarray.scalar",
    "numpy.core.multiarray.scalar",
    "operator.",
    "_operator.",
    "pathlib.",
    "re.",
    "uuid.",
    "zoneinfo.",
    "builtins.complex",
    "builtins.frozenset",
    "builtins.getattr",
    "builtins.range",
    "builtins.slice",
    "pyspark.sql.types.",
    "typing.",
)
"""Types for which it cannot be observed whether two values are one object."""
_NO_ATTRIBUTES = {"__dict__", "__weakref__", "__firstlineno__", "__static_attributes__", "_abc_impl"}


class Opaque(Exception):
    """Something has no digest; the text says why."""


@dataclass(frozen=True)
class Looked:
    """The details of a function that the code around it may look at, so that they count.

    :ivar docs: docstrings
    :ivar annotations: type annotations
    :ivar names: names of functions
    :ivar root_names: the name of the very function that Spark calls
    :ivar local_names: names of local variables
    :ivar places: files and lines
    """

    docs: bool = False
    annotations: bool = False
    names: bool = False
    root_names: bool = False
    local_names: bool = False
    places: bool = False


class Digester:
    """Digests one graph.

    :param looked: the details of functions that count
    :param broadcast: returns the digest of a broadcast variable's value, or raises :class:`Opaque`
    """

    def __init__(self, looked: Looked, broadcast: Callable[[int], bytes]) -> None:
        self._looked = looked
        self._broadcast = broadcast
        self._sha = hashlib.sha256()
        self._parts: list[bytes] = []
        self._seen: dict[int, int] = {}
        self._alone: dict[int, bytes] = {}
        self._roots: set[int] = set()

    def digest(self, root: Any) -> bytes:
        """Return the digest of *root*, which must outlive this object.

        :raises Opaque: a part of it has none
        """
        for part in root if type(root) is tuple else (root,):
            self._roots.add(id(part.built if isinstance(part, StandIn) else part))
        try:
            self._feed(root)
        except RecursionError:
            raise Opaque("it is nested too deeply") from None
        self._flush()
        return self._sha.digest()

    # -- writing ---------------------------------------------------------------------------------------------------

    def _write(self, tag: bytes, data: bytes = b"") -> None:
        self._parts.append(tag + len(data).to_bytes(8, "big"))
        if len(data) > _BIG:
            self._flush()
            self._sha.update(data)
        else:
            self._parts.append(data)
            if len(self._parts) > _BIG:
                self._flush()

    def _flush(self) -> None:
        self._sha.update(b"".join(self._parts))
        self._parts.clear()

    def _again(self, value: object) -> bool:
        """Whether *value* was met before; then its number represents it."""
        number = self._seen.get(id(value))
        if number is None:
            self._seen[id(value)] = len(self._seen)
            return False
        self._write(b"@", str(number).encode())
        return True

    # -- what a pickle knows by itself -----------------------------------------------------------------------------

    def _feed(self, value: Any) -> None:
        kind = type(value)
        if kind in _ATOMS:
            self._atom(kind, value)
        elif kind is tuple:
            self._sequence(b"t", b"(", value)
        elif kind is frozenset:
            self._unordered(b"<", list(value))
        elif kind is CodeType:
            self._code(value)
        elif kind is StandIn:
            self._stand_in(value)
        elif kind is Made:
            self._made(value)
        elif value is ...:
            self._write(b"~")
        elif kind is Broadcast:
            self._write(b"W", self._broadcast(value.id))
        elif kind is Unknowable:
            raise Opaque(value.reason)
        elif not self._again(value):
            self._mutable(kind, value)

    def _sequence(self, plain_tag: bytes, tag: bytes, value: Any) -> None:
        if not self._plain(plain_tag, value, value):
            self._write(tag, str(len(value)).encode())
            for item in value:
                self._feed(item)

    def _mutable(self, kind: type, value: Any) -> None:
        if kind is list:
            self._sequence(b"l", b"[", value)
        elif kind is dict:
            if not (self._plain(b"d", value, value) and self._plain(b"e", value.values(), list(value.values()))):
                self._write(b"{", str(len(value)).encode())
                for key, item in value.items():
                    self._feed(key)
                    self._feed(item)
        elif kind is set:
            self._unordered(b"s", list(value))
        elif kind is bytearray:
            self._write(b"B", bytes(value))
        elif kind is Function:
            self._function(value)
        elif kind is Class:
            self._class(value)
        elif kind is Cell:
            self._write(b"C", str(len(value.content)).encode())
            for item in value.content:
                self._feed(item)
        else:
            raise Opaque(f"it holds a {kind.__name__}, which recovery does not know")

    def _atom(self, kind: type, value: Any) -> None:
        if kind is str:
            self._write(b"u", value.encode("utf-8", "surrogatepass"))
        elif kind is int:
            self._write(b"i", b"%x" % value if value >= 0 else b"-%x" % -value)
        elif kind is float:
            self._write(b"f", struct.pack(">d", value))
        elif kind is bytes:
            self._write(b"b", value)
        else:
            self._write(b"N" if value is None else b"T" if value else b"F")

    def _plain(self, tag: bytes, values: Any, container: Any) -> bool:
        """Write many plain values at once, if they are plain; marshal's version 2 depends on types and values alone."""
        if len(values) < _MANY or not _ATOMS.issuperset(map(type, values)):
            return False
        self._write(tag, marshal.dumps(list(container), 2))
        return True

    def _unordered(self, tag: bytes, values: list[Any]) -> None:
        self._write(tag, str(len(values)).encode())
        for _, _, value in sorted((self._digest_alone(value), at, value) for at, value in enumerate(values)):
            self._feed(value)

    def _digest_alone(self, value: Any) -> bytes:
        """Return a digest of *value* that does not depend on what was met before, to sort by."""
        if type(value) in _ATOMS:
            other = Digester(self._looked, self._broadcast)
            other._atom(type(value), value)
            return b"".join(other._parts)
        if id(value) not in self._alone:
            self._alone[id(value)] = b""  # it is its own part
            other = Digester(self._looked, self._broadcast)
            other._alone, other._roots = self._alone, self._roots
            other._feed(value)
            other._flush()
            self._alone[id(value)] = other._sha.digest()
        return self._alone[id(value)]

    # -- functions and classes -------------------------------------------------------------------------------------

    def _code(self, code: CodeType) -> None:
        looked = self._looked
        found = shape(code, local_names=looked.local_names, docs=looked.docs, places=looked.places)
        self._write(b"c", found.instructions)
        self._feed(found.facts)
        for constant in found.constants:
            self._feed(constant)
        if looked.names:
            self._feed(tuple(nested.co_name for nested in code.co_consts if type(nested) is CodeType))

    def _function(self, function: Function) -> None:
        slots, looked = function.slots, self._looked
        self._write(b"X")
        self._code(function.code)
        if not self._again(function.namespace):
            self._write(b"n")
        self._feed(slots.get("__defaults__"))
        self._namespace(slots.get("__kwdefaults__") or {})
        self._feed(slots.get("__closure__"))
        self._namespace(slots.get("__globals__") or {})
        self._namespace(function.attributes)
        if looked.root_names if id(function) in self._roots else looked.names:
            self._feed((slots.get("__name__"), slots.get("__qualname__"), slots.get("__module__")))
        if looked.docs:
            self._feed(slots.get("__doc__"))
        if looked.annotations:
            self._namespace(slots.get("__annotations__") or {})
        self._effects(function.effects)

    def _namespace(self, names: dict[str, Any]) -> None:
        self._write(b"=", str(len(names)).encode())
        for name in sorted(names):
            self._atom(str, name)
            self._feed(names[name])

    def _stand_in(self, stand_in: StandIn) -> None:
        if stand_in.built is None:
            if stand_in.module in ("__main__", "__mp_main__"):
                raise Opaque(f"it finds {stand_in.path} by name in the script, where an executor cannot look")
            self._write(b"R", f"{stand_in.module}:{stand_in.path}".encode("utf-8", "surrogatepass"))
        else:
            self._feed(stand_in.built)

    def _class(self, made: Class) -> None:
        self._write(b"K")
        first, name, *others = made.described
        self._feed(first)
        if self._looked.root_names or id(made) not in self._roots:
            self._feed(name)
        for other in others:
            self._feed(other)
        skipped = _NO_ATTRIBUTES | ({"__module__"} if not self._looked.names else set())
        skipped |= {"__doc__"} if not self._looked.docs else set()
        self._namespace({key: value for key, value in made.attributes.items() if key not in skipped})
        self._unordered(b"a", list(made.attributes.get("_abc_impl") or ()))  # classes registered with it
        self._effects(made.effects)

    # -- everything else -------------------------------------------------------------------------------------------

    def _made(self, made: Made) -> None:
        name = f"{made.maker.module}.{made.maker.path}" if type(made.maker) is StandIn else ""
        if not name.startswith(_IMMUTABLE) and self._again(made):
            return
        self._write(b"M", made.how.encode())
        self._feed(made.maker)
        self._feed(made.args[:3] if name == "builtins.property" and not self._looked.docs else made.args)
        self._namespace(made.kwargs)
        for state in made.states:
            self._write(b"S")
            self._feed(state)
        self._write(b"I", str(len(made.items)).encode())
        for item in made.items:
            self._feed(item)
        self._effects(made.effects)

    def _effects(self, effects: list[tuple[Any, Any]]) -> None:
        for maker, state in effects:
            self._write(b"E")
            self._feed(maker)
            self._feed(state)
