"""Read a pickle that PySpark ships to executors without creating any object of it.

Real unpickling would run constructors of the user's classes, import modules and, because cloudpickle remembers the
classes that it has shipped, overwrite methods of the script's own classes. So each global that the pickle names is
replaced by a stand-in that only notes how it is called. The result is a graph of plain containers, code objects and
notes: everything that an executor gets, without side effects.

Cloudpickle's own helpers are interpreted, because part of what they carry has no meaning: ids of tracked classes, cells
that are filled later.
"""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

_CLOUDPICKLE = ("pyspark.cloudpickle", "cloudpickle")
_LOOK_UPS = {
    "builtins.getattr",
    "builtins.type",
    "operator.getitem",
    "_operator.getitem",
    "builtins.property",
    "types.MethodType",
}
"""Calls that never change their first argument."""


class Unreadable(Exception):
    """A pickle cannot be read into notes; the text says why."""


@dataclass(eq=False)
class Made:
    """What a call in a pickle would make.

    :ivar maker: what is called: a stand-in, or something that was itself made
    :ivar how: ``call``, or ``new`` for ``maker.__new__``
    :ivar states: what it gets by ``__setstate__``, in order
    :ivar items: values that are appended to it, or pairs that are set in it
    :ivar effects: calls that get it as the first of two arguments, and so may change it: what is called, and the other
        argument
    """

    maker: Any
    how: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    states: list[Any] = field(default_factory=list)
    items: list[Any] = field(default_factory=list)
    effects: list[tuple[Any, Any]] = field(default_factory=list)

    # Unpickling calls the following methods.

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        return _call(self, args, kwargs)

    def __setstate__(self, state: Any) -> None:
        self.states.append(state)

    def append(self, item: Any) -> None:  # noqa: D102
        self.items.append(item)

    def extend(self, items: list[Any]) -> None:  # noqa: D102
        self.items.extend(items)

    def add(self, item: Any) -> None:  # noqa: D102
        self.items.append(item)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))


@dataclass(eq=False)
class Function:
    """A function that is shipped by value.

    :ivar namespace: represents the module that defines it; functions of one module share it
    :ivar attributes: its ``__dict__``
    :ivar slots: its other attributes by name; ``__globals__`` has those that its code names
    """

    code: CodeType
    namespace: dict[str, Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    slots: dict[str, Any] = field(default_factory=dict)
    effects: list[tuple[Any, Any]] = field(default_factory=list)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        return _call(self, args, kwargs)


@dataclass(eq=False)
class Cell:
    """A variable that functions share: a tuple with its value, empty if it has none."""

    content: tuple[Any, ...]


@dataclass(eq=False)
class Class:
    """A class that is shipped by value.

    :ivar described: its metaclass, name, bases and, of an enumeration, members
    :ivar attributes: its namespace
    """

    described: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    effects: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Broadcast:
    """A broadcast variable that the command uses."""

    id: int


@dataclass(frozen=True, eq=False)
class Unknowable:
    """Something whose meaning the pickle does not show."""

    reason: str


class StandIn(type):
    """Represents what a pickle names or builds. A type, because unpickling makes instances of types only.

    :ivar module: where an executor finds it; empty if the pickle builds it
    :ivar path: its qualified name there
    :ivar built: the note of how the pickle builds it
    :ivar hook: what happens when it is called
    """

    module: str
    path: str
    built: Class | Made | None
    hook: Callable[..., Any] | None

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        return cls.hook(*args, **kwargs) if cls.hook else _call(cls, args, kwargs)


class _Instance:
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return Made(cls, "new", args, kwargs)


def _stand_in(
    module: str, path: str, built: Class | Made | None = None, hook: Callable[..., Any] | None = None
) -> StandIn:
    made: Any = type.__call__(StandIn, "StandIn", (_Instance,), {})
    made.module, made.path, made.built, made.hook = module, path, built, hook
    return made  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=4096)
def _reference(module: str, path: str) -> StandIn:
    return _stand_in(module, path)


def _call(maker: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    made = Made(maker, "call", args, kwargs)
    if isinstance(maker, StandIn):
        name = f"{maker.module}.{maker.path}"
        if name == "builtins.getattr":  # may be a class that is instantiated
            return _stand_in("", "", made)
        if name in _LOOK_UPS:
            return made
    if len(args) == 2:
        target = args[0].built if isinstance(args[0], StandIn) else args[0]
        if isinstance(target, (Made, Function, Class)):
            target.effects.append((maker, args[1]))
    return made


@dataclass
class Pickled:
    """The contents of a pickle.

    :ivar root: the pickled value, in notes
    :ivar functions: the functions that it ships by value
    :ivar names: modules and qualified names of what executors look up
    :ivar modules: modules that it imports as such
    :ivar broadcasts: ids of broadcast variables that it uses
    """

    root: Any = None
    functions: list[Function] = field(default_factory=list)
    names: set[tuple[str, str]] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    broadcasts: list[int] = field(default_factory=list)


def read_pickle(data: bytes) -> Pickled:
    """Return the contents of *data*, which this process must have made.

    :raises Unreadable: it is no pickle, or makes something that cannot be noted
    """
    unpickler = _Unpickler(data)
    try:
        unpickler.pickled.root = unpickler.load()
    except Exception as error:
        raise Unreadable(f"it cannot be read ({type(error).__name__}: {error})") from error
    return unpickler.pickled


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.pickled = Pickled()
        self._hooks: dict[str, StandIn] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in for what a pickle names."""
        if module == "builtins" and name == "Ellipsis":
            return ...
        helper = self._helper(module, name)
        if helper is not None:
            if name not in self._hooks:
                self._hooks[name] = _stand_in(module, name, hook=helper)
            return self._hooks[name]
        self.pickled.names.add((module, name))
        return _reference(module, name)

    def _helper(self, module: str, name: str) -> Callable[..., Any] | None:
        if module.startswith(_CLOUDPICKLE):
            return getattr(self, f"do{name}", None)
        if name in ("_from_id", "_deserialize_accumulator") and module.startswith("pyspark."):
            return getattr(self, f"do{name}", None)
        if name == "CodeType" and module == "types":
            return CodeType
        return None

    # Each of these is named for the helper that it represents.

    def do_make_function(self, code: CodeType, namespace: dict[str, Any], *_: Any) -> Function:
        function = Function(code, namespace)
        self.pickled.functions.append(function)
        return function

    def do_function_setstate(self, function: Function, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
        function.attributes, function.slots = state
        for module in function.slots.get("_cloudpickle_submodules", ()):
            self.pickled.modules.add(module.path)

    def do_make_empty_cell(self) -> Cell:
        return Cell(())

    def do_make_cell(self, *content: Any) -> Cell:
        return Cell(content)

    def do_make_skeleton_class(
        self, metaclass: Any, name: str, bases: Any, keywords: dict[str, Any], *_: Any
    ) -> StandIn:
        keywords = {key: value for key, value in keywords.items() if key != "__module__"}
        return _stand_in("", name, Class((metaclass, name, bases, keywords)))

    def do_make_skeleton_enum(self, bases: Any, name: str, qualname: str, members: dict[str, Any], *_: Any) -> StandIn:
        return _stand_in("", name, Class((bases, name, members)))

    def do_class_setstate(self, stand_in: StandIn, state: tuple[dict[str, Any], dict[str, Any]]) -> StandIn:
        if isinstance(stand_in.built, Class):
            stand_in.built.attributes = state[0]
        return stand_in

    def do_make_typevar(self, *described: Any) -> Made:
        return Made(_reference("typing", "TypeVar"), "call", described[:-1], {})

    def do_builtin_type(self, name: str) -> Any:
        return self.find_class("types", name)

    def dosubimport(self, name: str) -> Any:
        self.pickled.modules.add(name)
        return _reference("", name)

    def do_from_id(self, broadcast_id: int) -> Broadcast:
        self.pickled.broadcasts.append(broadcast_id)
        return Broadcast(broadcast_id)

    def do_deserialize_accumulator(self, *_: Any) -> Unknowable:
        return Unknowable("it uses an accumulator")
