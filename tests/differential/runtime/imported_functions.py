"""What the generated scripts import: functions whose code lies in a module, not in the script."""

from __future__ import annotations

SHIFT = 3


def shifted(value: int | None) -> int | None:
    return None if value is None else value * 2 + SHIFT


def initials(text: str | None) -> str | None:
    return None if text is None else "".join(word[0] for word in text.split("#") if word)
