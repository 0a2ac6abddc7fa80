"""Keep hold of the broadcast variables that a script makes: a command names them only by their ids."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_provider.spark.wrapping import put_in_place


def watch_broadcasts(known: Callable[[], dict[int, Any]]) -> Callable[[], None]:
    """Note in *known()* (id → broadcast variable) what ``SparkContext.broadcast`` makes; returns the way back.

    PySpark broadcasts the commands of large functions by the same method. The variables are held as long as that is;
    their values lie in files of Spark's and are read only when asked for.
    """
    from pyspark import SparkContext

    original = SparkContext.broadcast

    @functools.wraps(original)
    def broadcast(self: Any, value: Any) -> Any:
        variable = original(self, value)
        known()[variable._jbroadcast.id()] = variable
        return variable

    return put_in_place(SparkContext, "broadcast", broadcast)


def pickled_value(variable: Any) -> bytes:
    """Return the pickled value of a broadcast variable: the bytes that executors get, where they lie in a file.

    :raises Exception: it was destroyed, or its value cannot be pickled
    """
    path = getattr(variable, "_path", None)
    encrypted = getattr(getattr(variable, "_sc", None), "_encryption_enabled", False)
    if path is not None and not encrypted:
        return Path(path).read_bytes()
    return pickle.dumps(variable.value, pickle.HIGHEST_PROTOCOL)
