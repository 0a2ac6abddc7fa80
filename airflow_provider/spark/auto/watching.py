"""The watcher thread of auto mode: it looks at the script's current Spark application at intervals."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider.core.causes import one_line
from airflow_provider.core.errors import Fenced
from airflow_provider.core.overhead import IN_JVM, LOOKING
from airflow_provider.core.rounds import Rounds
from airflow_provider.spark.auto.seen_shuffles import SeenShuffles
from airflow_provider.spark.auto.shuffle_identity import NotKept
from airflow_provider.spark.jvm.queries import is_stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider.spark.context import RecoveryContext

log = logging.getLogger(__name__)

_PAUSE = 0.5
"""Seconds between two looks."""
_FAILURES = 5
"""Failed looks in a row before an application is left alone: a busy JVM answers again."""
_CATCH_UP = 10.0
"""Most seconds that a restart waits until what is there has been looked at."""
_LOOKS_TO_CATCH_UP = 2
"""Spark may not have counted yet what the first of these finds."""
_COUNT_EVERY = 30.0
"""Most seconds between two questions how much CPU the JVM has spent on looks."""
_TELL_EVERY = 300.0
"""Seconds between two records of the cost of recovery."""
_SHARE = 5
"""After a long look the pause is this many times as long, so that looks take little of a core."""


class Watcher:
    """Looks at the script's current Spark application, whichever it is, until the script ends."""

    def __init__(self, context: RecoveryContext) -> None:
        self._context = context
        self._rounds = Rounds()
        self._lock = threading.Lock()
        self._context_seen: Any = None
        self._application: SeenShuffles | None = None
        self._broken = False
        self._failures = 0
        self._started = self._count_next = time.monotonic()
        self._tell_next = self._started + _TELL_EVERY

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look as long as the block runs; its end waits for the last look."""
        try:
            with self._rounds.at_work("watch-shuffles", self._look, _PAUSE):
                yield
        finally:
            self._context.occurrences.detach()

    def catch_up(self) -> None:
        """Return once everything that exists now was looked at, or soon: copying may take long."""
        for _ in range(_LOOKS_TO_CATCH_UP):
            self._rounds.wait(self._rounds.ask(), _CATCH_UP / _LOOKS_TO_CATCH_UP)

    def application(self) -> SeenShuffles | None:
        """Return the state of the running application; ``None`` if none runs, or it cannot be watched."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        context, session = SparkContext._active_spark_context, SparkSession._instantiatedSession
        if context is None or session is None or is_stopped(context) or session._sc is not context:
            return None
        with self._lock:
            if self._context_seen is not context:
                self._context_seen, self._application, self._broken = context, None, False
            if self._application is None and not self._broken:
                try:
                    self._application = SeenShuffles(self._context, session)
                except Exception as error:  # noqa: BLE001 - the script runs as it would have
                    self._broken = True
                    self._give_up(error)
            return self._application

    def _look(self) -> float | None:
        """Look once; return the pause until the next look, ``None`` if this attempt no longer owns the job."""
        began, waited = time.monotonic(), 0.0
        try:
            with self._context.master.overhead.on(LOOKING):
                application = self.application()
                if application is not None and self._context.master.usable:
                    before = application.waited
                    application.look()
                    waited = application.waited - before
                    self._tell_overhead(application)
            self._failures = 0
        except Fenced:
            return None
        except Exception as error:
            self._failures += 1
            log.debug("Looking failed", exc_info=error)
            if self._failures >= _FAILURES and self._still_runs():
                with self._lock:
                    self._application, self._broken = None, True
                self._give_up(error)
        return max(_PAUSE, _SHARE * (time.monotonic() - began - waited))

    def _tell_overhead(self, application: SeenShuffles) -> None:
        """Add the JVM's CPU time to the overhead at intervals, and record the overhead for the page less often."""
        now, overhead = time.monotonic(), self._context.master.overhead
        if now >= self._count_next:
            overhead.set(IN_JVM, application.seconds_in_jvm(), 0.0)
            self._count_next = now + min(_COUNT_EVERY, max(1.0, now - self._started))
        if now >= self._tell_next:
            self._context.master.note_overhead()
            self._tell_next = now + _TELL_EVERY

    def _still_runs(self) -> bool:
        from pyspark import SparkContext

        return self._context_seen is not None and SparkContext._active_spark_context is self._context_seen

    def _give_up(self, error: Exception) -> None:
        why = str(error) if isinstance(error, NotKept) else one_line(error)
        log.warning("The shuffles of this Spark application are not kept: %s", why)
        log.debug("Watching failed", exc_info=error)
        self._context.occurrences.detach()
        self._context.master.vertex_skipped("shuffles", why)
