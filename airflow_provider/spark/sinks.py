"""Before a job writes anything outside of its event store, make sure that it still owns itself.

A driver that was suspended, or cut off, for longer than the time-out may wake up when a successor has taken over. One
look at the store before each write of the DataFrame API keeps it from writing the same output a second time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from airflow_provider.spark.wrapping import put_in_place
from airflow_provider.spark.writers import WRITERS


@contextmanager
def guarded_sinks(check: Callable[[], None]) -> Iterator[None]:
    """Call *check* before each write of ``df.write`` and ``df.writeTo`` inside."""
    from pyspark.sql import readwriter

    with ExitStack() as stack:
        for class_name, (_, writes) in WRITERS.items():
            writer = getattr(readwriter, class_name)
            for method in writes:
                original = writer.__dict__.get(method)
                if original is not None:
                    stack.callback(put_in_place(writer, method, _checked(original, check)))
        yield


def _checked(original: Any, check: Callable[[], None]) -> Any:
    @functools.wraps(original)
    def write(*args: Any, **kwargs: Any) -> Any:
        check()
        return original(*args, **kwargs)

    return write
