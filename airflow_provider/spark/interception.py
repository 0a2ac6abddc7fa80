"""The only place where PySpark is patched: each of its methods once, from one table, while a script runs.

A call of a method of the table becomes one :class:`Call` and passes the stages that are there for its kind, from the
first to the last; what the last one proceeds to is PySpark's own method. A method without a stage is not patched.
"""

from __future__ import annotations

import enum
import functools
import importlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias


class Kind(enum.Enum):
    """What a method does that recovery has something to do with."""

    SESSION = enum.auto()
    """A session is made."""
    LOCAL_DATA = enum.auto()
    """Rows of the driver become a DataFrame."""
    BROADCAST = enum.auto()
    RANGE = enum.auto()
    DRAW = enum.auto()
    """A function of ``pyspark.sql.functions`` that draws by chance."""
    SAMPLE = enum.auto()
    SPLIT = enum.auto()
    QUERY = enum.auto()
    """A DataFrame's own query runs. All methods that return rows come to one of these."""
    COUNT = enum.auto()
    TO_RDD = enum.auto()
    SQL = enum.auto()
    SETTING = enum.auto()
    """``df.write`` is set up."""
    WRITE = enum.auto()
    """``df.write`` writes."""
    TABLE = enum.auto()
    """``df.writeTo`` or ``df.mergeInto`` names its table."""
    ADD_TO_TABLE = enum.auto()
    """``df.writeTo`` adds rows, or ``df.mergeInto`` merges them."""
    REPLACE_TABLE = enum.auto()
    """``df.writeTo`` makes a table or replaces rows of it."""
    SAVE_RDD = enum.auto()
    """An RDD writes to the folder that is its first argument."""
    SAVE_RDD_BY_CONFIGURATION = enum.auto()
    """An RDD writes where only a Hadoop configuration says."""


class _Methods(NamedTuple):
    """A row of the table. What a version of Spark lacks is left out."""

    module: str
    owner: str
    """The class; empty text for functions of the module."""
    names: tuple[str, ...]
    kind: Kind


_FRAME = "pyspark.sql.classic.dataframe"
_OLDER = {_FRAME: "pyspark.sql.dataframe"}
"""Spark 3.5 has no other DataFrames than those with a JVM behind them."""
_READWRITER = "pyspark.sql.readwriter"
_DRAWS = ("rand", "randn", "random", "uuid", "shuffle", "randstr", "uniform")
_TABLE = (
    _Methods("pyspark.sql", "SparkSession", ("__init__",), Kind.SESSION),
    _Methods("pyspark.sql", "SparkSession", ("createDataFrame",), Kind.LOCAL_DATA),
    _Methods("pyspark.sql", "SparkSession", ("range",), Kind.RANGE),
    _Methods("pyspark.sql", "SparkSession", ("sql",), Kind.SQL),
    _Methods("pyspark", "SparkContext", ("broadcast",), Kind.BROADCAST),
    _Methods("pyspark.sql.functions", "", _DRAWS, Kind.DRAW),
    _Methods("pyspark.sql.functions.builtin", "", _DRAWS, Kind.DRAW),
    _Methods(_FRAME, "DataFrame", ("sample",), Kind.SAMPLE),
    _Methods(_FRAME, "DataFrame", ("randomSplit",), Kind.SPLIT),
    _Methods(_FRAME, "DataFrame", ("collect", "_collect_as_arrow", "toLocalIterator", "tail"), Kind.QUERY),
    _Methods(_FRAME, "DataFrame", ("count",), Kind.COUNT),
    _Methods(_FRAME, "DataFrame", ("rdd",), Kind.TO_RDD),
    _Methods(
        _READWRITER,
        "DataFrameWriter",
        ("format", "mode", "option", "options", "partitionBy", "bucketBy", "sortBy", "clusterBy"),
        Kind.SETTING,
    ),
    _Methods(
        _READWRITER,
        "DataFrameWriter",
        ("save", "saveAsTable", "insertInto", "parquet", "json", "csv", "orc", "text", "xml", "jdbc"),
        Kind.WRITE,
    ),
    _Methods(_READWRITER, "DataFrameWriterV2", ("__init__",), Kind.TABLE),
    _Methods(_READWRITER, "DataFrameWriterV2", ("append",), Kind.ADD_TO_TABLE),
    _Methods(
        _READWRITER,
        "DataFrameWriterV2",
        ("create", "replace", "createOrReplace", "overwrite", "overwritePartitions"),
        Kind.REPLACE_TABLE,
    ),
    _Methods("pyspark.sql.merge", "MergeIntoWriter", ("__init__",), Kind.TABLE),
    _Methods("pyspark.sql.merge", "MergeIntoWriter", ("merge",), Kind.ADD_TO_TABLE),
    _Methods(
        "pyspark",
        "RDD",
        ("saveAsTextFile", "saveAsPickleFile", "saveAsSequenceFile", "saveAsHadoopFile", "saveAsNewAPIHadoopFile"),
        Kind.SAVE_RDD,
    ),
    _Methods("pyspark", "RDD", ("saveAsHadoopDataset", "saveAsNewAPIHadoopDataset"), Kind.SAVE_RDD_BY_CONFIGURATION),
)
WRITES = frozenset({Kind.WRITE, Kind.ADD_TO_TABLE, Kind.REPLACE_TABLE, Kind.SAVE_RDD, Kind.SAVE_RDD_BY_CONFIGURATION})
"""What leaves something outside of the event store; SQL may."""


@dataclass(frozen=True)
class Call:
    """A script's call of a method.

    :ivar owner: what the method belongs to: a session, a DataFrame, a writer, an RDD; ``None`` for a function
    :ivar name: of the method
    """

    kind: Kind
    owner: Any
    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def argument(self, position: int, name: str) -> Any:
        """Return an argument that may be given by its position or its name; ``None`` if it is not given."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name)

    @property
    def text_alone(self) -> bool:
        """Whether SQL comes without parameters."""
        return len(self.args) + len(self.kwargs) == 1


Proceed: TypeAlias = Callable[[], Any]
Stage: TypeAlias = Callable[[Call, Proceed], Any]
"""Does its part of a call and returns what the script gets; usually what *proceed* returns."""
Stages: TypeAlias = Mapping[Kind, Stage]


@contextmanager
def intercepted(*parts: Stages) -> Iterator[None]:
    """Let the calls inside pass the stages of *parts*, those of the first part first."""
    wrappers: dict[int, Any] = {}  # a function of chance stands in two modules, and is one
    with ExitStack() as stack:
        for module, owner_name, names, kind in _TABLE:
            stages = [part[kind] for part in parts if kind in part]
            owner = _owner(module, owner_name) if stages else None
            for name in names if owner is not None else ():
                if hasattr(owner, name):
                    original = vars(owner).get(name, getattr(owner, name))
                    wrapper = wrappers.setdefault(id(original), _wrapper(original, kind, name, stages))
                    stack.callback(_put_in_place(owner, name, wrapper))
        yield


def _owner(module: str, name: str) -> Any:
    """Return a class, or the module itself; ``None`` if this version of Spark has no such module."""
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError:
        return _owner(_OLDER[module], name) if module in _OLDER else None
    return getattr(found, name) if name else found


def _put_in_place(owner: Any, name: str, replacement: Any) -> Callable[[], None]:
    """Set a member of a class or module; returns the way back."""
    own, original = name in vars(owner), vars(owner).get(name)
    setattr(owner, name, replacement)

    def restore() -> None:
        if own:
            setattr(owner, name, original)
        else:  # it was inherited
            delattr(owner, name)

    return restore


_busy = threading.local()
"""The writers that this thread's calls are in: what PySpark calls on them itself passes no stage."""
_OF_WRITERS = {Kind.SETTING, Kind.WRITE}


def _wrapper(original: Any, kind: Kind, name: str, stages: Sequence[Stage]) -> Any:
    if kind is Kind.TO_RDD:  # a property

        def member(frame: Any) -> Any:
            return _pass(stages, Call(kind, frame, name), lambda: original.__get__(frame, type(frame)))

        return property(member, doc=original.__doc__)
    if kind is Kind.DRAW:

        @functools.wraps(original)
        def function(*args: Any, **kwargs: Any) -> Any:
            return _pass(stages, Call(kind, None, name, args, kwargs), lambda: original(*args, **kwargs))

        return function

    @functools.wraps(original)
    def method(owner: Any, *args: Any, **kwargs: Any) -> Any:
        def proceed() -> Any:
            return original(owner, *args, **kwargs)

        call = Call(kind, owner, name, args, kwargs)
        if kind not in _OF_WRITERS:
            return _pass(stages, call, proceed)
        writers = _busy.__dict__.setdefault("writers", [])
        if any(writer is owner for writer in writers):
            return proceed()
        writers.append(owner)
        try:
            return _pass(stages, call, proceed)
        finally:
            writers.pop()

    return method


def _pass(stages: Sequence[Stage], call: Call, proceed: Proceed) -> Any:
    if not stages:
        return proceed()
    return stages[0](call, lambda: _pass(stages[1:], call, proceed))
