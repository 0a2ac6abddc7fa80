"""Access members of JVM objects that Java's access rules, or py4j, hide.

Private members of Spark may change with any version: callers must do without a member that is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow_provider.spark.jvm.compiled import compiled

_METHODS = "_spark_recovery_methods"


class NoSuchMember(LookupError):
    """A member that this version of Spark does not have."""


def private_field(owner: Any, name: str) -> Any:
    """Return the current value of a private field: ``None`` for a lazy value that has not been computed.

    :raises NoSuchMember: neither the object's class nor one that it extends has such a field
    """
    return field_of(owner, name).get(owner)


def field_of(owner: Any, name: str) -> Any:
    """Return a private field of an object's class, to read it from any object of that class.

    :raises NoSuchMember: neither the class nor one that it extends has such a field
    """
    from py4j.protocol import Py4JJavaError

    kind = owner.getClass()
    while kind is not None:
        try:
            field = kind.getDeclaredField(name)
        except Py4JJavaError:
            kind = kind.getSuperclass()
        else:
            field.setAccessible(True)
            return field
    raise NoSuchMember(f"{owner.getClass().getName()} has no field {name}")


@contextmanager
def with_field(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Let a private field have another value.

    :raises NoSuchMember: there is no such field
    """
    field = field_of(owner, name)
    own = field.get(owner)
    field.set(owner, value)
    try:
        yield
    finally:
        field.set(owner, own)


def private_method(jvm: Any, owner: Any, name: str, *arguments: Any) -> Any:
    """Call a private method that *owner*'s class declares once with that many arguments; return its result.

    The class is searched once, because py4j asks for each of its methods.

    :raises NoSuchMember: the class has no such method
    """
    kind, count = owner.getClass(), len(arguments)
    known, key = vars(jvm).setdefault(_METHODS, {}), (str(kind.getName()), name, count)
    if key not in known:
        named = (method for method in kind.getDeclaredMethods() if method.getName() == name)
        found = next((method for method in named if method.getParameterCount() == count), None)
        if found is None:
            raise NoSuchMember(f"{key[0]} has no method {name} of {count} arguments")
        found.setAccessible(True)
        known[key] = found
    given = jvm.java.util.ArrayList()
    for argument in arguments:
        given.append(argument)
    return known[key].invoke(owner, given.toArray())


def of_environment(spark: Any, name: str, kind: str) -> Any:
    """Return a member of Spark's environment, such as ``mapOutputTracker``.

    :param kind: the full name of the member's class
    """
    return compiled(spark, "Environment", str).member(name, kind)
