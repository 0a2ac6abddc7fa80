"""Before a job writes anything outside of its event store, make sure that it still owns itself.

A driver that was suspended, or cut off, for longer than the time-out may wake up when a successor has taken over. One
look at the store before each write of the DataFrame API keeps it from writing the same output a second time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_WRITES = {
    "DataFrameWriter": ("save", "saveAsTable", "insertInto", "parquet", "json", "csv", "orc", "text", "xml", "jdbc"),
    "DataFrameWriterV2": ("create", "replace", "createOrReplace", "append", "overwrite", "overwritePartitions"),
}


def guard_sinks(check: Callable[[], None]) -> Callable[[], None]:
    """Call *check* before each write of ``df.write`` and ``df.writeTo``; returns the way back."""
    from pyspark.sql import readwriter

    originals: list[tuple[Any, str, Any]] = []
    for class_name, methods in _WRITES.items():
        writer = getattr(readwriter, class_name)
        for method in methods:
            original = writer.__dict__.get(method)
            if original is not None:
                originals.append((writer, method, original))
                setattr(writer, method, _checked(original, check))

    def restore() -> None:
        for writer, method, original in originals:
            setattr(writer, method, original)

    return restore


def _checked(original: Any, check: Callable[[], None]) -> Any:
    @functools.wraps(original)
    def write(*args: Any, **kwargs: Any) -> Any:
        check()
        return original(*args, **kwargs)

    return write
