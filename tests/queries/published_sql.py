"""The published queries of TPC-H and TPC-DS as Spark runs them: the text that DuckDB brings, with the changes below.

DuckDB runs the published text, so that a change that alters a query's meaning shows as another answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb


@dataclass(frozen=True)
class Change:
    """Another spelling of a part of a query.

    :ivar pattern: a regular expression; it must be found
    """

    pattern: str
    replacement: str
    reason: str


QUOTED_ALIAS = Change(
    r'\bAS "([^"`]+)"',
    r"AS `\1`",
    "In Spark a text in double quotes is a literal, unless spark.sql.ansi.doubleQuotedIdentifiers is set.",
)

CHANGES: dict[str, dict[int, Change]] = {
    "tpch": {},
    "tpcds": {
        16: QUOTED_ALIAS,
        32: QUOTED_ALIAS,
        50: QUOTED_ALIAS,
        62: QUOTED_ALIAS,
        92: QUOTED_ALIAS,
        94: QUOTED_ALIAS,
        95: QUOTED_ALIAS,
        99: QUOTED_ALIAS,
    },
}
"""What Spark 4.2 cannot read as published, query by query; all others run as they are."""


def published_queries(connection: duckdb.DuckDBPyConnection, kind: str) -> dict[int, str]:
    """The queries as published, by number.

    :param kind: ``tpch`` or ``tpcds``, whose extension is loaded
    """
    rows = connection.execute(f"SELECT query_nr, query FROM {kind}_queries()").fetchall()
    return {number: text.strip().rstrip(";") + "\n" for number, text in rows}


def spark_queries(connection: duckdb.DuckDBPyConnection, kind: str) -> dict[int, str]:
    """The queries with the listed changes, by number.

    :raises ValueError: a change is listed that no longer has anything to change
    """
    queries = published_queries(connection, kind)
    for number, change in CHANGES[kind].items():
        queries[number], found = re.subn(change.pattern, change.replacement, queries[number])
        if not found:
            raise ValueError(f"Query {number} of {kind} has no {change.pattern!r}.")
    return queries


def order_keys(sql: str, names: Sequence[str]) -> list[tuple[int, bool]]:
    """Return the keys of a query's last ``ORDER BY``: numbers of columns, and whether they descend.

    A result with the right rows that is sorted by all keys is in the right order where the order is total; among rows
    with equal keys any order is right. Keys behind one that is not a plain column of the result are not looked at.

    :param names: the result's columns
    """
    clauses = re.split(r"\bORDER\s+BY\b", sql, flags=re.IGNORECASE)
    if len(clauses) == 1 or clauses[-1].count("(") < clauses[-1].count(")"):
        return []  # the last one belongs to a subquery or a window
    keys = []
    for item in re.sub(r"\bLIMIT\s+\d+\s*$", "", clauses[-1], flags=re.IGNORECASE).split(","):
        key = re.fullmatch(
            r"(?:\w+\.)?(\w+)(?:\s+(ASC|DESC))?(?:\s+NULLS\s+(FIRST|LAST))?", item.strip(), re.IGNORECASE
        )
        name, direction, nulls = key.groups() if key else ("", "", "")
        columns = [number for number, column in enumerate(names) if column.lower() == name.lower()]
        descends = (direction or "").upper() == "DESC"
        if len(columns) != 1 or (nulls and (nulls.upper() == "LAST") != descends):
            break
        keys.append((columns[0], descends))
    return keys
