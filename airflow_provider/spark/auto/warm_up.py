"""Read a plan before the script has one, so that the JVM knows how.

What a JVM does for the first time it does slowly: to read and fingerprint the first plan takes about a second, the next
one a tenth of it. In a short job that would be most of what recovery costs. So while the script makes its first
DataFrames, a thread plans a small query of its own, in a session of its own, and looks at it as at the script's later.
No Spark job runs for it, and Spark, too, plans the script's first query faster after it.
"""

from __future__ import annotations

import functools
import logging
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from airflow_provider.recovery.causes import one_line
from airflow_provider.spark.auto.rules import placements
from airflow_provider.spark.fingerprint import fingerprint
from airflow_provider.spark.functions import FunctionReader
from airflow_provider.spark.jvm.map_stage import map_stages
from airflow_provider.spark.jvm.optimized import OptimizedPlan, at_a_glance
from airflow_provider.spark.watching import Watched
from airflow_provider.spark.wrapping import classic_frame, put_in_place

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

_QUERY = """
SELECT /*+ MERGE(l, r) */ r.k AS key, count(*) AS n, sum(l.v * 1.5) AS total
FROM (VALUES (1, 1, 'a'), (2, 4, 'b')) l(k, v, name) JOIN (VALUES (1, date'2020-02-02')) r(k, day) ON l.k = r.k
WHERE l.name LIKE 'a%' AND r.day > date'2020-01-01'
GROUP BY r.k ORDER BY total DESC
"""


class _Knows:
    """What is known of a script that does nothing."""

    def __init__(self) -> None:
        self.watched = Watched()
        self.functions = FunctionReader(self.watched.broadcasts)


def warmed_up(stack: ExitStack) -> None:
    """Let each Spark application that the script starts be warmed up, until *stack* is closed."""
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder
    stack.callback(put_in_place(builder, "getOrCreate", _starting(builder.getOrCreate)))


def _starting(original: Callable[..., Any]) -> Callable[..., Any]:
    warmed: set[str] = set()

    @functools.wraps(original)
    def get_or_create(self: Any) -> Any:
        spark = original(self)
        if hasattr(spark, "_jsparkSession") and spark.sparkContext.applicationId not in warmed:
            warmed.add(spark.sparkContext.applicationId)
            threading.Thread(target=_warm_up, args=(spark,), name="warm-up", daemon=True).start()
        return spark

    return get_or_create


def _warm_up(spark: Any) -> None:
    try:
        look_at_a_plan(spark)
    except Exception as error:  # noqa: BLE001 - nobody needs it
        log.debug("No warm-up: %s", one_line(error))


def look_at_a_plan(spark: Any) -> None:
    """Do with a plan all that is done with a script's before it runs."""
    own = spark.newSession()
    df = classic_frame()(own._jsparkSession.sql(_QUERY), own)
    at_a_glance(df)
    fingerprint(df, _Knows())
    placements(OptimizedPlan.of(df).root, returns_rows=False)
    for stage in map_stages(df):
        fingerprint(stage.frame, _Knows())
        stage.written()
