"""Cache the names of JVM packages and classes.

Py4J caches none: each use of ``jvm.org.apache.spark`` asks for every part of it, and the JVM searches all jars, also
for a class of that name in each package that PySpark imports. That takes milliseconds; a call takes a tenth of one.
"""

from __future__ import annotations

from typing import Any

_NAMES = "_spark_recovery_names"


def jvm_of(owner: Any) -> Any:
    """Return the JVM of a Spark session or context: its classes by full names, or by those that PySpark imports."""
    jvm = owner._jvm
    return vars(jvm).setdefault(_NAMES, Names(jvm))


class Names:
    """Packages and classes inside one package, or in a whole JVM."""

    def __init__(self, inside: Any) -> None:
        self._inside = inside

    def __getattr__(self, name: str) -> Any:
        from py4j.java_gateway import JavaClass, JavaPackage

        found = getattr(self._inside, name)
        if isinstance(found, JavaPackage) and name[:1].islower():
            found = Names(found)
        elif not isinstance(found, JavaClass):  # a class that may be loaded later
            return found
        vars(self)[name] = found
        return found
