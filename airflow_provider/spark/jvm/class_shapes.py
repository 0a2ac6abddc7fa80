"""What the JVM says of Spark's classes, asked once for all of a plan: which fields are data, and which are caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_provider.spark.jvm.plan_walk import walk_of


@dataclass(frozen=True)
class ClassShape:
    """One class of the JVM.

    :ivar name: with its package
    :ivar lazy: the fields that only keep what was computed from others
    :ivar lost: the fields that are set once and that Java's serialization leaves out
    """

    name: str
    lazy: frozenset[str]
    lost: frozenset[str]
    _walk: Any

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Parameters of its constructor, in their order; the first ones are the elements of a case class."""
        return tuple(str(self._walk.parameters(self.name)).split())


def shapes_of(spark: Any, names: Sequence[str]) -> dict[str, ClassShape]:
    """Return the shapes of classes by their names, in one request; of those that the JVM finds."""
    walk = walk_of(spark)
    told = (line.split("|") for line in str(walk.shapes("\n".join(names))).splitlines())
    return {name: ClassShape(name, frozenset(lazy.split()), frozenset(lost.split()), walk) for name, lazy, lost in told}
