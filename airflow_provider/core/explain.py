"""Explain why a vertex differs from the stored one: compare the named parts of two fingerprints.

A part's name is a kind and a subject, ``function score`` or ``setting spark.sql.session.timeZone``; its value is a
digest, or the plain value if that helps a reader and reveals nothing. For people only: the whole digest decides whether
a vertex is reused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from airflow_provider.core.file_set import FileSet

FUNCTION, MODULE, PACKAGE, READING, FILES, ROWS, TABLE, GIVEN, SETTING, VERSION, UPSTREAM, PLAN = (
    "function",
    "module",
    "package",
    "reading",
    "files",
    "rows",
    "table",
    "given",
    "setting",
    "version",
    "upstream",
    "plan",
)
"""The kinds of parts, in the order in which they are named as reasons."""

UNSET = "not set"


def reasons(old: Mapping[str, str], new: Mapping[str, str], old_schema: str = "", new_schema: str = "") -> list[str]:
    """Return what changed from the parts *old* to the parts *new*, most informative first, one phrase each.

    :param old_schema: Spark's JSON of the columns, to name new and removed ones
    """
    said = [
        say(name, old.get(part), new.get(part))
        for kind, say in _SAYERS.items()
        for part, name in _changed(kind, old, new)
    ]
    said += _columns(old_schema, new_schema)
    return said or ["what it is made of has changed"]


def _changed(kind: str, old: Mapping[str, str], new: Mapping[str, str]) -> list[tuple[str, str]]:
    parts = dict.fromkeys([*old, *new])
    return [
        (part, part[len(kind) :].strip())
        for part in parts
        if part.split(" ", 1)[0] == kind and old.get(part) != new.get(part)
    ]


def _came_or_went(noun: str) -> Callable[[str, str | None, str | None], str]:
    def say(name: str, old: str | None, new: str | None) -> str:
        return f"{noun} {name!r} {'is new' if old is None else 'is gone' if new is None else 'changed'}"

    return say


def _was_is(noun: str) -> Callable[[str, str | None, str | None], str]:
    def say(name: str, old: str | None, new: str | None) -> str:
        return f"{noun}{name} was {old or UNSET}, is {new or UNSET}"

    return say


def _reading(what: str, old: str | None, new: str | None) -> str:
    if old is None or new is None:
        return f"its functions read {'something' if old is None else 'nothing more'} by themselves ({what})"
    return (
        f"its functions read something by themselves ({what}), and nobody knows whether that is as it was: "
        "this attempt is no automatic retry of the one that stored it"
    )


def _files(place: str, old: str | None, new: str | None) -> str:
    before, now = (FileSet.decode(text) if text else None for text in (old, new))
    if old is None:
        return f"the input under {place} is new"
    if new is None:
        return f"the input under {place} is not read any more"
    if before is None or now is None:
        return f"the input under {place} changed"
    return now.changes_since(before, place)


def _upstream(name: str, old: str | None, new: str | None) -> str:
    if old is not None and new is not None and old.split("@")[0] == new.split("@")[0]:
        return f"checkpoint {name!r}, which it reads and which is not deterministic, was computed again"
    return _came_or_went("checkpoint")(name, old, new)


_SAYERS: dict[str, Callable[[str, str | None, str | None], str]] = {
    FUNCTION: _came_or_went("function"),
    MODULE: _came_or_went("module"),
    PACKAGE: _was_is("package "),
    READING: _reading,
    FILES: _files,
    ROWS: lambda _, old, new: "the rows given to createDataFrame changed",
    TABLE: lambda name, old, new: f"table {name} was at version {old or UNSET}, is at {new or UNSET}",
    GIVEN: lambda _, old, new: f"the version given to checkpoint() was {old or UNSET}, is {new or UNSET}",
    SETTING: _was_is(""),
    VERSION: _was_is("the version of "),
    UPSTREAM: _upstream,
    PLAN: lambda _, old, new: "its plan changed",
}


def _columns(old: str, new: str) -> list[str]:
    """Name the columns that were added, removed or moved, or whose type changed."""
    try:
        before, now = ({field["name"]: field for field in json.loads(text)["fields"]} for text in (old, new))
    except (ValueError, KeyError, TypeError):
        return []
    said = [f"column {name!r} is new" for name in now if name not in before]
    said += [f"column {name!r} is gone" for name in before if name not in now]
    for name in now:
        if name in before and before[name]["type"] != now[name]["type"]:
            was, is_ = (_type(field["type"]) for field in (before[name], now[name]))
            said.append(f"column {name!r} was {was}, is {is_}")
    if not said and list(before) != list(now):
        said.append("the order of its columns changed")
    return said


def _type(of_column: object) -> str:
    return of_column if isinstance(of_column, str) else json.dumps(of_column, separators=(",", ":"))
