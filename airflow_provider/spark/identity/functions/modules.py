"""The modules that Python code reaches, and what represents each: its own source, or its package's version.

Modules are found as the import system finds them, but none is imported. Data that a module reads while it runs, such as
its own files, is not covered.
"""

from __future__ import annotations

import functools
import os
import pkgutil
import site
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from importlib.machinery import ModuleSpec
from importlib.util import resolve_name
from pathlib import Path
from typing import Any, Literal

from airflow_provider.spark.identity.functions.distributions import distributions_of, needed_by
from airflow_provider.spark.identity.functions.function_source import Source, read_source, unparsed

_PINNED = {"pyspark": "pyspark", "py4j": "pyspark", "airflow_provider": "airflow_provider"}
"""Packages that may be on the path without being installed, and the module that knows their version."""


@dataclass
class Reached:
    """Everything that code reaches.

    :ivar own: the user's own modules by name
    :ivar packages: versions of installed distributions by name
    :ivar needed: versions of the distributions that these need
    :ivar absent: modules that it imports, but that do not exist
    """

    own: dict[str, Source] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    needed: dict[str, str] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)

    @property
    def versions(self) -> dict[str, str]:
        """The versions of all distributions by name."""
        return self.needed | self.packages


@dataclass(frozen=True)
class _Kind:
    """What a module name refers to."""

    place: Literal["standard", "installed", "own"]
    spec: ModuleSpec | None = None
    packages: tuple[tuple[str, str], ...] = ()

    @property
    def is_package(self) -> bool:
        return self.spec is not None and self.spec.submodule_search_locations is not None


class Modules:
    """Finds modules by name; reads a source again only when its file has changed."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._absent: dict[str, tuple[str, ...]] = {}
        self._sources: dict[tuple[str, str], tuple[tuple[int, ...], Source]] = {}

    def reach(self, names: Iterable[str], *, everything: bool = False) -> Reached:
        """Return everything that the modules *names* reach through their imports.

        :param everything: start also from every module of the user's that this process has loaded
        :raises OSError: a source cannot be read
        """
        reached = Reached()
        pending = list(names)
        done: set[str] = set()
        while pending or everything:
            if not pending:
                pending, everything = self._loaded(), False
                continue
            name = pending.pop()
            if name in done:
                continue
            done.add(name)
            kind = self._kind(name)
            if kind is None:
                reached.absent.add(name)
            elif kind.place == "installed":
                reached.packages.update(kind.packages)
                for distribution, _ in kind.packages:
                    reached.needed.update(needed_by(distribution))
            elif kind.place == "own":
                source = self._source(name, kind)
                reached.own[name] = source
                if source.computed:
                    everything |= "*" not in done
                    done.add("*")
                    pending += self._beside(name)
                pending += self.imported(source.imports, self.package(name))
                if "." in name:
                    pending.append(name.rpartition(".")[0])
        return reached

    def imported(self, imports: Iterable[tuple[int, str, tuple[str, ...]]], package: str) -> list[str]:
        """Return the modules that import statements inside *package* name."""
        found: list[str] = []
        for level, module, names in imports:
            base = module
            if level:
                try:
                    base = resolve_name("." * level + module, package)
                except ImportError:
                    continue
            found.append(base)
            kind = self._kind(base) if names else None
            if kind is not None and kind.place == "own" and kind.is_package:
                listed = self._source(base, kind).exported if "*" in names else ()
                found += [child for name in (*names, *listed) if self._kind(child := f"{base}.{name}") is not None]
            elif kind is not None and kind.place == "installed" and kind.spec and kind.spec.origin is None:
                found += [f"{base}.{name}" for name in names if self._kind(f"{base}.{name}")]  # namespace of several
        return found

    def own(self, path: str) -> str | None:
        """Return the user's own module that the dotted *path* leads into; ``None`` if it leads elsewhere."""
        top = self._kind(path.partition(".")[0])
        if top is None or (top.place != "own" and (top.spec is None or top.spec.origin is not None)):
            return None
        while path:
            kind = self._kind(path)
            if kind is not None:
                return path if kind.place == "own" else None
            path = path.rpartition(".")[0]
        return None

    def source(self, name: str) -> Source:
        """Return the meaning of the user's own module *name*.

        :raises OSError: its source cannot be read
        """
        kind = self._kind(name)
        assert kind is not None  # noqa: S101 - found before
        return self._source(name, kind)

    def package(self, name: str) -> str:
        """Return the package that relative imports in module *name* start from."""
        kind = self._kind(name)
        return name if kind is not None and kind.is_package else name.rpartition(".")[0]

    def _beside(self, name: str) -> list[str]:
        """Return the candidates for a module that computes its imports: all of its package, else its folder."""
        top = name.partition(".")[0]
        kind = self._kind(top)
        if kind is None or kind.spec is None:
            return []
        if kind.is_package:
            places, prefix = list(kind.spec.submodule_search_locations or ()), f"{top}."
        else:
            places, prefix = [os.path.dirname(kind.spec.origin or "")], ""
        found, pending = list[str](), [(place, prefix) for place in places if place]
        while pending:
            place, prefix = pending.pop()
            for each in pkgutil.iter_modules([place]):
                found.append(f"{prefix}{each.name}")
                if each.ispkg and prefix:
                    pending.append((os.path.join(place, each.name), f"{prefix}{each.name}."))
        return found

    def _loaded(self) -> list[str]:
        names = [name for name, module in list(sys.modules.items()) if getattr(module, "__spec__", None) is not None]
        return [name for name in names if (kind := self._kind(name)) is not None and kind.place == "own"]

    # -- finding ---------------------------------------------------------------------------------------------------

    def _kind(self, name: str) -> _Kind | None:
        kind = self._kinds.get(name)
        if kind is not None:
            return kind
        path = tuple(sys.path)
        if self._absent.get(name) == path:
            return None
        kind = self._find(name)
        if kind is None:
            self._absent[name] = path
        else:
            self._kinds[name] = kind
        return kind

    def _find(self, name: str) -> _Kind | None:
        top = name.partition(".")[0]
        if top in _PINNED:
            module: Any = sys.modules.get(_PINNED[top])
            return _Kind("installed", packages=((_PINNED[top], str(getattr(module, "__version__", ""))),))
        if top in sys.builtin_module_names:
            return _Kind("standard")
        spec = self._spec(name)
        if spec is None:
            return None
        if spec.origin in ("built-in", "frozen"):
            return _Kind("standard")
        places = [spec.origin] if spec.origin and spec.has_location else list(spec.submodule_search_locations or ())
        for place in places:
            if _is_below(place, _site_folders()):
                packages = distributions_of(top)
                if packages:
                    return _Kind("installed", spec, packages)
            elif top in sys.stdlib_module_names and _is_below(place, _standard_folders()):
                return _Kind("standard")
        return _Kind("own", spec)

    def _spec(self, name: str) -> ModuleSpec | None:
        loaded = getattr(sys.modules.get(name), "__spec__", None)
        if isinstance(loaded, ModuleSpec):
            return loaded
        parent = name.rpartition(".")[0]
        path = None
        if parent:
            parent_spec = self._spec(parent)
            if parent_spec is None or parent_spec.submodule_search_locations is None:
                return None
            path = list(parent_spec.submodule_search_locations)
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            try:
                spec: ModuleSpec | None = find(name, path) if find else None
            except KeyError:  # a namespace package inside another one that was never imported
                return None
            if spec is not None:
                return spec
        return None

    # -- reading ---------------------------------------------------------------------------------------------------

    def _source(self, name: str, kind: _Kind) -> Source:
        spec = kind.spec
        loader: Any = spec.loader if spec else None
        origin = (spec.origin if spec and spec.has_location else None) or ""
        file = getattr(loader, "archive", None) or origin
        if not file:
            return replace(unparsed(b"a namespace"), code=compile("", name, "exec"))
        stat = os.stat(file)
        changed = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        known = self._sources.get((file, name))
        if known is not None and known[0] == changed:
            return known[1]
        source = _read(loader, name, origin)
        self._sources[file, name] = changed, source
        return source


def _read(loader: Any, name: str, origin: str) -> Source:
    if origin.endswith(".py") and os.path.exists(origin):
        return read_source(Path(origin).read_bytes())
    text = loader.get_source(name) if hasattr(loader, "get_source") else None  # in a zip
    if text is not None:
        return read_source(text)
    return unparsed(loader.get_data(origin) if hasattr(loader, "get_data") else Path(origin).read_bytes())


def _is_below(place: str, folders: tuple[str, ...]) -> bool:
    return os.path.realpath(place).startswith(folders) or place.startswith(folders)


@functools.lru_cache(maxsize=1)
def _site_folders() -> tuple[str, ...]:
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    folders.add(site.getusersitepackages())
    folders |= {path for path in sys.path if path.rstrip("/").endswith(("site-packages", "dist-packages"))}
    return _with_ends(folders)


@functools.lru_cache(maxsize=1)
def _standard_folders() -> tuple[str, ...]:
    return _with_ends({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})


def _with_ends(folders: Iterable[str]) -> tuple[str, ...]:
    both = {name for folder in folders for name in (folder, os.path.realpath(folder))}
    return tuple(sorted(name.rstrip("/") + "/" for name in both))
