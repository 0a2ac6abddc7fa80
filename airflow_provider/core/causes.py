"""Read the causes of a Spark driver's error: Python's, the JVM's, and what a Python worker raised. Pure text work."""

from __future__ import annotations

import re
from typing import Any

from airflow_provider.core.failure import Cause
from airflow_provider.core.partitions import FOLDER

_IN_WORKER = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)", re.MULTILINE)
"""The last line of a Python traceback: Spark wraps what a worker raised in many lines of its own."""
_IN_JVM = re.compile(r"^Caused by: ([\w.$]+)(?:: (.*))?$", re.MULTILINE)
_FROM_JVM = re.compile(r"An error occurred while calling .+\n: ([\w.$]+)(?:: (.*))?")
"""Py4J names the call first, and what the JVM failed with in a line of its own."""
STORED_PARTITION = re.compile(rf"({FOLDER}/(?:[^/\s]+/){{2,3}}[^/\s]+?\.(?:parquet|written))")
"""The key of a stored partition, or of its content, in an error's text; every reader names one of them."""
_UNREADABLE = ("FAILED_READ_FILE", "Encountered error while reading file", "CorruptObject", "ObjectNotFound")


def causes(error: BaseException) -> list[Cause]:
    """Return the chain of explicit causes, outermost first; each class is followed by its base classes."""
    chain: list[Cause] = []
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        text = str(link)  # a JVM error asks the JVM for it each time
        condition, message = _condition(link), _first_line(text)
        chain += [
            Cause(cls.__name__, condition, message)
            for cls in type(link).__mro__
            if cls not in (Exception, BaseException, object)
        ]
        chain += [_from_line(line) for line in _IN_WORKER.findall(text)]
        chain += [Cause(_short(name), message=message) for name, message in _IN_JVM.findall(text)]
        link = link.__cause__
    return chain


def one_line(error: BaseException) -> str:
    """Return the error as one line: its type, its first line, and the last cause in the JVM or the Python worker's
    error.
    """
    if isinstance(error, SystemExit):
        return f"the script ended with exit code {error.code}"
    text = str(error).strip()
    if in_worker := _IN_WORKER.findall(text):
        return str(in_worker[-1])[:500]
    if from_jvm := _FROM_JVM.match(text):
        first = f"{_short(from_jvm[1])}: {from_jvm[2] or ''}"
    else:
        first = f"{type(error).__name__}: {_first_line(text)}"
    in_jvm = _IN_JVM.findall(text)
    root = in_jvm[-1][1] if in_jvm and in_jvm[-1][1] not in first else ""
    return f"{first.rstrip(': ')}{': ' if root else ''}{root}".rstrip(": ")[:500]


def unreadable_partitions(error: BaseException) -> list[str]:
    """Return the keys of stored partitions that the error names as missing or damaged.

    A store that does not answer is neither: what it holds may be sound.
    """
    text = str(error)
    if not any(mark in text for mark in _UNREADABLE):
        return []
    return sorted(set(STORED_PARTITION.findall(text)))


def _from_line(line: str) -> Cause:
    name, _, message = line.partition(":")
    return Cause(_short(name), message=message.strip())


def _short(name: str) -> str:
    return name.strip().rsplit(".", 1)[-1]


def _condition(error: Any) -> str:
    for method in ("getCondition", "getErrorClass"):
        if hasattr(error, method):
            return str(getattr(error, method)() or "")
    return ""


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")
