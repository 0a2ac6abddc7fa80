"""The only place where PySpark is patched: each method once, from one table, while a script runs.

An intercepted call becomes a :class:`Call` and passes the stages for its kind in order; after the last one comes
PySpark's own method. A method without a stage is not patched.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, NamedTuple

from airflow_provider.spark.calls import Call, Kind, Proceed, Stage, Stages
from airflow_provider.spark.late_imports import when_imported


class _Methods(NamedTuple):
    """A row of the table. What a version of Spark lacks is left out."""

    module: str
    owner: str
    """The class; empty for functions of the module."""
    names: tuple[str, ...]
    kind: Kind
    late: bool = False
    """Whether to patch its methods only when the script imports the module, which takes seconds."""


_FRAME = "pyspark.sql.classic.dataframe"
_OLDER = {_FRAME: "pyspark.sql.dataframe"}
"""All DataFrames of Spark 3.5 have a JVM behind them."""
_READWRITER = "pyspark.sql.readwriter"
_DRAWS = ("rand", "randn", "random", "uuid", "shuffle", "randstr", "uniform")
_TABLE = (
    _Methods("pyspark.sql", "SparkSession", ("__init__",), Kind.SESSION),
    _Methods("pyspark.sql", "SparkSession", ("createDataFrame",), Kind.LOCAL_DATA),
    _Methods("pyspark.sql", "SparkSession", ("range",), Kind.RANGE),
    _Methods("pyspark.sql", "SparkSession", ("sql",), Kind.SQL),
    _Methods("pyspark.sql", "SparkSession", ("table",), Kind.READ),
    _Methods(_READWRITER, "DataFrameReader", ("load", "table", "parquet", "orc", "json", "csv", "text"), Kind.READ),
    _Methods("pyspark", "SparkContext", ("broadcast",), Kind.BROADCAST),
    _Methods("pyspark.sql.functions", "", _DRAWS, Kind.DRAW),
    _Methods("pyspark.sql.functions.builtin", "", _DRAWS, Kind.DRAW),
    _Methods("pyspark.traceback_utils", "", ("first_spark_call",), Kind.CALL_SITE),
    _Methods(_FRAME, "DataFrame", ("sample",), Kind.SAMPLE),
    _Methods(_FRAME, "DataFrame", ("randomSplit",), Kind.SPLIT),
    _Methods(_FRAME, "DataFrame", ("collect", "_collect_as_arrow", "toLocalIterator", "tail"), Kind.QUERY),
    _Methods(_FRAME, "DataFrame", ("count",), Kind.COUNT),
    _Methods(_FRAME, "DataFrame", ("show", "isEmpty"), Kind.SHOW),
    _Methods("pyspark.sql.group", "GroupedData", ("pivot",), Kind.PIVOT),
    _Methods(_FRAME, "DataFrame", ("checkpoint", "localCheckpoint"), Kind.CHECKPOINT),
    _Methods(_FRAME, "DataFrame", ("rdd",), Kind.TO_RDD),
    _Methods(_FRAME, "DataFrame", ("cache", "persist"), Kind.CACHE),
    _Methods("pyspark.sql.catalog", "Catalog", ("cacheTable",), Kind.CACHE_TABLE),
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
    _Methods("pyspark", "RDD", ("foreach", "foreachPartition"), Kind.FOREACH),  # those of DataFrames end in these
    _Methods("pyspark.sql.streaming.readwriter", "DataStreamWriter", ("start", "toTable"), Kind.STREAM),
    _Methods(
        "pyspark.sql.catalog",
        "Catalog",
        (
            "createTable",
            "createExternalTable",
            "dropTable",
            "truncateTable",
            "recoverPartitions",
            "analyzeTable",
            "dropView",
            "createDatabase",
            "dropDatabase",
        ),
        Kind.CATALOG,
    ),
    _Methods("pyspark.sql.connect.session", "SparkSession", ("__init__",), Kind.CONNECT, late=True),
    _Methods("pyspark.ml.util", "MLWriter", ("save",), Kind.SAVE_MODEL, late=True),
    _Methods("pyspark.ml.util", "JavaMLWriter", ("save",), Kind.SAVE_MODEL, late=True),
    _Methods("pyspark.mllib.util", "JavaSaveable", ("save",), Kind.SAVE_MODEL, late=True),
    _Methods("pyspark.mllib.classification", "LogisticRegressionModel", ("save",), Kind.SAVE_MODEL, late=True),
    _Methods("pyspark.mllib.classification", "SVMModel", ("save",), Kind.SAVE_MODEL, late=True),
    _Methods("pyspark.mllib.classification", "NaiveBayesModel", ("save",), Kind.SAVE_MODEL, late=True),
    _Methods("pyspark.mllib.regression", "LinearRegressionModel", ("save",), Kind.SAVE_MODEL, late=True),
    _Methods("pyspark.mllib.regression", "LassoModel", ("save",), Kind.SAVE_MODEL, late=True),
    _Methods("pyspark.mllib.regression", "RidgeRegressionModel", ("save",), Kind.SAVE_MODEL, late=True),
    _Methods("pyspark.mllib.regression", "IsotonicRegressionModel", ("save",), Kind.SAVE_MODEL, late=True),
    _Methods("pyspark.mllib.clustering", "KMeansModel", ("save",), Kind.SAVE_MODEL, late=True),
)


@contextmanager
def intercepted(*parts: Stages) -> Iterator[None]:
    """Let calls inside the block pass the stages of *parts*, those of the first part first."""
    wrappers: dict[int, Any] = {}  # a random function is in two modules, but is one object
    with ExitStack() as stack:

        def patch(row: _Methods, owner: Any) -> None:
            stages = [part[row.kind] for part in parts if row.kind in part]
            for name in row.names if stages else ():
                if hasattr(owner, name):
                    original = vars(owner).get(name, getattr(owner, name))
                    wrapper = wrappers.setdefault(id(original), _wrapper(original, row.kind, name, stages))
                    stack.callback(_put_in_place(owner, name, wrapper))

        def patch_module(module: ModuleType) -> None:
            for row in _TABLE:
                if row.module == module.__name__:
                    patch(row, getattr(module, row.owner))

        for row in _TABLE:
            if not row.late and (owner := _owner(row.module, row.owner)) is not None:
                patch(row, owner)
        stack.enter_context(when_imported(dict.fromkeys((row.module for row in _TABLE if row.late), patch_module)))
        yield


def _owner(module: str, name: str) -> Any:
    """Return a class, or the module itself; ``None`` if this version of Spark has no such module."""
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError:
        return _owner(_OLDER[module], name) if module in _OLDER else None
    return getattr(found, name) if name else found


def _put_in_place(owner: Any, name: str, replacement: Any) -> Callable[[], None]:
    """Set a member of a class or module; return a function that undoes it."""
    own, original = name in vars(owner), vars(owner).get(name)
    setattr(owner, name, replacement)

    def restore() -> None:
        if own:
            setattr(owner, name, original)
        else:  # inherited
            delattr(owner, name)

    return restore


class _Busy(threading.local):
    """The writers whose calls a thread is inside: calls that PySpark itself makes on them pass no stage."""

    def __init__(self) -> None:
        self.writers: list[Any] = []


_busy = _Busy()
_OF_WRITERS = {Kind.SETTING, Kind.WRITE}
_OF_FUNCTIONS = {Kind.DRAW, Kind.CALL_SITE}


def _wrapper(original: Any, kind: Kind, name: str, stages: Sequence[Stage]) -> Any:
    if kind is Kind.TO_RDD:  # a property

        def member(frame: Any) -> Any:
            return _pass(stages, Call(kind, frame, name), lambda: original.__get__(frame, type(frame)))

        return property(member, doc=original.__doc__)
    if kind in _OF_FUNCTIONS:

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
        if any(writer is owner for writer in _busy.writers):
            return proceed()
        _busy.writers.append(owner)
        try:
            return _pass(stages, call, proceed)
        finally:
            _busy.writers.pop()

    return method


def _pass(stages: Sequence[Stage], call: Call, proceed: Proceed) -> Any:
    if not stages:
        return proceed()
    return stages[0](call, lambda: _pass(stages[1:], call, proceed))
