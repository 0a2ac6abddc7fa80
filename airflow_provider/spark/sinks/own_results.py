"""Writes that read what came of them: a table that is read, and replaced by what was made of it.

A retry reads the new table where the first attempt has read the old one. So a call of the script that reads what this
job has written further on, in an earlier attempt, is that attempt's call, and its rows are there.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from airflow_provider.core.outputs_read import made_before, outputs_read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider.core.committed_output import OutputFile
    from airflow_provider.core.outputs_read import SourceRead
    from airflow_provider.job.job_master import JobMaster
    from airflow_provider.spark.sinks.sink_identity import Sink


class OwnResults:
    """How far one attempt has come in the writes of its job.

    A write that is such a call, and has to be made again all the same, goes astray: its rows are made of its own
    results. So does what reads it.
    """

    def __init__(self, master: JobMaster) -> None:
        self._master = master
        self._lock = threading.Lock()
        self._passed: set[str] = set()
        self._astray: set[str] = set()

    def earlier(self, sink: Sink) -> str:
        """Return under which name a write of an earlier attempt is remembered, if this is that one though what it reads
        has changed by it; else an empty text.
        """
        states = dict(self._master.graph.coordinators)
        return made_before(sink.call, sink.sources, states, self._master.epoch, self._is_ahead)

    def overtaken(self, place: str, now: Sequence[OutputFile]) -> bool:
        """Whether all that is in a place is of writes of earlier attempts to which the script has not come."""
        found = outputs_read([place], now, dict(self._master.graph.coordinators))
        with self._lock:
            return found is not None and found.alone and self._passed.isdisjoint(found.writes)

    def doubt(self, sink: Sink) -> str:
        """Return why a write that has to be made would have rows that no uninterrupted run has; else an empty text.

        A folder or table that such a write replaces is of no harm before something reads it.
        """
        astray = sink.mode == "append" if sink.reads_its_results else self._reads_astray(sink)
        if astray:
            return "it reads what this attempt had to make of the job's own results"
        return ""

    def has_passed(self, name: str) -> bool:
        """Whether the script has come to a write, and made it or left it out."""
        with self._lock:
            return name in self._passed

    def leaves_out(self, name: str) -> None:
        """Note that the script has come to a write that is there."""
        with self._lock:
            self._passed.add(name)

    def makes(self, sink: Sink) -> None:
        """Note that the script has made a write."""
        astray = sink.reads_its_results or self._reads_astray(sink)
        with self._lock:
            self._passed.add(sink.coordinator)
            if astray:
                self._astray.add(sink.coordinator)

    def _reads_astray(self, sink: Sink) -> bool:
        with self._lock:
            return any(name in self._astray for source in sink.sources for name in source.writes)

    def _is_ahead(self, source: SourceRead) -> bool:
        with self._lock:
            return any(name not in self._passed or name in self._astray for name in source.writes)
