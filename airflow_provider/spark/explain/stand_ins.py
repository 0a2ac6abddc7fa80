"""Put harmless functions in the place of a script's actions: each is told of, and returns as if there were no rows.

Reading, transforming and caching are left to Spark, which only makes plans of them. Whatever needs rows to go on from
(a model, a quantile) ends the script with :class:`NeedsRows`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from airflow_provider.spark.explain.sql_commands import Kind, kind_of, lazily, query_of
from airflow_provider.spark.wrapping import classic_frame, put_in_place
from airflow_provider.spark.writers import WRITERS

Tell = Callable[..., Any]
"""Called with what the script calls, the DataFrame (``None`` if there is none), and ``how``: what auto mode does."""

RETURNS, WRITES, WHOLE, LEFT_ALONE = "returns rows", "writes", "keeps it whole", "left alone"
"""How auto mode takes an action."""

_FEW_ROWS: dict[str, Callable[..., Any]] = {
    "take": lambda *_, **__: [],
    "tail": lambda *_, **__: [],
    "show": lambda *_, **__: None,
    "first": lambda *_, **__: None,
    "head": lambda n=None, **__: None if n is None else [],
    "isEmpty": lambda *_, **__: True,
}
_RDD: dict[str, Callable[..., Any]] = {
    "collect": list,
    "collectWithJobGroup": list,
    "toLocalIterator": lambda: iter(()),
    **dict.fromkeys(
        (
            "saveAsTextFile",
            "saveAsPickleFile",
            "saveAsSequenceFile",
            "saveAsHadoopFile",
            "saveAsHadoopDataset",
            "saveAsNewAPIHadoopFile",
            "saveAsNewAPIHadoopDataset",
        ),
        lambda: None,
    ),
}
_NEEDING_ROWS = ("approxQuantile", "corr", "cov", "crosstab")
_NEEDING_ROWS_IN_ML = {"Estimator": ("fit", "fitMultiple"), "Evaluator": ("evaluate",)}
_STREAMS = ("start", "toTable")


class NeedsRows(Exception):
    """The script cannot go on without rows that only a Spark job could give it."""


class _NoQuery:
    """Stands for a streaming query that was not started."""

    id = name = None
    runId = None  # noqa: N815 - PySpark's name
    isActive = False  # noqa: N815 - PySpark's name
    lastProgress = None  # noqa: N815 - PySpark's name
    recentProgress: tuple[Any, ...] = ()  # noqa: N815 - PySpark's name

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802 - PySpark's name
        return True

    def processAllAvailable(self) -> None:  # noqa: N802 - PySpark's name
        return None

    def stop(self) -> None:
        return None

    def exception(self) -> None:
        return None


@contextmanager
def stand_ins(tell: Tell, whole: Callable[[Any], Any]) -> Iterator[None]:
    """Let no action of the script inside run.

    :param tell: is told of each action
    :param whole: given a DataFrame that the script keeps whole, returns one that stands for it
    """
    with ExitStack() as stack:
        _StandIns(stack, tell, whole).put()
        yield


class _StandIns:
    def __init__(self, stack: ExitStack, tell: Tell, whole: Callable[[Any], Any]) -> None:
        self._stack = stack
        self._tell = tell
        self._whole = whole

    def put(self) -> None:
        from pyspark.sql import readwriter

        frame = classic_frame()
        self._returning(frame)
        self._keeping(frame)
        self._rdds(frame)
        self._needing_rows(frame)
        for class_name, (_, writes) in WRITERS.items():
            for name in writes:
                how = f"{'writeTo' if class_name.endswith('V2') else 'write'}.{name}"
                self._writing(getattr(readwriter, class_name), name, how)
        self._merging()
        self._streams()
        self._sql()

    def _replace(self, owner: Any, name: str, replacement: Callable[..., Any]) -> None:
        original = getattr(owner, name, None)
        if original is not None:
            self._stack.callback(put_in_place(owner, name, functools.wraps(original)(replacement)))

    def _returning(self, frame: Any) -> None:
        for name, empty in {
            "collect": lambda df: [],
            "toPandas": lambda df: _arrow_table(df).to_pandas(),
            "toArrow": lambda df: _arrow_table(df),
            "toLocalIterator": lambda df: iter(()),
        }.items():
            self._replace(frame, name, self._returning_rows(name, empty))

        def count(df: Any) -> int:
            self._tell("count", df.groupBy().count(), how=RETURNS)
            return 0

        self._replace(frame, "count", count)
        for name in ("foreach", "foreachPartition"):
            self._replace(frame, name, self._consuming(name))
        for name, returned in _FEW_ROWS.items():
            self._replace(frame, name, self._few_rows(name, returned))

    def _returning_rows(self, name: str, empty: Callable[[Any], Any]) -> Callable[..., Any]:
        def action(df: Any, *args: Any, **kwargs: Any) -> Any:
            self._tell(name, df, how=RETURNS)
            return empty(df)

        return action

    def _consuming(self, name: str) -> Callable[..., Any]:
        def action(df: Any, *args: Any, **kwargs: Any) -> None:
            self._tell(name, df, how=WRITES)

        return action

    def _few_rows(self, name: str, returned: Callable[..., Any]) -> Callable[..., Any]:
        def action(df: Any, *args: Any, **kwargs: Any) -> Any:
            self._tell(name, df, how=LEFT_ALONE, note="reads a few rows; auto mode leaves it alone")
            return returned(*args, **kwargs)

        return action

    def _keeping(self, frame: Any) -> None:
        import airflow_provider.spark as package

        for name in ("checkpoint", "localCheckpoint"):

            def keep(df: Any, *args: Any, _name: str = name, **kwargs: Any) -> Any:
                self._tell(_name, df, how=WHOLE)
                return self._whole(df)

            self._replace(frame, name, keep)

        def checkpoint(df: Any, name: str, **_: Any) -> Any:
            self._tell(f"checkpoint({name!r})", df, how=LEFT_ALONE, note="asked for by the script: stored in any case")
            return self._whole(df)

        self._replace(package, "checkpoint", checkpoint)

    def _rdds(self, frame: Any) -> None:
        from pyspark import SparkContext
        from pyspark.core.rdd import RDD

        through = "leads to RDDs, through which auto mode does not see"

        def rdd(df: Any) -> Any:
            self._tell("rdd", df, how=LEFT_ALONE, note=through)
            return df.sparkSession.sparkContext.emptyRDD()

        def to_json(df: Any, *args: Any, **kwargs: Any) -> Any:
            self._tell("toJSON", df, how=LEFT_ALONE, note=through)
            return df.sparkSession.sparkContext.emptyRDD()

        self._stack.callback(put_in_place(frame, "rdd", property(rdd)))
        self._replace(frame, "toJSON", to_json)
        for name, returned in _RDD.items():

            def action(_: Any, *args: Any, _name: str = name, _returned: Any = returned, **kwargs: Any) -> Any:
                self._tell(f"RDD.{_name}", None, how=LEFT_ALONE, note="an RDD; auto mode leaves it alone")
                return _returned()

            self._replace(RDD, name, action)

        def run_job(*_: Any, **__: Any) -> list[Any]:
            self._tell("SparkContext.runJob", None, how=LEFT_ALONE, note="an RDD; auto mode leaves it alone")
            return []

        self._replace(SparkContext, "runJob", run_job)

    def _needing_rows(self, frame: Any) -> None:
        from pyspark.sql import GroupedData

        for name in _NEEDING_ROWS:
            self._replace(frame, name, self._refused(name))
        pivot = GroupedData.pivot

        def pivoted(self: Any, pivot_col: Any, values: Any = None) -> Any:
            if values is None:
                raise NeedsRows("pivot() without values runs a Spark job to find them, which is not done here")
            return pivot(self, pivot_col, values)

        self._replace(GroupedData, "pivot", pivoted)
        try:
            from pyspark.ml import base, evaluation, util
        except ImportError:  # without NumPy there is no ML
            return
        for class_name, names in _NEEDING_ROWS_IN_ML.items():
            owner = base.Estimator if class_name == "Estimator" else evaluation.Evaluator
            for name in names:
                self._replace(owner, name, self._refused(f"{class_name}.{name}"))
        self._replace(util.MLWriter, "save", self._nothing("MLWriter.save"))

    def _refused(self, name: str) -> Callable[..., Any]:
        def refuse(*_: Any, **__: Any) -> Any:
            raise NeedsRows(f"{name}() runs Spark jobs and the script goes on from what they give; not done here")

        return refuse

    def _nothing(self, name: str) -> Callable[..., Any]:
        def nothing(*_: Any, **__: Any) -> None:
            self._tell(name, None, how=LEFT_ALONE, note="not done here")

        return nothing

    def _writing(self, writer: Any, name: str, how: str) -> None:
        def write(self_: Any, *args: Any, **kwargs: Any) -> None:
            self._tell(how, self_._df, how=WRITES)

        self._replace(writer, name, write)

    def _merging(self) -> None:
        try:
            from pyspark.sql.merge import MergeIntoWriter
        except ImportError:  # Spark 3.5
            return
        self._replace(MergeIntoWriter, "merge", self._nothing("mergeInto.merge"))

    def _streams(self) -> None:
        from pyspark.sql.streaming.readwriter import DataStreamWriter

        def start(*_: Any, **__: Any) -> _NoQuery:
            self._tell("writeStream.start", None, how=LEFT_ALONE, note="a streaming query; not started here")
            return _NoQuery()

        for name in _STREAMS:
            self._replace(DataStreamWriter, name, start)

    def _sql(self) -> None:
        from pyspark.sql import SparkSession
        from pyspark.sql.types import StructType

        original = SparkSession.sql

        def sql(spark: Any, sqlQuery: str, *args: Any, **kwargs: Any) -> Any:  # noqa: N803 - PySpark's name
            kind = kind_of(spark, sqlQuery) if isinstance(sqlQuery, str) else Kind.RUN
            if kind is Kind.RUN:
                return original(spark, sqlQuery, *args, **kwargs)
            if kind is Kind.CACHE:
                return original(spark, lazily(sqlQuery), *args, **kwargs)
            told = " ".join(sqlQuery.split())
            what = f"sql: {told if len(told) <= 60 else told[:59] + '…'}"
            query = None if args or kwargs else query_of(spark, sqlQuery)
            self._tell(what, query, how=WRITES, note="" if query is not None else "not run here")
            return spark.createDataFrame([], StructType())

        self._replace(SparkSession, "sql", sql)


def _arrow_table(df: Any) -> Any:
    """Return an Arrow table with the columns of *df* and no rows."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(df.schema).empty_table()
