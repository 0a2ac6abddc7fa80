"""Runs pytest in processes forked from one that has imported what is slow to import, the package itself excepted.

    python -m tests.ablation.forked_runs LOG

reads a run from each line of its input, in JSON: the arguments of pytest, and the seconds that it may take. It answers
with a line when the run has ended. Each run is a process of its own, which imports the package as it is then.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

_SLOW = ("pytest", "hypothesis", "xdist", "numpy", "pyarrow.parquet", "pandas", "boto3", "tenacity", "pyspark.sql")


def main(log: Path) -> None:
    """Serve until the input ends."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # with the run that is going on
    for name in _SLOW:
        importlib.import_module(name)
    for line in sys.stdin:
        run = json.loads(line)
        child = os.fork()
        if not child:
            _test(run["arguments"], log)
        _wait(child, run["seconds"])
        sys.stdout.write("ended\n")
        sys.stdout.flush()


def _test(arguments: list[str], log: Path) -> None:
    """Become a run of pytest."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with log.open("a") as file, Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
        import pytest

        try:
            pytest.main(arguments)
        except BaseException:  # noqa: BLE001 - a run without a report shows nothing; the log says why
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)  # what it has found is in its report; threads of a driver that failed are of no interest


def _wait(child: int, seconds: float) -> None:
    """Wait for a run; end it, with all that it has started, where it takes too long or nobody waits for it any more."""
    end, parent = time.monotonic() + seconds, os.getppid()
    try:
        while not os.waitpid(child, os.WNOHANG)[0]:
            if time.monotonic() > end or os.getppid() != parent:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return
            time.sleep(0.05)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
