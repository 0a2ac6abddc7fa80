"""Run the user's script inside a recovery context.

``spark-submit`` starts this instead of the script (the operator arranges that); ``spark-recovery run`` starts it
directly. It claims the job, reconciles, runs the script from the top as ``__main__``, and records how it ended.
"""

from __future__ import annotations

import builtins
import concurrent.futures.thread
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_provider.core.causes import causes, one_line, unreadable_partitions
from airflow_provider.core.errors import ConfigurationError, Fenced, JvmLost, RecoveryError
from airflow_provider.core.failure import unrecoverable
from airflow_provider.core.faults import FAULT, FAULT_PID
from airflow_provider.core.options_in_conf import with_conf
from airflow_provider.core.overhead import STARTING, WAITING
from airflow_provider.core.run_request import (
    EXIT_CONFIGURATION,
    EXIT_FAILED,
    EXIT_FENCED,
    RunRequest,
    parse_run_arguments,
)

if TYPE_CHECKING:
    from airflow_provider.core.overhead import Overhead
    from airflow_provider.spark.calls import Call, Proceed, Stages
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.sinks.once import SinksOnce

log = logging.getLogger(__name__)

_DISCONNECTED = {"Py4JError", "Py4JNetworkError", "ConnectionError"}
"""Errors that calls fail with when their JVM has just ended."""


def main(arguments: Sequence[str]) -> int:
    """Run the job that the command line describes; return the exit code."""
    try:
        return run(parse_run_arguments(arguments))
    except RecoveryError as error:
        print(f"spark-recovery: {error}", file=sys.stderr)  # noqa: T201 - logging may not be set up yet
        return EXIT_CONFIGURATION


def run(request: RunRequest) -> int:
    """Run one attempt; return the exit code.

    :returns: 0 on success, ``EXIT_FAILED`` if the script failed (a retry may help), ``EXIT_CONFIGURATION`` if nothing
        could be started, ``EXIT_FENCED`` if a newer attempt took over
    """
    set_up_logging()
    from airflow_provider.spark.submitted_conf import submitted_conf, with_py_file
    from airflow_provider.storage.bundle import build_package
    from airflow_provider.storage.private_files import hold_if_private

    try:
        application = find_application(request.application)
        for own in (application, Path(__file__).parents[2]):  # the script, and the zip that contains this module
            hold_if_private(own)
        os.environ.update(with_py_file(os.environ, build_package))
        conf = submitted_conf()
        return _run(with_conf(request, conf), application, conf)
    except Fenced as error:
        log.error("%s", error)
        return EXIT_FENCED
    except RecoveryError as error:
        log.error("%s", error)
        return EXIT_FAILED if error.retryable else EXIT_CONFIGURATION


def set_up_logging() -> None:
    """Send the package's log to standard output, one line per record, where ``spark-submit`` and Airflow pick it up.

    Errors go to standard error.
    """
    logger = logging.getLogger("airflow_provider")
    if logger.handlers:
        return
    told, errors = logging.StreamHandler(sys.stdout), logging.StreamHandler(sys.stderr)
    told.addFilter(lambda record: record.levelno < logging.ERROR)
    errors.setLevel(logging.ERROR)
    for handler in (told, errors):
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s spark-recovery: %(message)s", "%H:%M:%S"))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


class _Heard(logging.Logger):
    """A logger that stays enabled: a script that sets up logging disables all loggers that are there, by default."""

    disabled = property(lambda _: False, lambda *_: None)


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


def _run(request: RunRequest, application: Path, conf: Mapping[str, str]) -> int:
    """Run the script inside a recovery context.

    :param conf: Spark's properties as they were submitted
    """
    from airflow_provider.job.job_master import JobMaster
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.jvm.driver_jvm import driver_jvm
    from airflow_provider.spark.jvm.session_settings import settings_of_script
    from airflow_provider.spark.jvm.watched_jvm import WatchedJvm
    from airflow_provider.spark.points.reading import hadoop_root, lost_the_store
    from airflow_provider.storage.processes import seconds_of_own
    from airflow_provider.storage.uris import open_store

    if os.environ.get(FAULT):
        os.environ.setdefault(FAULT_PID, str(os.getpid()))
    store = open_store(request.event_store, request.storage)
    master = JobMaster(request, store, on_fenced=lambda newer: _stop_fenced(master, newer), jvm=driver_jvm)
    master.keep_secret(conf)
    if not master.start():
        if not request.supervised:
            master.acknowledge()
        return 0
    watched = WatchedJvm(request.options.jvm_timeout, partial(_stop_without_jvm, master))
    context = RecoveryContext(master, hadoop_root(store.uri))
    try:
        with recovered(context) as sinks:
            master.overhead.add(STARTING, time.process_time(), seconds_of_own())

            def left() -> None:
                try:
                    if watched.stop(disconnected=False) is None and sinks.unmet() is None:
                        master.finished()
                except Fenced:
                    _stop_fenced(master)

            error = run_script(application, request.arguments, master.check, left)
        if error is not None:
            _show(error)
            master.keep_secret(settings_of_script())
        disconnected = error is not None and not _DISCONNECTED.isdisjoint(cause.type for cause in causes(error))
        error = watched.stop(disconnected=disconnected) or error or sinks.unmet()
        if error is None:
            master.finished()
            return 0
        if lost_the_store(master, error):
            log.error(
                "The event store does not answer, and what checkpoints have stored cannot be read. This attempt ends; "
                "a retry goes on from there when the store answers."
            )
        _note_damage(master, error)
        cause = unrecoverable(causes(error))
        if cause is not None:
            log.error("A retry cannot help. Fix this first: %s", one_line(error))
        master.failed(one_line(error), unrecoverable=cause is not None)
    except Fenced:
        _stop_fenced(master)
    return EXIT_FAILED


@contextmanager
def recovered(context: RecoveryContext) -> Iterator[SinksOnce]:
    """Intercept the calls of the script that runs inside the block, with every stage of recovery."""
    from airflow_provider.spark.auto.mode import auto_mode
    from airflow_provider.spark.context import recovering
    from airflow_provider.spark.interception import intercepted
    from airflow_provider.spark.points.counting import counted_tasks
    from airflow_provider.spark.points.releasing import releasing
    from airflow_provider.spark.points.restarted_actions import restarted_actions
    from airflow_provider.spark.sinks.fence import confirmed, confirmed_commits
    from airflow_provider.spark.sinks.once import SinksOnce
    from airflow_provider.spark.sinks.take_back import OutputAttempt

    master, output = context.master, OutputAttempt(context.master)
    sinks, again = SinksOnce(context, output), restarted_actions(context)
    # Ownership is confirmed twice. First, because only the owner may look at sinks and remove remains, and because
    # the script goes on only when the end of its write is recorded; then last, because restoring takes time. What runs
    # again is restored again.
    owned, owning = confirmed(master.check_now, master.check_after), confirmed(master.check_now)
    commits = confirmed_commits(context)
    with (
        recovering(context),
        counted_tasks(context) as counted,
        auto_mode(context) as auto,
        releasing(context) as readers,
        intercepted(
            *_counted(
                master.overhead,
                (
                    owned,
                    sinks.stages(),
                    again,
                    *auto,
                    output.stages(),
                    owning,
                    commits,
                    context.notes(),
                    readers,
                    counted,
                ),
            )
        ),
    ):
        yield sinks


def _counted(overhead: Overhead, parts: Sequence[Stages]) -> Iterator[Stages]:
    """Yield *parts* between stages that measure how long recovery holds up the script, without Spark's own time."""
    kinds = {kind for part in parts for kind in part}

    def ours(_: Call, proceed: Proceed) -> Any:
        with overhead.on(WAITING):
            return proceed()

    def sparks(_: Call, proceed: Proceed) -> Any:
        with overhead.not_ours():
            return proceed()

    yield dict.fromkeys(kinds, ours)
    yield from parts
    yield dict.fromkeys(kinds, sparks)


def run_script(
    application: Path, arguments: Sequence[str], check: Callable[[], None], left: Callable[[], None]
) -> BaseException | None:
    """Run the script as ``__main__``; return the error that it failed with.

    :param check: raises Fenced if this attempt must stop, which is then why the script failed
    :param left: records the success of a script that ends its process itself, by ``os._exit(0)``
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
    if isinstance(error, SystemExit):
        return None if error.code is None or (isinstance(error.code, int) and error.code == 0) else error
    if error is not None:
        check()
    return error


@contextmanager
def _noticed_exits(left: Callable[[], None]) -> Iterator[None]:
    """Call *left* before this process, not one that it has forked, ends by ``os._exit(0)``, which runs nothing else."""
    leave, process = os._exit, os.getpid()

    def exit_now(status: int) -> NoReturn:
        try:
            if status == 0 and os.getpid() == process:
                left()
        finally:
            leave(status)

    os._exit = exit_now
    try:
        yield
    finally:
        os._exit = leave


def _end_child(error: BaseException | None) -> NoReturn:
    """End a process that the script has forked, when it has come to the script's end: the attempt is its parent's."""
    code: object = 0
    if error is not None:
        _show(error)
        code = error.code if isinstance(error, SystemExit) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


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


def _show(error: BaseException) -> None:
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


def _note_damage(master: object, error: BaseException) -> None:
    """Mark partitions that Spark's own reader found damaged, so that the next attempt computes them again."""
    from airflow_provider.job.job_master import JobMaster

    assert isinstance(master, JobMaster)  # noqa: S101 - typed loosely to keep the import lazy
    for key in unreadable_partitions(error):
        log.error("The stored partition %s cannot be read; the next attempt computes it again.", key)
        try:
            master.mark_corrupt(key)
        except RecoveryError as problem:
            log.warning("It could not be marked as damaged: %s", problem)


_stopping = threading.Lock()


def _stop_without_jvm(master: object, lost: JvmLost, ended: bool) -> None:
    """End this process, because its JVM has ended or hangs, and record why.

    A hanging JVM could still resume and commit. The record lets a successor start, so it is written only when the JVM
    has certainly ended. Without it a successor waits for the lease.

    :param ended: whether the JVM has ended
    """
    from airflow_provider.job.job_master import JobMaster
    from airflow_provider.spark.jvm.driver_jvm import driver_jvm, end_jvm, say_through_jvm

    assert isinstance(master, JobMaster)  # noqa: S101 - typed loosely to keep the import lazy
    _stopping.acquire()  # a fenced driver ends its JVM itself, and reports it
    try:
        say_through_jvm(f"ERROR spark-recovery: {lost}")
        is_known = ended or driver_jvm() is not None
        if end_jvm() and is_known:
            master.failed(one_line(lost))
        else:
            log.error("%s The JVM cannot be ended, so the next attempt waits until this one's lease has expired.", lost)
    finally:
        logging.shutdown()
        os._exit(EXIT_FAILED)


def _stop_fenced(master: object, newer: int = 0) -> None:
    """End this process and its JVM at once: a fenced attempt may commit nothing.

    The script's thread may call this, and so may a thread that learns of the newer attempt. The first to do so ends the
    process, and the other one with it. The script's thread never returns from here. The other one returns if it comes
    second: it may be the heartbeat's thread, which is joined. Marking the heartbeat FENCED lets the successor start, so
    that happens only when the JVM has certainly ended.

    :param newer: the attempt that a thread has learnt of; 0 for the script's thread
    """
    from airflow_provider.job.job_master import JobMaster
    from airflow_provider.spark.jvm.driver_jvm import end_jvm, say_through_jvm

    assert isinstance(master, JobMaster)  # noqa: S101 - typed loosely to keep the import lazy
    if not _stopping.acquire(blocking=not newer):  # never released
        return
    # Calls that wait for the JVM fail now; their stack traces would hide the one line that says why.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    if newer:
        say_through_jvm(f"ERROR spark-recovery: Attempt {master.epoch} is fenced: attempt {newer} owns the job now.")
    if end_jvm():
        master.stop_heartbeat("FENCED")
    logging.shutdown()
    os._exit(EXIT_FENCED)
