"""The JVM objects behind the PySpark objects that a script holds: frames, columns, broadcasts, sessions."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.jvm.scala import seed_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider.spark.types import TypeJson

_LAST_NUMBER = re.compile(r"(-?\d+)L?\)$")


def is_classic(df: Any) -> bool:
    """Whether a DataFrame has a counterpart in a JVM of this process; those of Spark Connect have none."""
    return hasattr(df, "_jdf")


def is_classic_session(spark: Any) -> bool:
    """Whether a session has a counterpart in a JVM of this process; those of Spark Connect have none."""
    return hasattr(spark, "_jsparkSession")


def is_stopped(context: Any) -> bool:
    """Whether a ``SparkContext`` has no JVM any more."""
    return getattr(context, "_jsc", None) is None


def query_of(df: Any) -> Any:
    """Return the ``QueryExecution`` of a frame: the one that its own actions run."""
    return df._jdf.queryExecution()


def analyzed(df: Any) -> Any:
    """Return the analyzed plan of a frame."""
    return query_of(df).analyzed()


def schema_of(df: DataFrame) -> TypeJson:
    """Return the schema of *df* as its JVM has it."""
    return json.loads(df._jdf.schema().json())


def local_rows(df: Any) -> int | None:
    """Return the id of the RDD that holds the rows given to ``createDataFrame``; ``None`` if the plan holds them."""
    plan = analyzed(df)
    return int(plan.rdd().id()) if plan.getClass().getSimpleName() == "LogicalRDD" else None


def column_of_range(df: Any) -> int:
    """Return the id of the only column of ``spark.range``."""
    return int(analyzed(df).output().head().exprId().id())


def seed_of_column(column: Any) -> int | None:
    """Return the seed at the end of a function's text; ``None`` if there is none yet: then the analyzer draws it."""
    if not hasattr(column, "_jc"):  # Spark Connect's
        return None
    seed = _LAST_NUMBER.search(str(column._jc.toString()))
    return int(seed[1]) if seed else None


def seed_of_sample(df: Any) -> int | None:
    """Return the seed of a frame that is a sample; ``None`` if it is none, or has none yet."""
    plan = query_of(df).logical()
    return seed_of(plan.seed()) if plan.getClass().getSimpleName() == "Sample" else None


def number_of_broadcast(variable: Any) -> int:
    """Return the id by which a command names a broadcast variable."""
    return int(variable._jbroadcast.id())


def calls_python(df: Any) -> bool:
    """Whether the plan of a frame contains a Python function."""
    patterns = jvm_of(df.sparkSession).org.apache.spark.sql.catalyst.trees.TreePattern
    return bool(analyzed(df).containsPattern(patterns.PYTHON_UDF()))


def observes(df: Any) -> bool:
    """Whether something waits for metrics of a frame's rows."""
    return "CollectMetrics" in str(analyzed(df).toString())


def current_user(spark: Any) -> str:
    """Return the name that ``current_user()`` returns."""
    return str(jvm_of(spark).org.apache.spark.util.Utils.getCurrentUserName())


def session_of(spark: Any, jsession: Any) -> Any:
    """Return the Python side of a JVM session.

    Not by the constructor, which makes it the default of this process and of ``RDD.toDF``.
    """
    session: Any = object.__new__(type(spark))
    session.__dict__.update(spark.__dict__)
    session.__dict__.pop("_conf", None)
    session.__dict__.pop("_catalog", None)
    session._jsparkSession = jsession
    return session


def hash_of(spark: Any, owner: Any) -> int:
    """Return the number by which the JVM knows an object, whichever references to it Python holds."""
    return int(jvm_of(spark).java.lang.System.identityHashCode(owner))


def held_weakly(spark: Any, owner: Any) -> Any:
    """Return a reference whose ``get()`` is ``None`` once the JVM has dropped the object."""
    return jvm_of(spark).java.lang.ref.WeakReference(owner)


class WeakCounts:
    """Counts by JVM objects, each kept while its object lives."""

    def __init__(self, spark: Any) -> None:
        self._counts = jvm_of(spark).java.util.WeakHashMap()

    def add(self, owner: Any) -> int:
        """Count *owner* once more, and return its count; one thread at a time."""
        number = int(self._counts.getOrDefault(owner, 0)) + 1
        self._counts.put(owner, number)
        return number


def caches_anything(spark: Any) -> bool:
    """Whether Spark has cached a DataFrame or a table, in any session of the application."""
    return not spark._jsparkSession.sharedState().cacheManager().isEmpty()
