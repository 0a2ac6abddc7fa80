"""Folders that RDDs and MLlib's models write themselves: remove what an earlier attempt has left, so that this one can
write.

Each attempt writes them, and both refuse to write where something is. So a folder that holds only a dead driver's
pending tasks must go; it is taken back like other outputs. What an earlier attempt has completed, where nothing was,
goes right before the same call of this attempt, unless anything in it has changed.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from airflow_provider.core.causes import one_line
from airflow_provider.core.committed_output import listing_digest
from airflow_provider.core.digest import digest
from airflow_provider.core.errors import Fenced
from airflow_provider.core.unfinished_write import RETURNED, SINK, UnfinishedWrite
from airflow_provider.spark.calls import Call, Kind, Proceed, Stages
from airflow_provider.spark.jvm.output import output_files, qualified
from airflow_provider.spark.jvm.pending_output import PendingOutput

if TYPE_CHECKING:
    from airflow_provider.job.job_master import JobMaster
    from airflow_provider.spark.sinks.take_back import OutputAttempt

log = logging.getLogger(__name__)

_LISTING = "listing"
"""What is remembered under this name of a folder that was written where nothing was is a digest of its files."""


class RddSinks:
    """The folders that RDDs and models of one attempt write."""

    def __init__(self, master: JobMaster, output: OutputAttempt) -> None:
        self._master = master
        self._output = output
        self._occurrences: Counter[str] = Counter()

    def stages(self) -> Stages:
        """Return the stages for the methods that write such folders."""
        return {Kind.SAVE_RDD: self._write, Kind.SAVE_MODEL: self._write}

    def _write(self, call: Call, proceed: Proceed) -> None:
        from pyspark.sql import SparkSession

        spark = SparkSession._instantiatedSession
        first = call.argument(0, "path")  # MLlib's older models are given a SparkContext before
        path = str(first if isinstance(first, str) else call.argument(1, "path"))
        begun = self._begin(spark, path) if spark is not None else None
        proceed()
        if begun is not None:
            self._returned(spark, *begun)

    def _begin(self, spark: Any, path: str) -> tuple[str, UnfinishedWrite] | None:
        """Record what is about to be written, where nothing of an earlier attempt's is any more; return the record and
        its name, ``None`` if it is not recorded.
        """
        try:
            location = qualified(spark, path)
            self._occurrences[location] += 1
            name = f"{SINK}{digest('rdd', location, str(self._occurrences[location]))[:32]}"
            pending = PendingOutput(spark, location, self._output.number)
            known = self._master.coordinator(name) or {}
            if known.get(_LISTING) and known[_LISTING] == _listing(spark, location):
                self._master.check_now()
                pending.remove_whole()
                log.info("%s: what attempt %s wrote is removed, and written again", location, known["attempt"])
            write = UnfinishedWrite(
                title=location,
                attempt=self._master.epoch,
                number=self._output.number,
                location=location,
                existed=pending.exists(),
                before=listing_digest([]),
                mode="error",
                repeated=True,
            )
            self._master.remember(name, write.to_state())
        except Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - it is written as it would have been
            log.debug("What is written to %s cannot be remembered: %s", path, one_line(error))
            return None
        return name, write

    def _returned(self, spark: Any, name: str, write: UnfinishedWrite) -> None:
        listing = ""
        try:
            listing = "" if write.existed else _listing(spark, write.location)
        except Exception as error:  # noqa: BLE001 - then a retry does not remove it
            log.debug("What was written to %s cannot be listed: %s", write.location, one_line(error))
        self._master.remember(name, {"status": RETURNED, "attempt": self._master.epoch, _LISTING: listing})


def _listing(spark: Any, location: str) -> str:
    """Return a digest of the files of a folder; empty if it has none."""
    files = output_files(spark, location)
    return listing_digest(files) if files else ""
