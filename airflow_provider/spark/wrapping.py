"""Put something in the place of a function of PySpark's while a script runs, and take it away again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def classic_frame() -> Any:
    """Return the class of DataFrames that have a JVM behind them."""
    try:
        from pyspark.sql.classic.dataframe import DataFrame
    except ImportError:  # Spark 3.5
        from pyspark.sql import DataFrame  # type: ignore[assignment]
    return DataFrame


def put_in_place(owner: Any, name: str, replacement: Any) -> Callable[[], None]:
    """Set the member *name* of a class or module to *replacement*; returns the way back."""
    original = owner.__dict__[name] if name in vars(owner) else getattr(owner, name)
    setattr(owner, name, replacement)

    def restore() -> None:
        setattr(owner, name, original)

    return restore
