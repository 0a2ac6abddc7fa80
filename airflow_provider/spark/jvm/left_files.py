"""Find who can read the shuffle files of lost executors: an external shuffle service makes them available for copying.

Dynamic allocation ends executors that have nothing to do. Their directories stay until the application ends. The
shuffle service knows these directories and is asked for them (``BlockStoreClient.getHostLocalDirs``). Another executor
on the same machine, which runs as the same user, reads there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from airflow_provider.spark.jvm.executors import block_manager, executors, fanout_of, has_shuffle_service
from airflow_provider.spark.jvm.names import jvm_of
from airflow_provider.spark.local_dirs import LocalDirs

log = logging.getLogger(__name__)

_PATIENCE = 10
"""Seconds in which a service must answer; otherwise it counts as not knowing the executor."""
_FAILURES = 3
"""Failed questions after which no more are asked: a driver may not reach the services, and each try takes long."""

Executor = tuple[str, str]
"""Id and host."""


@dataclass(frozen=True)
class Reader:
    """An executor that can read what another one, or itself, has written.

    :ivar executor: id and host of a running executor: the writer itself, or another one on its machine
    :ivar left: the directories to read in, if they are not its own
    """

    executor: Executor
    left: LocalDirs | None = None


class Readers:
    """The readers of one application's shuffle files."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._served = has_shuffle_service(spark)
        self._left: dict[Executor, LocalDirs | None] = {}
        """The directories of lost executors; ``None`` if the service has not named them."""
        self._failures = 0

    def of(self, writers: Iterable[Executor]) -> dict[Executor, Reader]:
        """Return a reader for the files of each of *writers*; some may have none, now or ever."""
        if not self._served:  # lost executors have taken their files along, and Spark names none as their owner
            return {writer: Reader(writer) for writer in writers}
        there = executors(self._spark)
        on_host = {host: (executor, host) for executor, host in there}
        found = {writer: Reader(writer) for writer in writers if writer in there}
        for writer in writers:
            if writer not in found and writer[1] in on_host and (left := self._dirs(writer)) is not None:
                found[writer] = Reader(on_host[writer[1]], left)
        return found

    def _dirs(self, gone: Executor) -> LocalDirs | None:
        """Return the directories of a lost executor; its machine is asked only once, whatever it answers."""
        if gone not in self._left and self._failures < _FAILURES:
            self._left[gone] = self._asked(*gone)
            self._failures += self._left[gone] is None
        return self._left.get(gone)

    def _asked(self, executor: str, host: str) -> LocalDirs | None:
        from py4j.protocol import Py4JError

        jvm, manager = jvm_of(self._spark), block_manager(self._spark)
        asked = self._spark.sparkContext._gateway.new_array(jvm.java.lang.String, 1)
        asked[0] = executor
        answer = jvm.java.util.concurrent.CompletableFuture()
        try:
            manager.blockStoreClient().getHostLocalDirs(host, manager.shuffleServerId().port(), asked, answer)
            paths = answer.get(_PATIENCE, jvm.java.util.concurrent.TimeUnit.SECONDS).get(executor)
        except Py4JError as error:
            log.debug("The shuffle service of %s does not say where executor %s has written", host, executor)
            log.debug("Asking it failed", exc_info=error)
            return None
        return LocalDirs(tuple(str(path) for path in paths), fanout_of(self._spark))
