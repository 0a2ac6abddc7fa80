"""Digest serialized values: the digest is equal in every JVM, and only for equal values.

Everything in a stream counts, except for the fields that :mod:`airflow_provider.spark.jvm.known_classes` lists and
those that only cache what was computed (lazy values). Expression ids, which Spark counts up, are numbered in the order
in which they appear. Class names, Python functions and unknown things in the values are noted.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from airflow_provider.spark.jvm.java_stream import (
    JavaArray,
    JavaClass,
    JavaEnum,
    JavaObject,
    Unreadable,
    Value,
)
from airflow_provider.spark.jvm.known_classes import (
    COMMUTATIVE,
    KNOWN_PACKAGES,
    LEFT_OUT_CLASSES,
    LEFT_OUT_FIELDS,
    LEFT_OUT_OF,
    MIRRORED,
    UNKNOWN_PACKAGES,
)
from airflow_provider.spark.jvm.plan_walk import ClassShape
from airflow_provider.spark.jvm.value_facts import (
    bytes_in,
    elements_in,
    is_expression,
    left_out_of_maps,
    literal_in,
    names_a_column,
    operands_in,
    primitive,
    short_name,
)

EXPRESSION_ID = "org.apache.spark.sql.catalyst.expressions.ExprId"
COMMON_ID = "org.apache.spark.sql.catalyst.expressions.CommonExpressionId"
PLAN = "org.apache.spark.sql.catalyst.plans.QueryPlan"
PYTHON_FUNCTION = "org.apache.spark.api.python.SimplePythonFunction"
PYTHON_TYPE = "org.apache.spark.sql.types.PythonUserDefinedType"
LAMBDA = "java.lang.invoke.SerializedLambda"

_Walk: TypeAlias = "Generator[tuple[Value, bool], bytes, bytes]"


@dataclass
class Noted:
    """What was met in values.

    :ivar classes: names of all classes of objects
    :ivar functions: commands of Python functions, each with its name and whether it is marked as deterministic
    :ivar types: the user's own Python types whose values functions get, by name: each one's class, pickled
    :ivar unknown: why something has no identity
    :ivar literals: texts and numbers that expressions hold
    :ivar counts_rows: whether a window's frame counts rows
    :ivar no_order: whether a window depends on the order of rows, and no column orders them
    :ivar varying: whether a method of Spark's is called that declares itself not deterministic
    """

    classes: set[str] = field(default_factory=set)
    functions: list[tuple[str, bytes, bool]] = field(default_factory=list)
    types: dict[str, bytes] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    literals: set[str | int | float] = field(default_factory=set)
    counts_rows: bool = False
    no_order: bool = False
    varying: bool = False


class ValueDigest:
    """Digests the values of one plan.

    :param shape_of: class name → what the JVM says of it
    :param draw_of: an object → fields that hold a drawn seed, with what represents it
    :param left_out: whether a text or a number in an expression does not count; ``None`` if all do
    """

    def __init__(
        self,
        shape_of: Callable[[str], ClassShape],
        draw_of: Callable[[JavaObject], dict[str, str]],
        left_out: Callable[[str | int | float], bool] | None = None,
    ) -> None:
        self.noted = Noted()
        self._left_out = left_out
        self._shape_of = shape_of
        self._draw_of = draw_of
        self._ids: dict[bytes, int] = {}
        self._machines: dict[bytes, int] = {}
        self._done: dict[tuple[int, bool], bytes] = {}
        self._kept: list[Value] = []  # so that no id of an object is used twice
        self._named: dict[int, tuple[str, bool]] = {}
        self._dropped: dict[str, frozenset[str]] = {}

    def number(self, kind: str, raw: bytes) -> int:
        """Return a number by order of appearance for what Spark gave the number *raw*."""
        return self._ids.setdefault(kind.encode() + raw, len(self._ids))

    def digest(self, value: Value, *, positional: bool) -> bytes:
        """Return the digest of a value.

        :param positional: whether expression ids in it are positions, as in a canonical plan
        :raises Unreadable: it holds a plan
        """
        self._kept.append(value)
        stack = [self._walk(value, positional)]
        above = {id(value): 0}  # an expression's formatter may point back to it
        order = [id(value)]
        answer: bytes | None = None
        while stack:
            try:
                wanted, inner = next(stack[-1]) if answer is None else stack[-1].send(answer)
            except StopIteration as end:
                stack.pop()
                above.pop(order.pop(), None)
                answer = end.value
                continue
            key = id(wanted)
            answer = _NOTHING if wanted is None else self._done.get((key, inner))
            if answer is None and key in above and not isinstance(wanted, str | bytes):
                answer = _hash(b"u", str(len(order) - above[key]).encode())
            if answer is None:
                stack.append(self._walk(wanted, inner))
                above.setdefault(key, len(order))
                order.append(key)
        assert answer is not None  # noqa: S101 - the last generator has ended
        return answer

    def _walk(self, value: Value, positional: bool) -> _Walk:
        if value is None:
            return _NOTHING
        if isinstance(value, str):
            return _LEFT_OUT if self._left_out is not None and self._left_out(value) else _hash(b"s", _utf8(value))
        if isinstance(value, bytes):
            return _hash(b"b", value)
        if isinstance(value, JavaObject):
            found = yield from self._object(value, positional)
        elif isinstance(value, JavaArray):
            self._check(value.type)
            texts = [b"a", value.type.name.encode(), value.length.to_bytes(4, "big"), value.raw]
            for item in value.items:
                texts.append((yield item, positional))  # noqa: PERF401 - each answer is sent in
            found = _hash(*texts)
        elif isinstance(value, JavaEnum):
            self._check(value.type)
            (constant,) = value.constant
            found = _hash(b"e", value.type.name.encode(), _hash(b"s", _utf8(constant)))
        else:
            if value.type is not None:
                self._check(value.type)
            found = _hash(b"c", value.type.name.encode() if value.type is not None else b"")
        self._done[id(value), positional] = found
        return found

    def _object(self, value: JavaObject, positional: bool) -> _Walk:
        name = value.type.name
        if name == EXPRESSION_ID:
            return self._expression_id(value, positional)
        if name == LAMBDA:
            implemented = value.get("implClass")
            if not (isinstance(implemented, str) and implemented.startswith(("org/apache/spark/sql/", "scala/"))):
                self._unknown(f"a JVM function ({implemented!r})")
        else:
            self._check(value.type)
        if name.endswith("$"):  # a Scala object: there is one
            return _hash(b"o", name.encode())
        short = name.rsplit(".", 1)[-1]
        if (elements := elements_in(value)) is not None:
            texts = [b"q"]
            for item in elements:
                texts.append((yield item, positional))  # noqa: PERF401 - each answer is sent in
            return _hash(*texts)
        if name == PYTHON_FUNCTION:
            return self._python(value)
        if name == PYTHON_TYPE:
            self.noted.types[str(value.get("pyUDT"))] = b64decode(str(value.get("serializedPyClass")))
        if short in ("PythonUDF", "PythonUDAF", "PythonUDTF"):
            self._name_function(value)
        if short == "WindowExpression":
            self._judge_window(value)
        if short == "Literal":
            literal = literal_in(value.get("value"))
            if literal is not None:
                self.noted.literals.add(literal)
                if self._left_out is not None and self._left_out(literal):
                    return _LEFT_OUT
        if short in ("Invoke", "StaticInvoke"):
            self.noted.varying |= value.get("isDeterministic") == b"\0" or str(value.get("functionName")) in _DRAWING
        if name == COMMON_ID:  # counted up, too
            return _hash(b"m", str(self.number("common", primitive(value.get("id")))).encode())
        stands_for = self._draw_of(value) or left_out_of_maps(value)
        commutative = COMMUTATIVE.get(short, ()) if positional else ()
        mirror = positional and short in MIRRORED
        parameters: tuple[str, ...] | None = None
        operands: list[bytes] = []
        texts = [b"o", (name.removesuffix(short) + MIRRORED[short] if mirror else name).encode()]
        for part in value.parts:
            dropped = self._dropped_of(part.owner, short)
            if dropped is None:
                continue
            owner = part.owner.name
            texts.append((owner.removesuffix(short) + MIRRORED[short] if mirror else owner).encode())
            pairs = zip(part.owner.fields, part.values, strict=True)
            for (code, field_name), item in _turned(pairs) if mirror else pairs:
                if field_name in dropped:
                    continue
                texts.append(field_name.encode())
                if field_name in stands_for:
                    texts.append(_hash(b"d", stands_for[field_name].encode()))
                elif field_name in commutative:
                    for operand in operands_in(item):
                        operands.append((yield operand, positional))  # noqa: PERF401 - each answer is sent in
                elif code in "L[":
                    inner = positional
                    if positional and is_expression(name):
                        if parameters is None:
                            parameters = self._shape_of(name).parameters
                        inner = field_name in parameters
                    texts.append((yield item, inner))
                else:
                    texts.append(primitive(item))
            texts.append(len(part.extra).to_bytes(4, "big"))
            for item in part.extra:
                texts.append((yield item, positional))
        return _hash(*texts, *sorted(operands))

    # -- what is left out ------------------------------------------------------------------------------------------

    def _dropped_of(self, owner: JavaClass, short: str) -> frozenset[str] | None:
        """Return the fields of a class that do not count; ``None`` if the whole class does not."""
        if owner.name in LEFT_OUT_CLASSES:
            return None
        key = f"{owner.name} {short}" if short in LEFT_OUT_OF else owner.name
        if key not in self._dropped:
            dropped = {*LEFT_OUT_FIELDS, *LEFT_OUT_OF.get(short, {})}
            dropped |= {name for _, name in owner.fields if name.startswith("bitmap$")}
            if owner.name.startswith("org.apache.spark."):
                shape = self._shape_of(owner.name)
                dropped |= shape.lazy
                lost = shape.lost - dropped
                if lost:
                    self._unknown(f"{owner.name} does not write {', '.join(sorted(lost))}")
            self._dropped[key] = frozenset(dropped)
        return self._dropped[key]

    def _expression_id(self, value: JavaObject, positional: bool) -> bytes:
        raw, machine = primitive(value.get("id")), value.get("jvmId")
        assert isinstance(machine, JavaObject)  # noqa: S101 - a UUID
        unique = primitive(machine.get("mostSigBits")) + primitive(machine.get("leastSigBits"))
        if positional:
            return _hash(b"p", raw, str(self._machines.setdefault(unique, len(self._machines))).encode())
        return _hash(b"i", str(self.number("expression", raw + unique)).encode())

    # -- what is noted ---------------------------------------------------------------------------------------------

    def _check(self, of: JavaClass) -> None:
        name = of.name.lstrip("[").removeprefix("L").removesuffix(";") if of.name.startswith("[") else of.name
        if name in self.noted.classes or name in _PRIMITIVE or (of.name.startswith("[") and len(name) == 1):
            return
        self.noted.classes.add(name)
        if not name.startswith(KNOWN_PACKAGES) or name.startswith(UNKNOWN_PACKAGES):
            self._unknown(f"it holds a {name}, which is not known to recovery")
        if any(one.name == PLAN for one in of.chain()):
            raise Unreadable(f"a plan ({name}) stands where recovery does not look for one")

    def _unknown(self, reason: str) -> None:
        if reason not in self.noted.unknown:
            self.noted.unknown.append(reason)

    def _python(self, value: JavaObject) -> bytes:
        """Leave a Python function to the function reader; here its number represents it."""
        command = bytes_in(value.get("command"))
        if command is None:
            self._unknown("a Python function cannot be looked at")
            return _hash(b"f")
        name, deterministic = self._named.get(id(value), ("", True))
        self.noted.functions.append((name, command, deterministic))
        return _hash(b"f", str(len(self.noted.functions)).encode())

    def _name_function(self, value: JavaObject) -> None:
        """Note the name of a Python function, and whether it is marked as not deterministic."""
        marked = value.get("udfDeterministic") == b"\0"
        self._named[id(value.get("func"))] = (str(value.get("name")), not marked)

    def _judge_window(self, value: JavaObject) -> None:
        """Note a window whose frame counts rows: which rows these are depends on the order of equal ones."""
        specification, function = value.get("windowSpec"), value.get("windowFunction")
        if not isinstance(specification, JavaObject) or not isinstance(function, JavaObject):
            raise Unreadable("a window cannot be read")
        frame = specification.get("frameSpecification")
        if not isinstance(frame, JavaObject) or short_name(function) in _BY_RANK:
            return
        if not frame.type.name.endswith("SpecifiedWindowFrame"):
            return
        bounds = [short_name(frame.get(name)) for name in ("frameType", "lower", "upper")]
        if bounds[0] == "RowFrame" and bounds[1:] != ["UnboundedPreceding", "UnboundedFollowing"]:
            self.noted.counts_rows = True
            self.noted.no_order |= not names_a_column(specification.get("orderSpec"))


_PRIMITIVE = {"boolean", "byte", "char", "double", "float", "int", "long", "short", "void"}
_DRAWING = {"aesEncrypt"}
"""Methods that draw at random without declaring it."""
_BY_RANK = {"Rank", "DenseRank", "PercentRank", "CumeDist"}


def _turned(
    pairs: Iterable[tuple[tuple[str, str], Value]],
) -> Iterable[tuple[tuple[str, str], Value]]:
    """Return the fields of a comparison with its sides exchanged."""
    sides = {"left": "right", "right": "left"}
    turned = [((code, sides.get(name, name)), value) for (code, name), value in pairs]
    return sorted(turned, key=lambda pair: pair[0][1])


def _utf8(text: Value) -> bytes:
    assert isinstance(text, str)  # noqa: S101 - the grammar has nothing else here
    return text.encode("utf-8", "surrogatepass")


def _hash(*texts: bytes) -> bytes:
    sha = hashlib.sha256()
    for text in texts:
        sha.update(len(text).to_bytes(8, "big"))
        sha.update(text)
    return sha.digest()


_NOTHING = _hash(b"n")
_LEFT_OUT = _hash(b"l")
