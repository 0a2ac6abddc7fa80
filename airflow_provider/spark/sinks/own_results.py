"""Writes that read their own results: a table is read, and replaced by what was made of it.

A retry reads the new table where the first attempt read the old one. So if a call of the script reads what an earlier
attempt of this job wrote later in the script, the call is that attempt's call, and its rows are there.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from airflow_provider.core.committed_output import Commit, write_of
from airflow_provider.core.outputs_read import committed, made_before, outputs_read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider.core.committed_output import OutputFile
    from airflow_provider.core.outputs_read import SourceRead
    from airflow_provider.job.job_master import JobMaster
    from airflow_provider.spark.sinks.sink_identity import Sink


class OwnResults:
    """How far one attempt has come in the writes of its job.

    If such a write must be made again all the same, it goes astray: its rows are made of its own results. So does
    everything that reads it.
    """

    def __init__(self, master: JobMaster) -> None:
        self._master = master
        self._lock = threading.Lock()
        self._passed: set[str] = set()
        self._astray: set[str] = set()
        self._unread: set[str] = set()

    def earlier(self, sink: Sink) -> str:
        """Return the record name of an earlier attempt's write that is this one, although what it reads has since been
        changed by it; empty if there is none.
        """
        with self._lock:
            self._unread.difference_update(name for source in sink.sources for name in source.writes)
        states = dict(self._master.graph.coordinators)
        return made_before(sink.call, sink.sources, states, self._master.epoch, self._is_ahead)

    def overtaken(self, commit: Commit, place: str, now: Sequence[OutputFile]) -> bool:
        """Whether all files where a write has replaced some come from earlier attempts' writes that the script has not
        reached yet.
        """
        states = self._ahead()
        found = outputs_read([place], now, states)
        writes = {states[name]["write"] for name in found.writes} if found is not None else set()
        files = commit.where_written(now)
        return bool(files) and all(write_of(path) in writes for path, _, _ in files)

    def replaced(self, commit: Commit, now: Sequence[OutputFile]) -> bool:
        """Whether the missing files of a write were replaced by such writes, whose own results are there."""
        files, size = 0, 0
        for state in self._ahead().values():
            later = Commit.from_state(state)
            number, total = later.replaced.get(commit.write, (0, 0)) if later is not None else (0, 0)
            if later is not None and number and (not later.changed(now) or self.replaced(later, now)):
                files, size = files + number, size + total
        mine = commit.own(now)
        left = (len(mine) + files, sum(size for _, size, _ in mine) + size)
        return files > 0 and left == (commit.files, commit.size)

    def _ahead(self) -> dict[str, Any]:
        """Return the recorded states of earlier attempts' committed writes that the script has not reached yet."""
        known = dict(committed(self._master.graph.coordinators))
        with self._lock:
            return {name: state for name, state in known.items() if name not in self._passed}

    def doubt(self, sink: Sink) -> str:
        """Return why a write that must be made would have rows that no uninterrupted run has; empty if it would not.

        If such a write replaces a folder or table, it does no harm until something reads that.
        """
        astray = sink.mode == "append" if sink.reads_its_results else self._reads_astray(sink)
        if astray:
            return "it reads what this attempt had to compute again from the job's own output"
        return ""

    def unread(self) -> dict[str, str]:
        """Return why rows may be there twice, by the record of their write: it replaced or made something, went astray,
        and no other call has read it. What is read is right, or doubted, where it is read.
        """
        states = self._master.graph.coordinators
        with self._lock:
            left = sorted(self._unread)
        return {
            name: f"sink {states[name].get('title')}: this attempt had to make it again of what an earlier attempt had "
            "made of it. If it has taken the place of what it was made of, rows may be there twice: check the output."
            for name in left
        }

    def has_passed(self, name: str) -> bool:
        """Whether the script has reached a write, and made it or left it out."""
        with self._lock:
            return name in self._passed

    def leaves_out(self, name: str) -> None:
        """Note that the script has reached a write that is there."""
        with self._lock:
            self._passed.add(name)

    def makes(self, sink: Sink) -> None:
        """Note that the script has made a write."""
        astray = sink.reads_its_results or self._reads_astray(sink)
        with self._lock:
            self._passed.add(sink.coordinator)
            if astray:
                self._astray.add(sink.coordinator)
                if sink.mode != "append":  # such a one was doubted before it was made
                    self._unread.add(sink.coordinator)

    def _reads_astray(self, sink: Sink) -> bool:
        with self._lock:
            return any(name in self._astray for source in sink.sources for name in source.writes)

    def _is_ahead(self, source: SourceRead) -> bool:
        with self._lock:
            return any(name not in self._passed or name in self._astray for name in source.writes)
