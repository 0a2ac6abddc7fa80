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
    for index in range(int(sequence.length())):  # half of the requests that an iterator takes
        yield sequence.apply(index)


def has_member(java_object: Any, name: str) -> bool:
    """Whether an object of the JVM has a method *name*; ``hasattr`` says so of any name."""
    return name in dir(java_object)


class Numbers:
    """Numbers objects of the JVM in the order in which they are met; one is not another that is equal to it."""

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
    """Return the type that Scala sources of Spark mean by ``Seq``."""
    version = str(jvm_of(spark).scala.util.Properties.versionNumberString())
    return f"scala.collection.{'immutable.Seq' if version.startswith('2.13') else 'Seq'}"


def companion(package: Any, name: str) -> Any:
    """Return the Scala object *name* of a package of the JVM, for methods that Java has no short way to."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def seed_of(seed: Any) -> int | None:
    """Return the seed of a ``Sample``: a number, since Spark 4.1 one that need not be there yet."""
    if isinstance(seed, int):
        return seed
    return int(seed.get()) if seed.isDefined() else None
