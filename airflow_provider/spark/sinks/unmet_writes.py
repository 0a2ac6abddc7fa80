"""Check, after the script has succeeded, earlier attempts' writes that it did not make: are their rows there once?"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from airflow_provider.core.committed_output import Commit
from airflow_provider.core.unfinished_write import REPEATED, ROWS, TAKEN_BACK, WRITTEN, AddedRows

if TYPE_CHECKING:
    from airflow_provider.core.committed_output import OutputFile
    from airflow_provider.job.job_master import JobMaster
    from airflow_provider.spark.sinks.own_results import OwnResults
    from airflow_provider.spark.sinks.sink_identity import Sink


class UnmetWrites:
    """Earlier attempts' writes that one attempt has not made."""

    def __init__(self, master: JobMaster, results: OwnResults) -> None:
        self._master = master
        self._results = results
        self._lock = threading.Lock()
        self._added_to: dict[str, list[OutputFile]] = {}

    def makes(self, sink: Sink, now: list[OutputFile]) -> None:
        """Note that the script has made a write that has added rows.

        :param now: the files that are there
        """
        if not sink.overwrites:
            with self._lock:
                self._added_to[sink.place.locate()] = now

    def missing(self) -> dict[str, str]:
        """Return why rows may be missing, by the coordinator of their write: they were removed to be written again."""
        return {
            name: (
                f"sink {state.get('title')}: rows that an earlier attempt had added were removed so that this attempt "
                "could write them again, but it has not made that write. If the script skipped it because it considers "
                "it done, the rows are missing: reset the script's own progress marker, and start afresh "
                "(resume=never). sinks=repeat never removes rows."
            )
            for name, state in dict(self._master.graph.coordinators).items()
            if isinstance(state, dict) and state.get("status") == TAKEN_BACK and state.get(ROWS)
        }

    def twice(self) -> dict[str, str]:
        """Return why rows may be there twice, by the coordinator of their write: the script has added others in the
        same place, maybe the same ones by another plan.
        """
        epoch, found = self._master.epoch, {}
        for name, state in dict(self._master.graph.coordinators).items():
            rows = AddedRows.from_state(state, WRITTEN, REPEATED)
            if rows is None or rows.attempt == epoch or self._results.has_passed(name):
                continue
            commit, now = Commit.from_state(state), self._added_to.get(rows.location)
            if commit is None or not commit.files or now is None or commit.changed(now):
                continue
            found[name] = (
                f"sink {rows.title}: attempt {rows.attempt} added rows with a write that attempt {epoch} did not make, "
                f"and attempt {epoch} added other rows. Rows that both have made are there twice: check the output."
            )
        return found
