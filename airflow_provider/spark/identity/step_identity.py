"""The identity of a step: its function, what that reaches, and its arguments."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_provider.core.digest import digest

if TYPE_CHECKING:
    from airflow_provider.spark.identity.known import Known


def step_identity(
    known: Known, fn: Callable[..., Any], args: tuple[Any, ...], version: str
) -> tuple[str, tuple[str, ...]]:
    """Return a digest, and why the step has no certain identity (empty if it has).

    :param version: replaces everything else
    """
    if version:
        return digest("version", version), ()
    from pyspark import cloudpickle
    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider.spark.identity.fingerprint import fingerprint

    opaque: list[str] = []

    class Pickler(cloudpickle.CloudPickler):
        """Pickles stand-ins instead of DataFrames and the session."""

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, DataFrame):
                identity = fingerprint(obj, known)
                opaque.extend(identity.opaque)
                return stand_in, ("DataFrame", identity.digest)
            if isinstance(obj, SparkSession):
                return stand_in, ("SparkSession",)
            return super().reducer_override(obj)  # type: ignore[no-untyped-call]

    buffer = io.BytesIO()
    try:
        Pickler(buffer).dump((fn, args))  # type: ignore[no-untyped-call]
    except Exception as error:  # noqa: BLE001 - whatever an object's own way of being pickled raises
        return digest("opaque"), (f"its function or arguments cannot be taken apart: {error}",)
    identity = known.application.functions.read(buffer.getvalue())
    return digest("function", identity.digest), (*opaque, *identity.opaque)


def stand_in(*words: str) -> tuple[str, ...]:
    """Stand in for an object, in a pickle that is only examined."""
    return words
