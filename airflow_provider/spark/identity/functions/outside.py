"""Find what a Python function reaches outside its rows: sources of chance, and what it reads by itself.

Three places are searched: the function's code, what it holds, and the user's modules. The search is by name: variables
as the function's globals, closure and imports resolve them, with the attributes that the code uses on them. In the
user's own modules, only the functions and classes that are reached count, and what the module does on import. When in
doubt it counts as a draw: one too many costs reuse, one too few would let rows of two draws meet. Likewise a file that
it opens counts as read, unless it certainly only writes it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Set
from types import CodeType
from typing import Any

from airflow_provider.spark.identity.functions.chance import is_generator, source_of_chance
from airflow_provider.spark.identity.functions.files_and_services import reading, reading_method
from airflow_provider.spark.identity.functions.modules import Modules
from airflow_provider.spark.identity.functions.pickled import Cell, Class, Function, Made, Pickled, StandIn
from airflow_provider.spark.identity.functions.references import References, references

_COMPUTED = "code that only a run can tell (eval, exec or a computed import)"
_PLAIN = {type(None), bool, int, float, str, bytes}
_SCRIPT = {"__main__", "__mp_main__"}
_GETTER = "builtins.getattr"
_LISTING = {"globals", "__subclasses__", "getmembers"}
"""Names by which code finds functions and classes of a module without naming them."""
_IMPORTED = "__name__"
"""Every module has this name, and it is none of its functions: it stands for what the module itself does."""


class Outside:
    """Collects what one function reaches.

    :ivar draws: sources of chance, each with where it is reached
    :ivar reads: what it may read by itself, in the same form
    :ivar modules: the user's own modules that it leads to
    """

    def __init__(self, modules: Modules) -> None:
        self._modules = modules
        self._pending: list[str] = []
        self._done: set[tuple[str, str]] = set()
        self.draws: dict[str, None] = {}
        self.reads: dict[str, None] = {}
        self.modules: set[str] = set()

    def look(self, pickled: Pickled) -> None:
        """Examine what a pickle ships, and everything that this reaches.

        :raises OSError: a source cannot be read
        """
        for function in pickled.functions:
            self._function(function)
        attributes = {name for function in pickled.functions for name in function.code.co_names}
        for module, path in pickled.names:
            name = f"{module}.{path}"
            if module not in _SCRIPT and not is_generator(name):
                self._reach(name, attributes=attributes)
        for name in _held(pickled):
            self._reach(name)
        while self._pending:
            self._module(self._pending.pop())

    def _function(self, function: Function) -> None:
        names: dict[str, Any] = dict(function.slots.get("__globals__") or {})
        closure = function.slots.get("__closure__") or ()
        cells = [cell.content[0] if type(cell) is Cell and cell.content else ... for cell in closure]
        names |= zip(function.code.co_freevars, cells, strict=False)
        package = str(function.namespace.get("__package__") or function.namespace.get("__name__") or "")
        found = references(function.code, package)
        parameters = function.code.co_varnames[: function.code.co_argcount]
        defaults = function.slots.get("__defaults__") or ()
        given = {**dict(zip(reversed(parameters), reversed(defaults), strict=False)), **names}
        given |= function.slots.get("__kwdefaults__") or {}
        none = {name for name, value in given.items() if value is None}
        paths = {name: {path} for name, value in names.items() if (path := _path(value))}
        self._references(found, "", paths, none, found.stars)

    def _references(
        self, found: References, where: str, names: Mapping[str, Set[str]], none: Set[str], stars: Set[str]
    ) -> None:
        """Classify what code refers to.

        :param where: the code in a module; empty for the function itself
        :param names: variables around it → what they may be
        :param none: variables that may be ``None``
        :param stars: modules that are imported by ``*``
        """
        if found.computed:
            _add(self.draws, _COMPUTED, where)
        if found.opens:
            _add(self.reads, "open", where)
        _add(self.reads, reading_method(found.attributes), where)
        for module in found.modules:
            self._reach(module, where=where)
        for loaded in found.loaded:
            open_ = loaded.parameter and not where  # of a module, the defaults are known
            seeded = loaded.seed is not None and loaded.seed not in none and not open_
            places = found.imported.get(loaded.name, set()) | names.get(loaded.name, set())
            for place in places or {f"{star}.{loaded.name}" for star in stars}:
                path = ".".join((place, *loaded.attributes))
                self._reach(path, where=where, seeded=seeded, attributes=found.attributes)

    def _reach(self, path: str, *, where: str = "", seeded: bool = False, attributes: Set[str] = frozenset()) -> None:
        if self._modules.own(path) is not None:
            self._pending.append(path)
            return
        _add(self.draws, source_of_chance(path, seeded=seeded, attributes=attributes), where)
        _add(self.reads, reading(path, attributes), where)

    # -- modules of the user's own ---------------------------------------------------------------------------------

    def _module(self, path: str) -> None:
        """Examine what *path*, in a module of the user's, leads to."""
        name = self._modules.own(path)
        assert name is not None  # noqa: S101 - reached as such
        self.modules.add(name)
        source = self._modules.source(name)
        if source.code is None:
            _add(self.draws, "code that cannot be read", name)
            return
        first, _, further = path.removeprefix(name).removeprefix(".").partition(".")
        parts = _parts(source.code, self._modules.package(name))
        top = parts[""]
        if first and first not in parts:
            for place in top.imported.get(first) or {f"{star}.{first}" for star in top.stars}:
                self._reach(f"{place}.{further}" if further else place, where=f"{name}.{first}")
        around = {part: {f"{name}.{part}"} for part in parts if part}
        for variable, places in top.imported.items():
            around[variable] = around.get(variable, set()) | places
        everything = not first or any(part.attributes & _LISTING for part in (top, parts.get(first, top)))
        for part in parts if everything else ("", first, *source.registered):
            if part in parts and (name, part) not in self._done:
                self._done.add((name, part))
                where = f"{name}.{part}" if part else name
                self._references(parts[part], where, around, source.none, parts[part].stars | top.stars)
                self._pending += [] if part else self._imported(top)

    def _imported(self, top: References) -> list[str]:
        """Return names that lead to what the user's modules do on import, named by anything or not."""
        places = {place for bound in top.imported.values() for place in bound} | top.stars
        return [f"{name}.{_IMPORTED}" for place in sorted(places) if (name := self._modules.own(place)) is not None]


def _add(found: dict[str, None], source: str, where: str) -> None:
    if source:
        found[f"{source} in {where}" if where else source] = None


@functools.lru_cache(maxsize=1024)
def _parts(code: CodeType, package: str) -> dict[str, References]:
    """Return what each function and class of a module refers to; the empty key holds what the module itself does."""
    parts = {"": References()}
    parts[""].add(references(code, package, inside=False))
    for inner in code.co_consts:
        if type(inner) is CodeType:
            name = inner.co_name if inner.co_name in code.co_names else ""
            parts.setdefault(name, References()).add(references(inner, package))
    return parts


def _held(pickled: Pickled) -> Iterator[str]:
    """Yield what the values in a pickle lead to, except through variables of functions."""
    names = {f"{module}.{path}" for module, path in pickled.names}
    modules = any(source_of_chance(module) or reading(module) for module in pickled.modules)
    if _GETTER not in names and not any(map(is_generator, names)) and not modules:
        return
    pending, seen = [pickled.root], set[int]()
    while pending:
        value = pending.pop()
        if type(value) in _PLAIN or id(value) in seen:
            continue
        seen.add(id(value))
        path = _path(value)
        if path and (not value.module or is_generator(path)):
            yield path
        pending += _inside(value)


def _inside(value: Any) -> list[Any]:
    """Return the parts of a value in a pickle."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return [] if _PLAIN.issuperset(map(type, value)) else list(value)
    if kind is dict:
        return [*_inside(list(value)), *_inside(list(value.values()))]
    if kind is StandIn:
        return [] if value.built is None else [value.built]
    if kind is Function:
        slots = value.slots
        named = [*(slots.get("__globals__") or {}).values()]
        named += [content for cell in slots.get("__closure__") or () for content in cell.content]
        others = [slots.get("__defaults__"), slots.get("__kwdefaults__"), value.attributes, value.effects]
        return [*others, *(each for each in named if type(each) is not StandIn or each.built is not None)]
    if kind is Class:
        return [value.described, value.attributes, value.effects]
    if kind is Cell:
        return list(value.content)
    if kind is Made:
        return [value.maker, value.args, value.kwargs, value.states, value.items, value.effects]
    return []


def _path(value: Any) -> str:
    """Return where an executor looks up a stand-in for a module, class or function; empty if nowhere."""
    if type(value) is not StandIn:
        return ""
    if value.built is None:
        return f"{value.module}.{value.path}" if value.module else value.path
    made = value.built
    if type(made) is Made and _path(made.maker) == _GETTER and len(made.args) == 2:
        owner = _path(made.args[0]) or _path(getattr(made.args[0], "maker", None))
        return f"{owner}.{made.args[1]}" if owner else ""
    return ""
