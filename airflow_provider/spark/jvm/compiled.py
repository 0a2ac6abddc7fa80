"""Java's side of what looks at plans: compiled in the driver's JVM by the Janino with which Spark generates code.

One call of a compiled class takes the place of hundreds of requests from Python, each of which costs a fraction of a
millisecond of both processes, and compiler time of the JVM's on top. The sources lie in ``java``, a file for each
class, and use no generics and no lambdas, which Janino does not know. Nothing is installed; executors see none of it.
"""

from __future__ import annotations

import pkgutil
import struct
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PACKAGE = "airflow_provider"
"""Of the classes."""
_MADE = "_spark_recovery_compiled"
_LOADER = "loader"
_SHARED = ("Members", "Answer")
"""Classes that the others use."""
_ONE_ANSWER = 6000
"""Bytes that py4j hands over in one piece. Of more, the second piece waits some 40 ms for TCP's delayed acknowledgement
of the first."""
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
            made[name] = _made(spark._jvm, made, name, argument())
        return made[name]


def named_class(spark: Any, name: str, **types: str) -> Any:
    """Return a class that Spark itself finds by its name, in the driver's JVM: its static members can be called.

    It stays as long as the JVM.

    :param types: word of the source → the type that stands there on this version of Spark
    :raises Py4JJavaError: this version of Spark has other classes than the source expects
    """
    with _compiling:
        made = vars(spark.sparkContext._gateway).setdefault(_MADE, {})
        if name not in made:
            _define(spark._jvm, name, types)
            made[name] = getattr(getattr(spark._jvm, _PACKAGE), name)
        return made[name]


def _define(jvm: Any, name: str, types: dict[str, str]) -> None:
    """Compile a class, and have it loaded by the loader of Spark's own threads, from a folder that goes at once."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    codes = _cooked(jvm, name, loader, types).getBytecodes()
    with tempfile.TemporaryDirectory() as folder:
        for made in codes:
            file = Path(folder, f"{made.replace('.', '/')}.class")
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(bytes(codes[made]))
        loader.addURL(jvm.java.io.File(folder).toURI().toURL())
        for made in codes:
            jvm.java.lang.Class.forName(made, True, loader)


def _cooked(jvm: Any, name: str, loader: Any, types: dict[str, str]) -> Any:
    source = pkgutil.get_data(__package__, f"java/{name}.java")
    if source is None:
        raise FileNotFoundError(f"java/{name}.java")
    text = source.decode()
    for word, of_this_version in types.items():
        text = text.replace(word, of_this_version)
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(text)
    return compiler


def _made(jvm: Any, made: dict[str, Any], name: str, argument: str) -> Any:
    if _LOADER not in made:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        for shared in _SHARED:
            loader = _cooked(jvm, shared, loader, {}).getClassLoader()
        made[_LOADER] = loader
    compiler = _cooked(jvm, name, made[_LOADER], {})
    (constructor,) = compiler.getClassLoader().loadClass(f"{_PACKAGE}.{name}").getConstructors()
    arguments = jvm.java.util.ArrayList()
    arguments.append(argument)
    return constructor.newInstance(arguments.toArray())


def fetched(answer: Any) -> tuple[list[str], bytes]:
    """Return the words of an ``Answer``, and the bytes behind them."""
    size = int(answer.size())
    read = b"".join(bytes(answer.next(_ONE_ANSWER)) for _ in range(0, size, _ONE_ANSWER))
    words: list[str] = []
    at = 0
    while True:
        (length,) = struct.unpack_from(">i", read, at)
        at += 4
        if not length:
            return words, read[at:]
        words.append(read[at : at + length - 1].decode())
        at += length - 1
