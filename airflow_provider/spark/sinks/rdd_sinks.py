"""Files that RDDs write themselves: remove what a killed write has left, so that the next attempt can write.

Each attempt writes them. RDDs refuse to write where something is, so a folder that holds only a dead driver's pending
tasks must go; it is taken back like other outputs.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from airflow_provider.core.causes import one_line
from airflow_provider.core.committed_output import listing_digest
from airflow_provider.core.digest import digest
from airflow_provider.core.errors import Fenced
from airflow_provider.core.unfinished_write import SINK, UnfinishedWrite
from airflow_provider.spark.calls import Call, Kind, Proceed, Stages
from airflow_provider.spark.jvm.output import qualified
from airflow_provider.spark.jvm.pending_output import PendingOutput

if TYPE_CHECKING:
    from airflow_provider.job.job_master import JobMaster
    from airflow_provider.spark.sinks.take_back import OutputAttempt

log = logging.getLogger(__name__)


class RddSinks:
    """The files that RDDs of one attempt write."""

    def __init__(self, master: JobMaster, output: OutputAttempt) -> None:
        self._master = master
        self._output = output
        self._occurrences: Counter[str] = Counter()

    def stages(self) -> Stages:
        """Return the stages for the RDD methods that write files."""
        return {Kind.SAVE_RDD: self._write}

    def _write(self, call: Call, proceed: Proceed) -> None:
        name = self._begin(str(call.argument(0, "path")))
        proceed()
        if name:
            self._master.remember(name, {"status": "RETURNED", "attempt": self._master.epoch})

    def _begin(self, path: str) -> str:
        """Record what is about to be written; return the record's name, empty if it is not recorded."""
        from pyspark.sql import SparkSession

        spark = SparkSession._instantiatedSession
        if spark is None:
            return ""
        try:
            location = qualified(spark, path)
            self._occurrences[location] += 1
            name = f"{SINK}{digest('rdd', location, str(self._occurrences[location]))[:32]}"
            write = UnfinishedWrite(
                title=location,
                attempt=self._master.epoch,
                number=self._output.number,
                location=location,
                existed=PendingOutput(spark, location, self._output.number).exists(),
                before=listing_digest([]),
                mode="error",
                repeated=True,
            )
            self._master.remember(name, write.to_state())
        except Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - it is written as it would have been
            log.debug("What an RDD writes to %s cannot be remembered: %s", path, one_line(error))
            return ""
        return name
