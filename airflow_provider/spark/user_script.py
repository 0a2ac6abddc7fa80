"""The user's script, found and run as Python runs a script: what it sees, how it ends, what it leaves running."""

from __future__ import annotations

import builtins
import concurrent.futures.thread
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from airflow_provider.core.errors import ConfigurationError, Fenced


def find_application(name: str) -> Path:
    """Return the script's path: as given, in the working directory, or among the files that came with the job.

    :raises ConfigurationError: it is nowhere, or no Python script
    """
    path = Path(name)
    places = [path, Path.cwd() / path.name, *(Path(root) / path.name for root in sys.path)]
    found = next((place for place in places if os.path.isfile(place)), None)
    if found is None or not os.access(found, os.R_OK, effective_ids=True):
        raise ConfigurationError(
            f"The application {name!r} {'does not exist' if found is None else 'cannot be read'}.",
            remedy="Check the path, that the driver's machine has it, and that the driver's user may read it.",
        )
    if found.suffix == ".jar":
        raise ConfigurationError(
            f"The application {name!r} is a JVM application.",
            remedy="Recovery works for PySpark scripts; submit JVM applications with SparkSubmitOperator.",
        )
    return found.absolute()


class _Heard(logging.Logger):
    """A logger that stays enabled: a script that sets up logging disables all loggers that are there, by default."""

    disabled = property(lambda _: False, lambda *_: None)


def run_script(
    application: Path, arguments: Sequence[str], check: Callable[[], None], left: Callable[[], int]
) -> BaseException | None:
    """Run the script as ``__main__``; return the error that it failed with.

    :param check: raises Fenced if this attempt must stop, which is then why the script failed
    :param left: concludes the attempt of a script that ends its process itself, by ``os._exit(0)``; returns the exit
        code
    """
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.startswith("airflow_provider") and isinstance(logger, logging.Logger):
            logger.__class__ = _Heard
    sys.argv = [str(application), *arguments]
    # Python looks beside the script that a link leads to; what came with a job to a cluster lies beside the link.
    sys.path[:0] = dict.fromkeys([os.path.dirname(os.path.realpath(application)), str(application.parent)])
    before, process = set(threading.enumerate()), os.getpid()
    # Unlike runpy's, this module stays: what threads and exit handlers pickle is looked up there.
    script = sys.modules["__main__"] = ModuleType("__main__")
    script.__dict__.update(__file__=str(application), __builtins__=builtins)
    error: BaseException | None = None
    try:
        with _noticed_exits(left):
            try:
                code = compile(application.read_bytes(), str(application), "exec", dont_inherit=True)
                exec(code, script.__dict__)  # noqa: S102 - it is what the job is
            finally:
                _wait_for_threads(before)
    except Fenced:
        raise
    except (Exception, KeyboardInterrupt, SystemExit) as raised:  # noqa: BLE001 - whatever it is, it ends the attempt
        error = raised
    if os.getpid() != process:
        _end_child(error)
    if error is not None and not isinstance(error, SystemExit):
        check()
    return error if _status(error) else None


def _status(error: BaseException | None) -> int:
    """Return the status with which Python ends for *error*."""
    if error is None:
        return 0
    code: object = error.code if isinstance(error, SystemExit) else 1
    return code if isinstance(code, int) else int(code is not None)


@contextmanager
def _noticed_exits(left: Callable[[], int]) -> Iterator[None]:
    """Call *left* before this process, not one that it has forked, ends by ``os._exit(0)``, which runs nothing else."""
    leave, process = os._exit, os.getpid()

    def exit_now(status: int) -> NoReturn:
        try:
            if status == 0 and os.getpid() == process:
                status = left()
        finally:
            leave(status)

    os._exit = exit_now
    try:
        yield
    finally:
        os._exit = leave


def _end_child(error: BaseException | None) -> NoReturn:
    """End a process that the script has forked, when it has come to the script's end: the attempt is its parent's."""
    if error is not None:
        show(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_status(error))


def _wait_for_threads(before: set[threading.Thread]) -> None:
    """Wait for the threads that a script has left running, as Python does when it exits: they may still write. Pools do
    what was submitted to them, then their threads end.

    :param before: threads that are not the script's
    """
    pools = getattr(concurrent.futures.thread, "_threads_queues", {})
    while left := [t for t in threading.enumerate() if t not in before and not t.daemon]:
        for thread in left:  # older ones first, so those of a pool that a thread uses itself have ended before
            given = getattr(thread, "_args", ())  # a pool gives its threads a weak reference to itself
            if thread in pools and given and (pool := given[0]()) is not None:
                pool.shutdown(wait=False)
            thread.join()


def show(error: BaseException) -> None:
    """Tell of the script's error as Python itself does: by the hook that the script may have set."""
    if not isinstance(error, SystemExit):
        error = _without_runner(error)
        try:
            sys.excepthook(type(error), error, error.__traceback__)
        except Exception:  # noqa: BLE001 - the hook's own
            traceback.print_exc()
            traceback.print_exception(error)
    elif error.code is not None and not isinstance(error.code, int):
        print(error.code, file=sys.stderr)  # noqa: T201


def _without_runner(error: BaseException) -> BaseException:
    """Return the error with a traceback that starts in the user's script."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return error.with_traceback(frames) if frames is not None else error
