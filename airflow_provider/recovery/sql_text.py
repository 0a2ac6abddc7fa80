"""Whether a SQL statement may change something outside of the session, told by its first words alone.

What cannot be told counts as changing something: that costs nothing while the driver's lease lasts.
"""

from __future__ import annotations

import re

_BEFORE = r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/|\()*"
_READS = re.compile(
    _BEFORE + r"(?:SELECT|VALUES|TABLE|MAP|REDUCE|SHOW|DESC|DESCRIBE|EXPLAIN|LIST"
    r"|SET|RESET|USE|CACHE|UNCACHE|CLEAR|REFRESH|ADD|DECLARE"
    r"|CREATE\s+(?:OR\s+REPLACE\s+)?(?:GLOBAL\s+)?(?:TEMPORARY|TEMP)"
    r"|DROP\s+(?:VIEW|TEMPORARY))\b",
    re.IGNORECASE | re.DOTALL,
)
_QUERY_OR_INSERT = re.compile(_BEFORE + r"(?:WITH|FROM)\b", re.IGNORECASE | re.DOTALL)
_INSERT = re.compile(r"\b(?:INSERT|MERGE|UPDATE|DELETE)\b", re.IGNORECASE)


def may_write(text: str) -> bool:
    """Return whether running the statement may write to a table, a folder or the catalog."""
    if _READS.match(text) or not re.sub(_BEFORE, "", text, count=1, flags=re.DOTALL):
        return False
    return not _QUERY_OR_INSERT.match(text) or bool(_INSERT.search(text))
