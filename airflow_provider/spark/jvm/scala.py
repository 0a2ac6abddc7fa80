"""Scala's collections and objects seen from Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_provider.spark.jvm.names import jvm_of


def items(sequence: Any) -> Iterator[Any]:
    """Yield the elements of a Scala ``Seq`` or ``Array``."""
    from py4j.java_collections import JavaArray

    if isinstance(sequence, JavaArray):
        yield from sequence
        return
    for index in range(int(sequence.length())):  # half as many requests as with an iterator
        yield sequence.apply(index)


def has_member(java_object: Any, name: str) -> bool:
    """Whether a JVM object has a method *name*; ``hasattr`` is true for any name."""
    return name in dir(java_object)


class Numbers:
    """Numbers JVM objects in the order in which they are met, by identity: equal objects get different numbers."""

    def __init__(self, spark: Any) -> None:
        self._met = jvm_of(spark).java.util.IdentityHashMap()

    def of(self, made: Any) -> int:
        """Return the number of an object, from 0."""
        if not self._met.containsKey(made):
            self._met.put(made, self._met.size())
        return int(self._met.get(made))


def to_seq(jvm: Any, values: list[Any]) -> Any:
    """Return a Scala ``Seq`` of JVM objects."""
    java_list = jvm.java.util.ArrayList()
    for value in values:
        java_list.append(value)
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(java_list)


def sequence_type(spark: Any) -> str:
    """Return the type that ``Seq`` means in Spark's Scala sources."""
    version = str(jvm_of(spark).scala.util.Properties.versionNumberString())
    return f"scala.collection.{'immutable.Seq' if version.startswith('2.13') else 'Seq'}"


def companion(package: Any, name: str) -> Any:
    """Return the Scala object *name* of a JVM package, for methods without a static forwarder in Java."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def seed_of(seed: Any) -> int | None:
    """Return the seed of a ``Sample``: a number, or since Spark 4.1 one that may not be there yet."""
    if isinstance(seed, int):
        return seed
    return int(seed.get()) if seed.isDefined() else None
