"""What the JVM says of Spark's classes, asked once for each: which fields are data, and which are caches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

_LAZY = re.compile(r"([\w$]+)\$lzycompute\(")


@dataclass(frozen=True)
class Field:
    """A field that a class itself declares.

    :ivar type: its declared type
    :ivar final: whether it is set once
    :ivar transient: whether Java's serialization leaves it out
    """

    name: str
    type: str
    final: bool
    transient: bool


class ClassShape:
    """One class of the JVM.

    :param spark: the session
    :param name: with its package
    """

    def __init__(self, spark: Any, name: str) -> None:
        self._jvm = spark._jvm
        self._name = name

    @cached_property
    def _class(self) -> Any:
        return self._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(self._name)

    @cached_property
    def fields(self) -> dict[str, Field]:
        """Its own fields by name."""
        text = str(self._jvm.scala.runtime.ScalaRunTime.stringOf(self._class.getDeclaredFields()))
        found = {}
        for line in text[len("Array(") : -1].split(", "):
            words = line.split()
            if words and "static" not in words:
                name = words[-1].rsplit(".", 1)[-1]
                found[name] = Field(name, words[-2], "final" in words[:-2], "transient" in words[:-2])
        return found

    @cached_property
    def lazy(self) -> frozenset[str]:
        """The fields that only keep what was computed from others."""
        if not any(name.startswith("bitmap$") for name in self.fields):
            return frozenset()
        methods = self._jvm.scala.runtime.ScalaRunTime.stringOf(self._class.getDeclaredMethods())
        return frozenset(_LAZY.findall(str(methods)))

    @cached_property
    def lost(self) -> frozenset[str]:
        """The fields that are set once and that Java's serialization leaves out."""
        return frozenset(field.name for field in self.fields.values() if field.final and field.transient)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Parameters of its constructor, in their order; the first ones are the elements of a case class."""
        reflection = self._jvm.org.apache.spark.sql.catalyst.ScalaReflection
        return tuple(str(reflection.getConstructorParameterNames(self._class).mkString(" ")).split())
