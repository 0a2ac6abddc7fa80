"""Run the user's script inside a recovery context.

``spark-submit`` starts this instead of the script (the operator arranges that); ``spark-recovery run`` starts it
directly. It claims the job, reconciles, runs the script from the top as ``__main__``, and records how it ended.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider.core.causes import causes, one_line, unreadable_partitions
from airflow_provider.core.errors import Fenced, JvmLost, RecoveryError
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
from airflow_provider.spark.user_script import find_application, run_script, show

if TYPE_CHECKING:
    from airflow_provider.core.overhead import Overhead
    from airflow_provider.job.job_master import JobMaster
    from airflow_provider.spark.calls import Call, Proceed, Stages
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.jvm.watched_jvm import WatchedJvm
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


def _run(request: RunRequest, application: Path, conf: Mapping[str, str]) -> int:
    """Run the script inside a recovery context.

    :param conf: Spark's properties as they were submitted
    """
    from airflow_provider.job.job_master import JobMaster
    from airflow_provider.spark.context import RecoveryContext
    from airflow_provider.spark.jvm.driver_jvm import driver_jvm
    from airflow_provider.spark.jvm.session_settings import settings_of_script
    from airflow_provider.spark.jvm.watched_jvm import WatchedJvm
    from airflow_provider.spark.points.reading import hadoop_root
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
            error = run_script(
                application, request.arguments, master.check, lambda: _conclude(master, watched, sinks, None)
            )
        if error is not None:
            show(error)
            master.keep_secret(settings_of_script())
        return _conclude(master, watched, sinks, error)
    except Fenced:
        _stop_fenced(master)
    return EXIT_FAILED


def _conclude(master: JobMaster, watched: WatchedJvm, sinks: SinksOnce, error: BaseException | None) -> int:
    """Record how the attempt has ended; return the exit code.

    :param error: the one that the script failed with
    """
    from airflow_provider.spark.points.reading import lost_the_store

    try:
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
    from airflow_provider.spark.call_sites import call_sites
    from airflow_provider.spark.context import recovering
    from airflow_provider.spark.interception import intercepted
    from airflow_provider.spark.points.counting import counted_tasks
    from airflow_provider.spark.points.releasing import releasing
    from airflow_provider.spark.points.restarted_actions import restarted_actions
    from airflow_provider.spark.points.spark_checkpoints import SparkCheckpoints
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
                    SparkCheckpoints(context).stages(),
                    again,
                    *auto,
                    output.stages(),
                    owning,
                    commits,
                    context.notes(),
                    readers,
                    counted,
                    call_sites(),
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
