"""One text for one value, whatever way it came out of Spark, and texts without what changes from run to run."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

MOST_SHOWN = 40
"""Rows that a record holds as they are, beside the digest of all."""


def canonical(value: Any) -> Any:
    """Return a value that JSON holds, equal for equal values and different for different ones."""
    if value is None or isinstance(value, bool | str):
        return value
    if hasattr(value, "dtype") and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return canonical(value.item())  # numpy's scalars
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return {"float": "nan" if math.isnan(value) else repr(value)}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return {"time": value.isoformat()}
    if isinstance(value, dt.timedelta):
        return {"seconds": repr(value.total_seconds())}
    if isinstance(value, bytes | bytearray):
        return {"bytes": bytes(value).hex()}
    if hasattr(value, "__fields__") and isinstance(value, tuple):
        return {"row": [[name, canonical(item)] for name, item in zip(value.__fields__, value, strict=True)]}
    if isinstance(value, Mapping):
        return {"map": sorted(([canonical(key), canonical(item)] for key, item in value.items()), key=json.dumps)}
    if isinstance(value, set | frozenset):
        return {"set": sorted((canonical(item) for item in value), key=json.dumps)}
    if hasattr(value, "tolist"):
        return canonical(value.tolist())
    if isinstance(value, Sequence):
        return [canonical(item) for item in value]
    if hasattr(value, "toArray"):
        return {"vector": canonical(value.toArray())}
    return {"text": tidy(str(value))}


def rows_record(rows: Iterable[Any], ordered: bool) -> dict[str, Any]:
    """Rows as a number, a digest and the first of them; sorted, unless their order counts."""
    lines = [json.dumps(canonical(row), ensure_ascii=False) for row in rows]
    if not ordered:
        lines.sort()
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    return {"count": len(lines), "digest": digest, "rows": lines[:MOST_SHOWN]}


_VOLATILE = [
    (re.compile(r"(?s)\n\s+at [\w.$]+[./].*"), ""),
    (re.compile(r"(?s)\nDriver stacktrace:.*"), ""),
    (re.compile(r"(?s)JVM stacktrace:.*"), ""),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"[0-9a-f]{8}_[0-9a-f]{4}_[0-9a-f]{4}_[0-9a-f]{4}_[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"(app|application|local|attempt|task|job|stage)[-_]\d{8,}[-_\w]*"), r"\1-<id>"),
    (re.compile(r"#\d+L?\b"), "#"),
    (re.compile(r"\b(plan_id|rdd_|rdd|RDD|id)([=\[ ]*)\d+"), r"\1\2<n>"),
    (re.compile(r"\b([Tt]ask|[Ss]tage) \d+(\.\d+)?"), r"\1 <n>"),
    (re.compile(r"TID \d+"), "TID <n>"),
    (re.compile(r"\bJob \d+"), "Job <n>"),
    (re.compile(r"\b(rand|randn|uuid|shuffle|sample)\(-?\d{9,}\)"), r"\1(<seed>)"),
    (re.compile(r"\(\S+ executor driver\)"), "(executor)"),
    (re.compile(r"@[0-9a-f]{5,}\b"), "@<hash>"),
    (re.compile(r"0x[0-9a-f]{6,}"), "0x<hash>"),
    (re.compile(r"part-\d+-"), "part-"),
    (re.compile(r"(?s)Traceback \(most recent call last\):\n.*?\n(?=\S)"), ""),
    (re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d"), "<time>"),
]


def tidy(text: str, places: Mapping[str, str] | None = None) -> str:
    """Return a text without ids, paths and stack traces.

    :param places: folders and the names to write for them
    """
    for folder, name in sorted((places or {}).items(), key=lambda pair: -len(pair[0])):
        text = text.replace(folder, name)
    for pattern, replacement in _VOLATILE:
        text = pattern.sub(replacement, text)
    return text.strip()


def error_record(error: BaseException, places: Mapping[str, str]) -> dict[str, Any]:
    """An exception's class, its condition if Spark gave it one, and its message."""
    condition = getattr(error, "getCondition", None) or getattr(error, "getErrorClass", None)
    try:
        named = condition() if condition else None
    except Exception as surprise:  # noqa: BLE001 - a test's record must not fail itself
        named = type(surprise).__name__
    message = str(error)
    if type(error).__name__ == "Py4JJavaError":
        message = str(error.java_exception)  # type: ignore[attr-defined]
    return {"class": type(error).__name__, "condition": named, "message": tidy(message, places)[:1500]}
