"""Compute the identity of a Python function from its graph, the modules that it reaches, and what may look at it."""

from __future__ import annotations

import hashlib
import itertools
import pickle
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow_provider.core.digest import digest
from airflow_provider.spark.identity.functions.bytecode import Looks, look
from airflow_provider.spark.identity.functions.function_source import read_source
from airflow_provider.spark.identity.functions.modules import Modules, Reached
from airflow_provider.spark.identity.functions.object_graph import Digester, Looked, Opaque
from airflow_provider.spark.identity.functions.outside import Outside
from airflow_provider.spark.identity.functions.pickled import Broadcast, Pickled, Unreadable, read_pickle

_DOCS = {"__doc__", "getdoc", "getsource", "getsourcelines", "findsource"}
_ANNOTATIONS = {
    "__annotations__", "get_type_hints", "get_annotations", "signature", "getfullargspec", "singledispatch",
    "singledispatchmethod", "getsource", "getsourcelines",
}  # fmt: skip
_NAMES = {"__name__", "__qualname__", "__module__", "getmodule"}
_LOCAL_NAMES = {"locals", "vars", "dir", "eval", "exec", "query", "sql", "execute", "getcallargs", "signature"}
_PLACES = {
    "__code__", "gi_code", "cr_code", "_getframe", "currentframe", "f_back", "f_code", "f_lineno", "tb_lineno", "stack",
    "trace", "format_exc", "print_exc", "format_exception", "format_stack", "extract_stack", "extract_tb", "format_tb",
    "getsource", "getsourcelines", "findsource", "getsourcefile", "getfile", "__traceback__", "exc_info",
}  # fmt: skip
_CALLING = {
    "airflow_provider", "boto3", "botocore", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "python-dateutil", "pytz",
    "PyYAML", "regex", "requests", "scikit-learn", "scipy", "six", "tzdata", "urllib3",
}  # fmt: skip
"""Distributions that call the functions they are given, but do not look at how these are written."""
_NAMING = {"pandas", "scikit-learn"}
"""Those of them that show names of functions, as pandas does in columns of ``agg``."""


@dataclass(frozen=True)
class FunctionIdentity:
    """The identity of a Python function.

    :ivar digest: equal only if the function does the same
    :ivar modules: the user's own modules that its code reaches, with a digest of what their source means
    :ivar packages: installed distributions that it reaches, and those that these need, with their versions
    :ivar opaque: why it has no identity; empty if it has
    :ivar draws: the sources of chance that it reaches; empty if its result is the same in each run
    :ivar reads: what it may read by itself while it runs, in an unknown state
    """

    digest: str
    modules: dict[str, str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    opaque: tuple[str, ...] = ()
    draws: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()


class FunctionReader:
    """Tells the Python functions of one driver apart.

    :param broadcasts: broadcast id → what :func:`without_hold` returns of the broadcast variable
    """

    def __init__(self, broadcasts: Mapping[int, object]) -> None:
        self._broadcasts = broadcasts
        self._modules = Modules()
        self._plain_values: dict[int, bytes] = {}

    def read(self, command: bytes) -> FunctionIdentity:
        """Return the identity of the function that PySpark ships as *command*.

        This process must have made *command*: nothing in it is run, but its code is taken apart.
        """
        outside = Outside(self._modules)
        try:
            pickled = read_pickle(command)
            while isinstance(pickled.root, Broadcast):  # PySpark broadcasts large commands
                value = self._content(pickled.root.id).root
                if not isinstance(value, bytes):
                    raise Opaque("its command is not in its broadcast variable")
                pickled = read_pickle(value)
            contents = self._contents(pickled)
            for part in (pickled, *contents.values()):
                outside.look(part)
            identity = self._identity(pickled, contents, outside.modules)
        except (Opaque, Unreadable, OSError) as error:
            identity = FunctionIdentity(hashlib.sha256(command).hexdigest(), opaque=(str(error),))
        return replace(identity, draws=tuple(sorted(outside.draws)), reads=tuple(sorted(outside.reads)))

    def words_of(self, script: Path) -> frozenset[str]:
        """Return all names that are used by a script and by the user's own modules that it reaches.

        :raises OSError: a source cannot be read
        """
        source = read_source(script.read_bytes())
        reached = self._modules.reach(self._modules.imported(source.imports, ""), everything=source.computed)
        return source.words.union(*(module.words for module in reached.own.values()))

    def _identity(self, pickled: Pickled, contents: Mapping[int, Pickled], led_to: Set[str]) -> FunctionIdentity:
        looks = Looks()
        names = set(led_to)
        for part in (pickled, *contents.values()):
            names |= self._names(part, looks)
        reached = self._modules.reach(names, everything=looks.computed)
        missing = sorted(names & reached.absent)
        if missing:
            raise Opaque(f"it uses the module {missing[0]}, which the driver cannot find")
        looked = _looked(looks.words, reached)

        def broadcast(broadcast_id: int) -> bytes:
            if broadcast_id not in self._plain_values:
                value = Digester(looked, broadcast).digest(contents[broadcast_id].root)
                if contents[broadcast_id].functions or contents[broadcast_id].broadcasts:
                    return value
                self._plain_values[broadcast_id] = value
            return self._plain_values[broadcast_id]

        graph = Digester(looked, broadcast).digest(pickled.root)
        full = looked.docs or looked.annotations or looked.places
        modules = {name: source.full if full else source.plain for name, source in sorted(reached.own.items())}
        return FunctionIdentity(
            digest=_joined(graph, modules, reached),
            modules=modules,
            packages=dict(sorted(reached.versions.items())),
        )

    # -- broadcast variables ---------------------------------------------------------------------------------------

    def _contents(self, pickled: Pickled) -> dict[int, Pickled]:
        """Return the contents of the broadcast variables that *pickled* uses, directly or through others."""
        found: dict[int, Pickled] = {}
        pending = list(pickled.broadcasts)
        while pending:
            broadcast_id = pending.pop()
            if broadcast_id not in found:
                found[broadcast_id] = self._content(broadcast_id)
                pending += found[broadcast_id].broadcasts
        return found

    def _content(self, broadcast_id: int) -> Pickled:
        if broadcast_id not in self._broadcasts:
            raise Opaque("it uses a broadcast variable that was not made while recovery was on")
        try:
            data = pickled_value(self._broadcasts[broadcast_id])
        except Exception as error:
            raise Opaque(f"it uses a broadcast variable whose value cannot be had ({error})") from error
        return read_pickle(data)

    # -- modules ---------------------------------------------------------------------------------------------------

    def _names(self, pickled: Pickled, looks: Looks) -> set[str]:
        """Return the modules that *pickled* names; add to *looks* what its code does."""
        names = {*pickled.modules, *(module for module, _ in pickled.names)} - {"__main__", "__mp_main__"}
        for function in pickled.functions:
            own = Looks()
            look(function.code, own)
            package = function.namespace.get("__package__") or function.namespace.get("__name__") or ""
            names.update(self._modules.imported(own.imports, str(package)))
            if function.code.co_qualname.startswith("__create_fn__."):  # a dataclass's, which shows its own name only
                own.words.discard("__qualname__")
            looks.words |= own.words
            looks.computed |= own.computed
        return names


def _looked(words: set[str], reached: Reached) -> Looked:
    """Return what the code may look at, given the *words* that it uses and what it reaches."""
    words = words.union(*(source.words for source in reached.own.values()))
    stranger = not reached.packages.keys() <= _CALLING
    places = bool(words & _PLACES)
    looking = stranger or places
    return Looked(
        docs=looking or bool(words & _DOCS),
        annotations=looking or bool(words & _ANNOTATIONS),
        names=looking or bool(words & _NAMES) or bool(reached.packages.keys() & _NAMING),
        root_names=looking or bool(words & _NAMES),
        local_names=looking or bool(words & _LOCAL_NAMES),
        places=places,
    )


def _joined(graph: bytes, modules: dict[str, str], reached: Reached) -> str:
    texts = [graph.hex()]
    for part in (modules, reached.versions, dict.fromkeys(reached.absent, "")):
        texts += [str(len(part)), *itertools.chain.from_iterable(sorted(part.items()))]
    return digest(*texts)


def without_hold(variable: Any) -> Any:
    """Return enough to read a broadcast variable's value later, without holding the variable, which Spark frees when
    nobody holds it: the file that PySpark has pickled it into, if that can be read.
    """
    path = getattr(variable, "_path", None)
    encrypted = getattr(getattr(variable, "_sc", None), "_encryption_enabled", False)
    return variable if path is None or encrypted else Path(path)


def pickled_value(held: Any) -> bytes:
    """Return the pickled value of a broadcast variable: the bytes that executors get, from their file.

    :param held: see :func:`without_hold`
    :raises Exception: it was destroyed, or its value cannot be pickled
    """
    return held.read_bytes() if isinstance(held, Path) else pickle.dumps(held.value, pickle.HIGHEST_PROTOCOL)
