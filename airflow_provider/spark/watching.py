"""Learn what a plan does not tell, by watching how the script makes it.

Some of what decides a DataFrame's rows is lost on the way into Spark: rows given to ``createDataFrame``, values of
broadcast variables, and whether a seed or a number of slices was chosen by the script or drawn for it. So the few
functions of PySpark where it is still known are wrapped while the script runs. The wrappers call the originals with
the same meaning.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from airflow_provider.spark.functions import watch_broadcasts
from airflow_provider.spark.jvm.class_shapes import ClassShape
from airflow_provider.spark.jvm.relation import unsliced
from airflow_provider.spark.local_data import watch_local_data
from airflow_provider.spark.wrapping import classic_frame, put_in_place


@dataclass
class Watched:
    """What was learnt.

    :ivar local_data: RDD id → digest of rows given to ``createDataFrame``
    :ivar broadcasts: broadcast id → the broadcast variable
    :ivar seeds: seeds that were drawn because the script gave none, in decimal
    :ivar settings: settings that the script made, in their order, each a name and a value
    :ivar shapes: class of the JVM → what it holds
    """

    local_data: dict[int, str] = field(default_factory=dict)
    broadcasts: dict[int, Any] = field(default_factory=dict)
    seeds: set[str] = field(default_factory=set)
    settings: list[tuple[str, str]] = field(default_factory=list)
    shapes: dict[str, ClassShape] = field(default_factory=dict)


def watch(watched: Watched) -> Callable[[], None]:
    """Begin to fill *watched*; returns the way back."""
    stack = ExitStack()
    stack.callback(watch_local_data(watched.local_data))
    stack.callback(watch_broadcasts(watched.broadcasts))
    _watch_seeds(watched.seeds, stack)
    _watch_ranges(stack)
    _watch_settings(watched.settings, stack)
    _watch_stop(watched, stack)
    return stack.close


def _watch_stop(watched: Watched, stack: ExitStack) -> None:
    """Forget what is known by an id of Spark's when its application ends: the next one counts from 0 again."""
    from pyspark import SparkContext

    original = SparkContext.stop

    @functools.wraps(original)
    def stop(self: Any) -> None:
        original(self)
        watched.local_data.clear()
        watched.broadcasts.clear()

    stack.callback(put_in_place(SparkContext, "stop", stop))


def _watch_seeds(seeds: set[str], stack: ExitStack) -> None:
    """Draw the seeds that a script leaves to PySpark, so that they are known for what they are."""
    from pyspark.sql import functions

    builtin = getattr(functions, "builtin", functions)  # Spark 3.5: the module itself
    DataFrame = classic_frame()  # noqa: N806 - a class

    def draw() -> int:
        seed = random.getrandbits(62) | 1 << 62
        seeds.add(str(seed))
        return seed

    for name in ("rand", "randn"):
        original = getattr(builtin, name)

        def column(seed: Any = None, _original: Any = original) -> Any:
            return _original(draw() if seed is None else seed)

        for module in (builtin, functions):
            stack.callback(put_in_place(module, name, functools.wraps(original)(column)))

    stack.callback(put_in_place(DataFrame, "sample", _sampling(DataFrame.sample, draw)))
    stack.callback(put_in_place(DataFrame, "randomSplit", _splitting(DataFrame.randomSplit, draw)))


def _sampling(original: Any, draw: Callable[[], int]) -> Any:
    """Wrap ``sample([withReplacement,] fraction[, seed])``."""

    @functools.wraps(original)
    def sample(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], float):  # sample(0.5[, seed])
            given = len(args) > 1 or "fraction" in kwargs
            return original(self, *args, **kwargs) if given else original(self, *args, draw(), **kwargs)
        given = len(args) > 2 or kwargs.get("seed") is not None
        return original(self, *args, **kwargs) if given else original(self, *args, **{**kwargs, "seed": draw()})

    return sample


def _splitting(original: Any, draw: Callable[[], int]) -> Any:
    @functools.wraps(original)
    def split(self: Any, weights: Any, seed: Any = None) -> Any:
        return original(self, weights, draw() if seed is None else seed)

    return split


def _watch_ranges(stack: ExitStack) -> None:
    """Leave it to Spark's planner how a range is cut where the script does not say, so that a retry can pin it."""
    from pyspark.sql import SparkSession

    original = SparkSession.range

    @functools.wraps(original)
    def range_(self: Any, start: int, end: int | None = None, step: int = 1, numPartitions: int | None = None) -> Any:  # noqa: N803
        df = original(self, start, end, step, numPartitions)
        return unsliced(df) if numPartitions is None and hasattr(df, "_jdf") else df

    stack.callback(put_in_place(SparkSession, "range", range_))


def _watch_settings(settings: list[tuple[str, str]], stack: ExitStack) -> None:
    """Note the settings that a script makes while it runs.

    An expression keeps the ANSI mode and the like that were in force when it was made, and no print of a plan shows
    them. So two plans are the same only if the same settings were made before, in the same order.
    """
    from pyspark.sql import SparkSession
    from pyspark.sql.conf import RuntimeConfig

    set_, unset, sql = RuntimeConfig.set, RuntimeConfig.unset, SparkSession.sql

    @functools.wraps(set_)
    def noting_set(self: Any, key: str, value: Any) -> None:
        set_(self, key, value)
        settings.append((key, str(value)))

    @functools.wraps(unset)
    def noting_unset(self: Any, key: str) -> None:
        unset(self, key)
        settings.append((key, ""))

    @functools.wraps(sql)
    def noting_sql(self: Any, sqlQuery: str, *args: Any, **kwargs: Any) -> Any:  # noqa: N803 - PySpark's name
        made = _SET.match(sqlQuery) if isinstance(sqlQuery, str) else None
        if made:
            settings.append((made[1] if made[1].startswith("spark.") else "spark.sql.", sqlQuery))
        return sql(self, sqlQuery, *args, **kwargs)

    stack.callback(put_in_place(RuntimeConfig, "set", noting_set))
    stack.callback(put_in_place(RuntimeConfig, "unset", noting_unset))
    stack.callback(put_in_place(SparkSession, "sql", noting_sql))


_SET = re.compile(r"\s*(?:SET|RESET)\b\s*([\w.]*)", re.IGNORECASE)
