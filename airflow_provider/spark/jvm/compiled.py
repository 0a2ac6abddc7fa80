"""Compile the Java side of what looks at plans, in the driver's JVM, by the Janino with which Spark generates code.

One call of a compiled class replaces hundreds of requests from Python, each of which costs both processes a fraction of
a millisecond, and the JVM compiler time as well. The sources are in ``java``, a file for each class; they use no
generics and no lambdas, which Janino does not support. Executors see none of it.

Compiled classes are cached in the user's private folder on this machine for later drivers, because compiling takes more
than a second in a fresh JVM. A cached class is valid for the same sources, Java version and jars only.
"""

from __future__ import annotations

import io
import os
import pkgutil
import struct
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_provider.core.digest import digest
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.storage.private_files import hold, private_folder, write_whole

_PACKAGE = "airflow_provider"
"""Of the classes."""
_MADE = "_spark_recovery_compiled"
_LOADER = "loader"
_FOLDER = "folder"
_SHARED = ("Members", "Answer", "HeardEvents", "LakeScan")
"""Classes that the others use."""
_ONE_ANSWER = 6000
"""Bytes that py4j transfers in one piece. With more, the second piece waits some 40 ms for TCP's delayed
acknowledgement of the first.
"""
_compiling = threading.Lock()


def compiled(spark: Any, name: str, argument: Callable[[], str]) -> Any:
    """Return the only instance of a class in this JVM.

    It belongs to the gateway, and ends with it. There is only one because py4j finds methods by the class's name.

    :param argument: returns what the constructor gets
    :raises Py4JJavaError: this version of Spark has other classes than the source expects
    """
    with _compiling:
        made = vars(spark.sparkContext._gateway).setdefault(_MADE, {})
        if name not in made:
            made[name] = _made(jvm_of(spark), made, name, argument())
        return made[name]


def named_class(spark: Any, name: str, **types: str) -> Any:
    """Return a class that Spark itself finds by name in the driver's JVM, to call its static members.

    It stays until the JVM ends.

    :param types: word in the source → the type that replaces it on this version of Spark
    :raises OSError: this machine has no folder for it
    :raises Py4JJavaError: this version of Spark has other classes than the source expects
    """
    with _compiling:
        jvm, made = jvm_of(spark), vars(spark.sparkContext._gateway).setdefault(_MADE, {})
        if name not in made:
            loader = _context_loader(jvm)
            loader.addURL(_url(jvm, _archive(jvm, made, name, loader, types)))
            jvm.java.lang.Class.forName(f"{_PACKAGE}.{name}", True, loader)
            made[name] = getattr(getattr(jvm, _PACKAGE), name)
        return made[name]


def _made(jvm: Any, made: dict[str, Any], name: str, argument: str) -> Any:
    if _LOADER not in made:
        loader = _context_loader(jvm)
        for shared in _SHARED:
            loader = _loader(jvm, made, shared, loader)
        made[_LOADER] = loader
    loader = _loader(jvm, made, name, made[_LOADER])
    (constructor,) = loader.loadClass(f"{_PACKAGE}.{name}").getConstructors()
    arguments = jvm.java.util.ArrayList()
    arguments.append(argument)
    return constructor.newInstance(arguments.toArray())


def _context_loader(jvm: Any) -> Any:
    return jvm.java.lang.Thread.currentThread().getContextClassLoader()


def _loader(jvm: Any, made: dict[str, Any], name: str, parent: Any) -> Any:
    """Return a loader that has a class, and everything that *parent* has."""
    from py4j.protocol import Py4JError

    try:
        archive = _archive(jvm, made, name, parent, {})
    except (OSError, Py4JError):  # this machine has no folder for it, or this JVM does not say what it has loaded
        return _cooked(jvm, _source(name, {}), parent).getClassLoader()
    urls = jvm.java.lang.reflect.Array.newInstance(jvm.java.lang.Class.forName("java.net.URL"), 1)
    urls[0] = _url(jvm, archive)
    return jvm.java.net.URLClassLoader.newInstance(urls, parent)


def _url(jvm: Any, archive: Path) -> Any:
    return jvm.java.io.File(str(archive)).toURI().toURL()


def _archive(jvm: Any, made: dict[str, Any], name: str, loader: Any, types: dict[str, str]) -> Path:
    """Return the archive with a compiled class; the first driver that needs it makes it.

    :param loader: has the classes that its source names
    """
    if _FOLDER not in made:
        made[_FOLDER] = hold(private_folder() / _surroundings(jvm))
    source = _source(name, types)
    archive: Path = made[_FOLDER] / f"{name}-{digest(source)[:16]}.jar"
    if not zipfile.is_zipfile(archive):  # nor one that a power failure has truncated
        codes = _cooked(jvm, source, loader).getBytecodes()
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as written:
            for each in codes:
                written.writestr(f"{each.replace('.', '/')}.class", bytes(codes[each]))
        write_whole(archive, content.getvalue())
    return archive


def _surroundings(jvm: Any) -> str:
    """Return a digest over everything besides the source that decides the compiled class."""
    version, path = (str(jvm.System.getProperty(name)) for name in ("java.version", "java.class.path"))
    jars = [_stamp(file) for file in path.split(os.pathsep)]
    loaded = str(jvm.scala.runtime.ScalaRunTime.stringOf(_context_loader(jvm).getURLs()))
    return digest(version, path, loaded, *jars, *(_source(shared, {}) for shared in _SHARED))[:32]


def _stamp(file: str) -> str:
    try:
        status = os.stat(file)
    except OSError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"


def _source(name: str, types: dict[str, str]) -> str:
    source = pkgutil.get_data(__package__, f"java/{name}.java")
    if source is None:
        raise FileNotFoundError(f"java/{name}.java")
    text = source.decode()
    for word, of_this_version in types.items():
        text = text.replace(word, of_this_version)
    return text


def _cooked(jvm: Any, source: str, loader: Any) -> Any:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(source)
    return compiler


def fetched(answer: Any) -> tuple[list[str], bytes]:
    """Return the words of an ``Answer``, and the bytes after them."""
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
