"""The command line of ``spark-recovery demo``."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from airflow_provider.cli.demo.demo_processes import DemoError, Processes, free_port
from airflow_provider.cli.demo.local_airflow import airflow_environment
from airflow_provider.cli.demo.requirements import check_requirements, find_dags

_INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
ASK_AGAIN = 5.0
"""Seconds after which an interruption that had no effect is raised again."""
TAIL = 60
"""Lines of a log that are shown when something failed."""


class _Interrupted(BaseException):
    """Ctrl-C. Not a ``KeyboardInterrupt``: once one has passed through an ``exec`` of source text (such as an import
    that creates a dataclass), Python ends itself with the signal, whatever exit code it was given.

    Python drops an exception that is raised in a finalizer or in a weak reference's callback. So an alarm raises it
    again until the demo ends.
    """


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="spark-recovery demo",
        description="Run the example DAG on a real Airflow and a real Spark, kill the driver of the first try in the "
        "middle of a vertex, and let the scheduler's retry go on from there. Exits with 0 only if partitions were "
        "reused, nothing but the missing ones was computed, and the result equals an uninterrupted run's and DuckDB's.",
    )
    parser.add_argument("--keep", action="store_true", help="keep the working folder (logs, results, Airflow's home)")
    parser.add_argument("--stay", action="store_true", help="keep Airflow up at the end, until Ctrl-C, to look around")
    parser.add_argument(
        "--months",
        type=int,
        default=2,
        choices=range(1, 13),
        metavar="N",
        help="take N months of flights, of 12 (default: %(default)s; more take longer)",
    )
    parser.add_argument("--port", type=int, default=0, help="port of Airflow's web page (default: a free one)")
    parser.add_argument("--dags", metavar="DIR", help="folder of the example DAG (default: dags/ of the checkout)")
    parser.add_argument("--endpoint-url", metavar="URL", help="use this S3 server, not one started for the demo")
    parser.add_argument("--bucket", default="spark-recovery-demo", help="its bucket (default: %(default)s)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo.

    :return: 0 if every check passed, 1 if not, 130 after Ctrl-C
    """
    arguments = parse_arguments(argv)
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
    interrupted = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.setitimer(signal.ITIMER_REAL, ASK_AGAIN)
        raise _Interrupted

    for number in _INTERRUPTIONS:
        signal.signal(number, interrupt)
    work = Path(tempfile.mkdtemp(prefix="spark-recovery-demo-"))
    processes: Processes | None = None
    failure: DemoError | None = None
    code = 1
    try:
        dags = find_dags(arguments.dags)
        environment = airflow_environment(work, dags, arguments.port or free_port())
        check_requirements(environment["PATH"])
        processes = Processes(work / "logs", environment)
        from airflow_provider.cli.demo.story import tell  # needs the packages that were just checked

        tell(processes, work, dags, arguments)
        code = 0
        if arguments.stay:
            interrupted.wait()
    except DemoError as error:
        failure = error
    except (Exception, _Interrupted):
        if not interrupted.is_set():  # some libraries, such as DuckDB, turn an interruption into their own error
            raise
        if code:
            print("Interrupted.", file=sys.stderr)
            code = 130
    finally:
        for number in _INTERRUPTIONS:
            signal.signal(number, signal.SIG_IGN)
        if processes is not None:
            processes.stop()
        if failure is not None:
            _explain(failure)
        if arguments.stay and code == 0:
            print("Airflow and all that it started have ended.", flush=True)
        if arguments.keep or code == 1:
            print(f"Logs and results are kept in {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    return code


def _explain(failure: DemoError) -> None:
    if failure.log is not None and failure.log.exists():
        lines = [readable(line) for line in failure.log.read_text(errors="replace").splitlines()[-TAIL:]]
        print(f"\nThe end of {failure.log}:", *lines, sep="\n  ")
    print(f"\nThe demo failed: {failure}", flush=True)


def readable(line: str) -> str:
    """Return a JSON line of Airflow's task log as time, level and message; any other line unchanged."""
    try:
        record = json.loads(line)
        text = f"{record['timestamp'][11:19]} {record['level'].upper()} {record['event']}"
        errors = [f"\n    {error['exc_type']}: {error['exc_value']}" for error in record.get("error_detail") or ()]
    except (ValueError, LookupError, TypeError, AttributeError):
        return line
    return "".join([text, *errors])
