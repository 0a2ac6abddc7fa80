"""Classify a SQL statement by its first words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

_BEFORE = r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/|\()*"
_READS = re.compile(
    _BEFORE + r"(?:SELECT|VALUES|TABLE|MAP|REDUCE|SHOW|DESC|DESCRIBE|EXPLAIN|LIST"
    r"|SET|RESET|USE|CACHE|UNCACHE|CLEAR|REFRESH|ADD|DECLARE"
    r"|CREATE\s+(?:OR\s+REPLACE\s+)?(?:GLOBAL\s+)?(?:TEMPORARY|TEMP)"
    r"|DROP\s+(?:VIEW|TEMPORARY))\b",
    re.IGNORECASE | re.DOTALL,
)
_QUERY_OR_INSERT = re.compile(_BEFORE + r"(?:WITH|FROM)\b", re.IGNORECASE | re.DOTALL)
_ADDS = re.compile(r"\b(?:INSERT\s+INTO|MERGE|UPDATE|LOAD\s+DATA)\b", re.IGNORECASE)
_INSERT = re.compile(r"\b(?:INSERT|MERGE|UPDATE|DELETE)\b", re.IGNORECASE)


def may_write(text: str) -> bool:
    """Return whether running the statement may write to a table, a folder or the catalog.

    An unclear statement counts as writing: that costs nothing while the driver's lease lasts.
    """
    if _READS.match(text) or not re.sub(_BEFORE, "", text, count=1, flags=re.DOTALL):
        return False
    return not _QUERY_OR_INSERT.match(text) or bool(_INSERT.search(text))


def adds_rows(text: str) -> bool:
    """Return whether a text of several statements, or one that cannot be parsed, seems to add or change rows, not only
    to replace or delete them.
    """
    return _ADDS.search(text) is not None


def begins_with(text: str, *words: str) -> bool:
    """Return whether a statement's first word is one of *words*; comments and white space do not count."""
    return _beginning(words).match(text) is not None


@cache
def _beginning(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"{_BEFORE}(?:{'|'.join(words)})\b", re.IGNORECASE | re.DOTALL)


def quoted_name(parts: Iterable[object]) -> str:
    """Return a name of several parts, quoted for Spark's SQL."""
    return ".".join(f"`{str(part).replace('`', '``')}`" for part in parts)
