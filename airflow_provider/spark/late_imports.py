"""Patch a module when it is imported, not before: MLlib takes seconds to import, and needs NumPy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


@contextmanager
def when_imported(then: Mapping[str, Callable[[ModuleType], None]]) -> Iterator[None]:
    """Within the block, call a module's function as soon as the module is imported; at once if it already is.

    :param then: name of a module → what to do with it before anyone else sees it
    """
    finder = _Finder(then)
    sys.meta_path.insert(0, finder)
    try:
        for name, function in then.items():
            if (module := sys.modules.get(name)) is not None:
                function(module)
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    """Finds the modules in question through the other finders, and gives them a loader of its own."""

    def __init__(self, then: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._then:
            return None
        others = (finder for finder in list(sys.meta_path) if not isinstance(finder, _Finder))
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._then[fullname])
        return spec


class _Loader(Loader):
    """Wraps a module's loader until the module is loaded."""

    def __init__(self, loader: Loader, then: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec: Any = module.__spec__
        module.__loader__ = spec.loader = self._loader
        self._loader.exec_module(module)
        self._then(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
