"""Java's side of what looks at plans: compiled in the driver's JVM by the Janino with which Spark generates code.

One call of a compiled class takes the place of hundreds of requests from Python, each of which costs a fraction of a
millisecond of both processes, and compiler time of the JVM's on top. The sources lie in ``java``, a file for each
class, and use no generics and no lambdas, which Janino does not know. Nothing is installed; executors see none of it.
"""

from __future__ import annotations

import pkgutil
import threading
from collections.abc import Callable
from typing import Any

_PACKAGE = "airflow_provider"
"""Of the classes."""
_MADE = "_spark_recovery_compiled"
_compiling = threading.Lock()


def compiled(spark: Any, name: str, argument: Callable[[], str]) -> Any:
    """Return the one instance of a class in this JVM.

    It belongs to the gateway, and ends with it. One of a kind, because py4j finds methods by the name of a class.

    :param argument: returns what the constructor gets
    :raises Py4JJavaError: this version of Spark has other classes than the source expects
    """
    with _compiling:
        made = vars(spark.sparkContext._gateway).setdefault(_MADE, {})
        if name not in made:
            made[name] = _made(spark._jvm, name, argument())
        return made[name]


def _made(jvm: Any, name: str, argument: str) -> Any:
    source = pkgutil.get_data(__package__, f"java/{name}.java")
    if source is None:
        raise FileNotFoundError(f"java/{name}.java")
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source.decode())
    (constructor,) = compiler.getClassLoader().loadClass(f"{_PACKAGE}.{name}").getConstructors()
    arguments = jvm.java.util.ArrayList()
    arguments.append(argument)
    return constructor.newInstance(arguments.toArray())
