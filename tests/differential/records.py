"""Read what a script has written down, and compare two runs of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Records = Mapping[tuple[str, str], "Record"]

OURS: tuple[str, ...] = ("spark.submit.pyFiles", "spark.app.initial.file.urls", "spark.repl.local.jars", "spark.files")
"""Settings by which the runner brings its own code to executors: seen in the context's settings, and meant."""


@dataclass(frozen=True)
class Record:
    """One observation of one case."""

    case: str
    key: str
    value: Any
    flags: frozenset[str]


@dataclass(frozen=True)
class Difference:
    """Where two runs differ; either side is ``None`` where it has no such record."""

    case: str
    key: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        return f"{self.case} / {self.key}\n    expected {_short(self.expected)}\n    got      {_short(self.got)}"


def read(path: Path) -> Records:
    """The last record of each kind; a killed driver's last line may be cut."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            raw = json.loads(line)
        except ValueError:
            continue
        record = Record(raw["case"], raw["key"], raw["value"], frozenset(raw["flags"]))
        found[record.case, record.key] = record
    return found


def differences(
    expected: Records, got: Records, *, begun: Collection[str] = (), same_layout: bool = True
) -> list[Difference]:
    """Return what two runs have seen differently.

    :param begun: cases that earlier attempts had begun, so that what they look at on their way need not be equal
    :param same_layout: whether both ran on the same number of cores, and without a kill that leaves the files of two
    """
    found = []
    for name in list(dict.fromkeys([*expected, *got])):
        one, other = expected.get(name), got.get(name)
        flags = (one or other or _NONE).flags
        if ("fresh" in flags and name[0] in begun) or ("layout" in flags and not same_layout):
            continue
        values = [_comparable(name, record.value) if record else None for record in (one, other)]
        if values[0] != values[1] or (one is None) != (other is None):
            found.append(Difference(*name, *values))
    return found


_NONE = Record("", "", None, frozenset())


def _comparable(name: tuple[str, str], value: Any) -> Any:
    if name == ("the session", "all settings"):
        return {"map": [pair for pair in value["map"] if pair[0] not in OURS]}
    return value


def _short(value: Any, most: int = 700) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"
