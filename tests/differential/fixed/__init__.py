"""Cases that are run in every form of the tests: each was found once, or is a way in which recovery could go wrong."""

from __future__ import annotations

import re
from pathlib import Path

from tests.differential.case import SHARED, Case

BY_HAND = Path(__file__).parents[1] / "by_hand"
"""Cases for the long form."""


def fixed_cases(folder: Path = Path(__file__).parent) -> list[Case]:
    """Read the cases, by name."""
    found = []
    for file in sorted(folder.glob("*.case")):
        text = file.read_text(encoding="utf-8")
        kind = re.search(r"^# kind: (\w+)$", text, re.MULTILINE)
        found.append(Case(file.stem, text, kind[1] if kind else SHARED))
    return found
