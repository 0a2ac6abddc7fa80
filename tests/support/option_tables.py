"""The tables of options in docs/options.md, made from the declarations: ``python -m tests.support.option_tables``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from airflow_provider.core.options import Option, RecoveryOptions, StorageOptions

ROOT = Path(__file__).parents[2]
OPTIONS = ROOT / "docs" / "options.md"
MORE = {
    "recovery_points": "auto.md",
    "sinks": "sinks.md",
    "unknown_sinks": "sinks.md#tables-of-other-formats-and-databases",
    "previous_worker_recovery_timeout": "decisions/ownership-is-a-lease.md",
    "retention": "operating.md",
    "failover_strategy": "recovery.md",
    "restart_strategy": "recovery.md",
}
"""Where an option is explained, below docs."""
_TABLE = re.compile(r"<!-- options: (\w+) -->\n(?:\|.*\n)*")


def tables(text: str) -> str:
    """Return the document with its tables made anew."""
    everything = [*RecoveryOptions.declared().items(), *StorageOptions.declared().items()]
    rows = {
        "common": [(name, option) for name, option in everything if option.common],
        "recovery": list(RecoveryOptions.declared().items()),
        "storage": list(StorageOptions.declared().items()),
    }

    def table(match: re.Match[str]) -> str:
        return f"<!-- options: {match[1]} -->\n{_table(rows[match[1]], flink=match[1] != 'common')}"

    return _TABLE.sub(table, text)


def _table(rows: Iterable[tuple[str, Option]], *, flink: bool) -> str:
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for name, option in rows:
        default = f"`{option.default}`" if option.default else ""
        more = f" ([more]({MORE[name]}))" if name in MORE else ""
        values = f"; {', '.join(f'`{choice}`' for choice in option.type.choices)}" if _unsaid(option) else ""
        theirs = f" [Flink: `{option.flink}`]" if option.flink and flink else ""
        lines.append(f"| `{name}` | {default} | {option.help}{values}{more}{theirs} |")
    return "\n".join(lines) + "\n"


def _unsaid(option: Option) -> bool:
    """Whether an option has a few values that its help does not name."""
    return len(option.type.choices) > 1 and not all(choice in option.help for choice in option.type.choices)


def main() -> None:
    """Write the tables into the document."""
    OPTIONS.write_text(tables(OPTIONS.read_text()))


if __name__ == "__main__":
    main()
