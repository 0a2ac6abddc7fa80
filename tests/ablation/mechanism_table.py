"""The table of mechanisms in docs/recovery.md, made from the rows and what switching them off has shown."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from tests.ablation.mechanisms import Row

RECOVERY = Path(__file__).parents[2] / "docs" / "recovery.md"
_TABLE = re.compile(r"<!-- mechanisms -->\n(?:\|.*\n)*")


def with_table(document: str, rows: Iterable[Row], proved: Collection[str]) -> str:
    """Return the document with its table made anew.

    :param proved: digests of the switches under which the tests have failed
    """
    lines = ["| # | in Flink | here | module | fails when it is switched off |", "|---|---|---|---|---|"]
    lines += [_line(row, proved) for row in rows]
    return _TABLE.sub(lambda _: "<!-- mechanisms -->\n" + "\n".join(lines) + "\n", document)


def _line(row: Row, proved: Collection[str]) -> str:
    here = f"{row.here}. **Not here:** {row.missing}" if row.missing else row.here
    shown = []
    for switch in row.switches:
        tests = ", ".join(dict.fromkeys(f"`{test.partition('[')[0]}`" for test in switch.tests))
        shown.append(f"{switch.without}: {tests}" if switch.digest in proved else f"{switch.without}: **not shown**")
    modules = ", ".join(map(_quoted, row.modules)) or "the whole"
    return f"| {row.number} | {row.seed} | {here} | {modules} | {'; '.join(shown)} |"


def _quoted(module: str) -> str:
    return " ".join(f"`{part}`" for part in module.split(" "))
