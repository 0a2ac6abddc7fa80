"""``python -m tests.ablation [ROW …]``: switch mechanisms off, all by default; write the table in docs/recovery.md."""

from __future__ import annotations

import argparse
import sys

from tests.ablation.ablate import ablate, read_results, write_results
from tests.ablation.mechanism_table import RECOVERY, with_table
from tests.ablation.rows import ROWS
from tests.support.quick_python import keep_no_more


def main() -> int:
    """Return 0 if all that was asked for is proved."""
    parser = argparse.ArgumentParser(prog="python -m tests.ablation", description=__doc__)
    parser.add_argument("row", nargs="*", type=int, help="number of a row; all by default")
    parser.add_argument("--table", action="store_true", help="only write the table, from what was shown last")
    given = parser.parse_args()
    unknown = sorted(set(given.row) - {row.number for row in ROWS})
    if unknown:
        parser.error(f"there is no row {unknown[0]}")
    keep_no_more()  # modules are changed within a second
    rows = [row for row in ROWS if row.number in given.row or not given.row]
    proved = given.table or ablate(rows, say)
    known = {switch.digest for row in ROWS for switch in row.switches}
    results = {digest: result for digest, result in read_results().items() if digest in known}
    write_results(results)
    RECOVERY.write_text(with_table(RECOVERY.read_text(), ROWS, results))
    return 0 if proved else 1


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
