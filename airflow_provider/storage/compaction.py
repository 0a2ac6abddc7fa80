"""Write snapshots in the background, and delete the blocks that they replace.

Blocks are deleted only when two good snapshots cover them: the newest, and the one before it in case the newest turns
out to be damaged. Blocks that fence must stay:

A block number can be taken only once. A replaced driver wants to write the number after its last block. That block is
the first one of the next attempt, because the blocks of an attempt follow each other without a gap. If it had been
deleted, the zombie would create it and believe that its events were recorded. So the **first block of every attempt**,
and every block that cannot be read, **is never deleted**: one small object per attempt. A driver that has not written
its first block yet may wait at any number; therefore :meth:`JobEventWriter.begin` looks for newer snapshots *after* its
first block is stored, and if there are any, starts over behind them. Nothing below a snapshot is ever read.
"""

from __future__ import annotations

import logging
import threading

from airflow_provider.core.errors import RecoveryError
from airflow_provider.core.faults import AFTER_SNAPSHOT, BEFORE_SNAPSHOT, fault_point
from airflow_provider.storage.event_log import JobEventLog
from airflow_provider.storage.object_store import ObjectStore
from airflow_provider.storage.snapshots import Snapshot, Snapshots

log = logging.getLogger(__name__)


class Compactor:
    """Stores offered snapshots in its own thread; if several wait, only the newest.

    If the store fails, only the snapshot is lost, never the job: the blocks hold the same.

    :ivar good: number of the newest snapshot that was read and verified; 0 if there is none
    """

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._snapshots = Snapshots(store, prefix)
        self._log = JobEventLog(store, prefix)
        self.good = 0
        self._offered: Snapshot | None = None
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="job-event-snapshots", daemon=True)
        self._started = False

    def offer(self, snapshot: Snapshot) -> None:
        """Queue *snapshot* for storing. Never waits for the store."""
        with self._changed:
            self._offered = snapshot
            if not self._started:
                self._started = True
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Store the pending snapshot, and end. Idempotent."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            started = self._started
        if started:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._offered is not None or self._closing)
                snapshot, self._offered = self._offered, None
            if snapshot is None:
                return
            number = snapshot.number
            try:
                stored = self._write(snapshot)
            except Exception as error:  # noqa: BLE001  whatever it is, the blocks hold the same
                log.warning("Snapshot %d of the job event store could not be stored: %s", number, _told(error))
                continue
            try:
                if stored:
                    self._delete_superfluous(snapshot)
            except Exception as error:  # noqa: BLE001  leftovers only cost space
                log.warning(
                    "Snapshot %d of the job event store is stored, but what it makes superfluous could not be deleted: "
                    "%s The next snapshot tries again.",
                    number,
                    _told(error),
                )

    def _write(self, snapshot: Snapshot) -> bool:
        """Store *snapshot*; return whether it is stored now."""
        fault_point(BEFORE_SNAPSHOT)
        if not self._snapshots.write(snapshot):
            log.warning("Snapshot %d of the job event store is there already and damaged.", snapshot.number)
            return False
        fault_point(AFTER_SNAPSHOT)
        return True

    def _delete_superfluous(self, snapshot: Snapshot) -> None:
        """Delete what the snapshot before *snapshot* replaces: older snapshots first, so that none lacks its blocks."""
        previous, self.good = self.good, snapshot.number
        if previous:
            self._snapshots.delete(older for older in self._snapshots.numbers() if older < previous)
            old = (block for block in self._log.numbers() if block < previous)
            self._log.delete(block for block in old if block not in snapshot.fences)


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, RecoveryError) else f"{error!r}."
