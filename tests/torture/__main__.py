"""The long form of the torture run.

    python -m tests.torture --kills 300 --seed 1

Prints a line for each job, and at the end what was done and what was found. Jobs that were found wrong stay in FOLDER.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.support.quick_jvm import write_archive
from tests.torture.walk import STORES, walk


def main() -> int:
    """Run; return 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stores", nargs="*", choices=STORES, default=STORES)
    parser.add_argument("--folder", type=Path, help="kept; default: a temporary one")
    parsed = parser.parse_args()
    write_archive()
    folder = (parsed.folder or Path(tempfile.mkdtemp(prefix="torture-"))).absolute()
    began = time.monotonic()
    outcome = walk(folder, parsed.seed, parsed.kills, parsed.stores, _say)
    done = ", ".join(f"{name} {number}" for name, number in outcome.done.most_common())
    _say(f"{outcome.jobs} jobs, {outcome.drivers} drivers, {(time.monotonic() - began) / 60:.0f} min; {done}")
    _say("\n".join(outcome.findings) or "nothing found")
    return 1 if outcome.findings else 0


def _say(line: str) -> None:
    print(time.strftime("%H:%M:%S"), line, flush=True)  # noqa: T201 - a command's answer


if __name__ == "__main__":
    sys.exit(main())
