"""Writing snapshots in the background, and deleting the blocks that nobody needs any more.

Blocks are deleted only when two good snapshots cover them: the newest, and the one before it for the case that the
newest turns out damaged. What fences must stay:

A block number is taken once. A driver that has been replaced wants to write the number after its last block; that block
is the first one of the attempt that came next, because the blocks of one attempt follow each other without a gap. If it
had been deleted, the zombie would create it and believe itself recorded. So the **first block of every attempt**, and
every block that cannot be read, **is never deleted**: one small object for each attempt. A driver that has not written
its first block yet may wait at any number; therefore :meth:`JobEventWriter.begin` looks for newer snapshots *after* its
first block is stored, and begins anew behind them if there are any. Whatever a number below a snapshot holds is not
read by anybody.
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
    """Stores the snapshots that it is offered, in a thread of its own; of several that wait, the newest.

    A failing store costs the snapshot, never the job: the blocks tell the same.

    :ivar good: number of the newest snapshot that was read and found good; 0 if there is none
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
        """Have *snapshot* stored soon. Never waits for the store."""
        with self._changed:
            self._offered = snapshot
            if not self._started:
                self._started = True
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Store what was offered, and end. Again does nothing."""
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
            except Exception as error:  # noqa: BLE001  whatever it is, the blocks tell the same
                log.warning("Snapshot %d of the job event store could not be stored: %s", number, _told(error))
                continue
            try:
                if stored:
                    self._delete_superfluous(snapshot)
            except Exception as error:  # noqa: BLE001  what stays costs room only
                log.warning(
                    "Snapshot %d of the job event store is stored, but what it makes superfluous could not be deleted: "
                    "%s The next snapshot tries again.",
                    number,
                    _told(error),
                )

    def _write(self, snapshot: Snapshot) -> bool:
        """Store *snapshot*; return whether it is there now."""
        fault_point(BEFORE_SNAPSHOT)
        if not self._snapshots.write(snapshot):
            log.warning("Snapshot %d of the job event store is there already and damaged.", snapshot.number)
            return False
        fault_point(AFTER_SNAPSHOT)
        return True

    def _delete_superfluous(self, snapshot: Snapshot) -> None:
        """Delete what the one before *snapshot* stands for: older snapshots first, so that none lacks its blocks."""
        previous, self.good = self.good, snapshot.number
        if previous:
            self._snapshots.delete(older for older in self._snapshots.numbers() if older < previous)
            old = (block for block in self._log.numbers() if block < previous)
            self._log.delete(block for block in old if block not in snapshot.fences)


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, RecoveryError) else f"{error!r}."
