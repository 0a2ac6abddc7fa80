"""The long form of the torture run.

    python -m tests.torture --kills 300 --seed 1

Prints a line for each job, and at the end what was done and what was found, also when Ctrl-C or SIGTERM stops it. Jobs
that were found wrong stay in FOLDER. Several runs may go on at once, each in a folder of its own.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.quick_jvm import write_archive
from tests.torture.jobs_in_turn import STORES, walk
from tests.torture.torture import Outcome


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
    outcome = Outcome()
    with suppress(_Stopped), _stopped_by_signals():
        walk(folder, parsed.seed, parsed.kills, parsed.stores, _say, outcome=outcome)
    done = ", ".join(f"{name} {number}" for name, number in outcome.done.most_common())
    _say(f"seed {parsed.seed}: {outcome}, {(time.monotonic() - began) / 60:.0f} min; {done}")
    _say("\n".join(outcome.findings) or "nothing found")
    return 1 if outcome.findings else 0


class _Stopped(Exception):
    """By a signal."""


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Raise :class:`_Stopped` at the first SIGTERM or SIGINT; further ones are ignored, until all is put away."""
    numbers = (signal.SIGTERM, signal.SIGINT)

    def stop(*_: object) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise _Stopped

    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(line: str) -> None:
    print(time.strftime("%H:%M:%S"), line, flush=True)  # noqa: T201 - a command's answer


if __name__ == "__main__":
    sys.exit(main())
