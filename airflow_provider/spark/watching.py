"""Learn what a plan does not tell, by watching how the script makes it.

Some of what decides a DataFrame's rows is lost on the way into Spark: rows given to ``createDataFrame``, values of
broadcast variables, and whether a seed or a number of slices was chosen by the script or drawn for it. So the few
functions of PySpark where it is still known are wrapped while the script runs. The wrappers call the originals with
the same meaning.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from airflow_provider.spark.functions import watch_broadcasts
from airflow_provider.spark.jvm.scala import seed_of
from airflow_provider.spark.local_data import watch_local_data
from airflow_provider.spark.wrapping import classic_frame, put_in_place

if TYPE_CHECKING:
    from airflow_provider.spark.application import ApplicationState
    from airflow_provider.spark.draws import Draws


def watch(application: Callable[[], ApplicationState], draws: Draws) -> Callable[[], None]:
    """Begin to note what the script's DataFrames do not tell; returns the way back.

    :param application: returns what is known of the application that the script has now
    :param draws: of the whole script
    """
    stack = ExitStack()
    stack.callback(watch_local_data(lambda: application().local_data))
    stack.callback(watch_broadcasts(lambda: application().broadcasts))
    _watch_draws(draws, stack)
    _watch_ranges(lambda: application().ranges, stack)
    return stack.close


def _watch_draws(draws: Draws, stack: ExitStack) -> None:
    """Note the seeds that were drawn because the script gave none; PySpark and Spark draw them as they do anyway."""
    from pyspark.sql import functions

    builtin = getattr(functions, "builtin", functions)  # Spark 3.5: the module itself
    DataFrame = classic_frame()  # noqa: N806 - a class

    for name, others in _DRAWING.items():
        original = getattr(builtin, name, None)
        if original is not None:
            wrapped = _noting(original, others, draws)
            for module in (builtin, functions):
                stack.callback(put_in_place(module, name, wrapped))

    stack.callback(put_in_place(DataFrame, "sample", _sampling(DataFrame.sample, draws)))
    stack.callback(put_in_place(DataFrame, "randomSplit", _splitting(DataFrame.randomSplit, draws)))


_DRAWING = {"rand": 0, "randn": 0, "random": 0, "uuid": 0, "shuffle": 1, "randstr": 1, "uniform": 2}
"""PySpark's functions that take a seed, with the number of arguments before it."""
_LAST_NUMBER = re.compile(r"(-?\d+)L?\)$")


def _noting(original: Any, others: int, draws: Draws) -> Any:
    @functools.wraps(original)
    def column(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        if len(args) <= others and kwargs.get("seed") is None and hasattr(made, "_jc"):
            seed = _LAST_NUMBER.search(str(made._jc.toString()))
            if seed:  # else the analyzer draws it
                draws.note(int(seed[1]))
        return made

    return column


def _sampling(original: Any, draws: Draws) -> Any:
    """Wrap ``sample([withReplacement,] fraction[, seed])``."""

    @functools.wraps(original)
    def sample(self: Any, *args: Any, **kwargs: Any) -> Any:
        sampled = original(self, *args, **kwargs)
        before_seed = 1 if args and isinstance(args[0], float) else 2  # sample(0.5[, seed])
        if len(args) <= before_seed and kwargs.get("seed") is None:
            _note_sample(sampled, draws)
        return sampled

    return sample


def _splitting(original: Any, draws: Draws) -> Any:
    @functools.wraps(original)
    def split(self: Any, weights: Any, seed: Any = None) -> Any:
        parts = original(self, weights, seed)
        if seed is None:
            for part in parts:
                _note_sample(part, draws)
        return parts

    return split


def _note_sample(df: Any, draws: Draws) -> None:
    plan = df._jdf.queryExecution().logical()
    if plan.getClass().getSimpleName() == "Sample":
        seed = seed_of(plan.seed())
        if seed is not None:
            draws.note(seed)


def _watch_ranges(ranges: Callable[[], set[int]], stack: ExitStack) -> None:
    """Note the ranges whose number of slices the script leaves open: explicit recovery points pin how they are cut."""
    from pyspark.sql import SparkSession

    original = SparkSession.range

    @functools.wraps(original)
    def range_(self: Any, start: int, end: int | None = None, step: int = 1, numPartitions: int | None = None) -> Any:  # noqa: N803
        df = original(self, start, end, step, numPartitions)
        if numPartitions is None and hasattr(df, "_jdf"):
            ranges().add(int(df._jdf.queryExecution().analyzed().output().head().exprId().id()))
        return df

    stack.callback(put_in_place(SparkSession, "range", range_))
